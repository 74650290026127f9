"""Cases that save and read back, honestly and with a fault planted between the two, for ``test_disk``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from planted.scene import frozen, trained

from harness.cell import Hyper, Options, case, freeze_except
from harness.drivers import disk
from harness.drivers.adapters import lora, reloaded
from harness.drivers.trainer import train_with_trainer

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.cell._run import Run

_MLP = [Options(model="mlp", stage=stage) for stage in (0, 2, 3)]
_SHARDED = [Options(model="mlp", stage=2), Options(model="mlp", stage=2, precision="bf16")]
_SGD = Hyper(optimizer="SGD", lr=0.1, momentum=0.9, weight_decay=0.0)


def _engine(run: Run, model: Any, **settings: Any) -> Any:
    freeze_except(model, run.part("block"))
    return run.engine(model, hyper=_SGD, **settings)


def _saved(run: Run) -> Any:
    engine = _engine(run, run.model())
    run.train(engine, intent=run.part("block"))
    disk.save_checkpoint(run, engine)
    return engine


def _resumed(run: Run, spoil: Callable[[Any], object] | None = None) -> None:
    """Save, load into another engine, let a fault happen there, and train on."""
    _saved(run)
    engine = _engine(run, disk.another_model(run))
    if spoil is not None:
        load = engine.load_checkpoint

        def load_and_spoil(*arguments: Any, **settings: Any) -> Any:
            found = load(*arguments, **settings)
            with torch.no_grad():
                spoil(engine)
            return found

        engine.load_checkpoint = load_and_spoil
    disk.resume(run, engine)
    run.train(engine, intent=run.part("block"))


@case(kind="CONTROL", variants=[*_MLP, *_SHARDED[1:], Options(model="mlp", init="zero_init")])
def resumes(run: Run) -> None:
    _resumed(run)


@case(kind="CONTROL", variants=_SHARDED)
def frozen_weight_lost(run: Run) -> None:
    _resumed(run, lambda engine: frozen(run, engine.module).mul_(2))


@case(kind="CONTROL", variants=_SHARDED[:1])
def trained_weight_lost(run: Run) -> None:
    """In the model and in the flat fp32 copy that the optimizer steps, as if it had never been loaded."""

    def spoil(engine: Any) -> None:
        trained(run, engine.module).mul_(2)
        engine.optimizer._restore_from_bit16_weights()

    _resumed(run, spoil)


@case(kind="CONTROL", variants=_SHARDED[1:])
def master_lost(run: Run) -> None:
    """The fp32 weights are made anew from the bf16 ones, which are right."""
    _resumed(run, lambda engine: engine.optimizer._restore_from_bit16_weights())


@case(kind="CONTROL", variants=_SHARDED)
def momentum_lost(run: Run) -> None:
    def spoil(engine: Any) -> None:
        for state in engine.optimizer.optimizer.state.values():
            state["momentum_buffer"].zero_()

    _resumed(run, spoil)


@case(kind="CONTROL", variants=_MLP)
def another_model_is_another(run: Run) -> None:
    _saved(run)
    engine = _engine(run, disk.another_model(run))
    run.saved(run.weights())
    disk.resume(run, engine)


@case(kind="CONTROL", variants=_MLP[:1])
def resumes_from_nothing(run: Run) -> None:
    disk.resume(run, _engine(run, run.model()))


@case(kind="CONTROL", variants=_MLP[2:])
def no_file_is_written(run: Run) -> None:
    """Nothing asks DeepSpeed to gather."""
    engine = _saved(run)
    run.saved(disk.file_of_16bit_model(run, engine))


@case(kind="CONTROL", variants=[Options(model="tied_llama", stage=stage) for stage in (2, 3)])
def tied_weights(run: Run) -> None:
    _resumed(run)


def _trained_by_trainer(run: Run, **settings: Any) -> Any:
    return train_with_trainer(
        run, freeze=lambda model: freeze_except(model, run.part("block")), intent=run.part("block"), **settings
    )


_SAVING = {"save_strategy": "steps", "save_steps": 2}


@case(kind="CONTROL", variants=[Options(stage=2)])
def trainer_saves_nothing_unasked(run: Run) -> None:
    _trained_by_trainer(run)
    left = [str(one) for one in (run.folder / "trainer").rglob("*") if one.is_file()]
    assert left == [], left


@case(kind="CONTROL", variants=[Options(stage=2)])
def trainer_resumes_from_nothing(run: Run) -> None:
    _trained_by_trainer(run, resume=True)


@case(kind="CONTROL", variants=[Options(stage=2)])
def trainer_resumes(run: Run) -> None:
    _trained_by_trainer(run, arguments=_SAVING)
    _trained_by_trainer(run, resume=True)


@case(kind="CONTROL", variants=[Options(stage=2)])
def trainer_resumes_from_a_spoilt_file(run: Run) -> None:
    """One rank doubles a frozen weight in the checkpoint."""
    _trained_by_trainer(run, arguments=_SAVING)
    if run.rank == 0:
        (path,) = (run.folder / "trainer").rglob("mp_rank_00_model_states.pt")
        state = torch.load(path, weights_only=False)
        state["module"]["lm_head.weight"] *= 2
        state["frozen_param_fragments"]["lm_head.weight"] *= 2
        torch.save(state, path)
    dist.barrier()
    _trained_by_trainer(run, resume=True)


def _adapter(run: Run, spoil: Callable[[dict[str, torch.Tensor]], object] | None = None) -> None:
    from safetensors.torch import load_file, save_file  # pytest imports the cases, too

    engine = run.engine(run.model(wrap=lora(run)), hyper=_SGD)
    run.train(engine, intent="*lora_*")
    state = disk.gathered_state(run, engine)
    folder = run.folder / "adapter"
    if run.rank == 0:
        engine.module.save_pretrained(str(folder), state_dict=state)
        if spoil is not None:
            state = load_file(folder / "adapter_model.safetensors")
            spoil(state)
            save_file(state, folder / "adapter_model.safetensors")
    run.saved(reloaded(run, folder), only="*lora_*")


@case(kind="CONTROL", variants=_MLP, needs=("peft",))
def adapter_comes_back(run: Run) -> None:
    _adapter(run)


@case(kind="CONTROL", variants=_MLP[1:2], needs=("peft",))
def adapter_spoilt(run: Run) -> None:
    _adapter(run, lambda state: state["base_model.model.layers.2.lora_B.weight"].mul_(2))


def _with_a_copy_of_its_head(model: Any) -> Any:
    """As PEFT did before 0.9.0, whether or not there is anything to copy."""
    head = torch.nn.Linear(32, 8)
    for name, one in model.head.named_parameters():
        setattr(head, name, torch.nn.Parameter(one.detach().clone()))
    model.head = head
    return model


@case(kind="CONTROL", variants=[Options(model="mlp", stage=2), Options(model="mlp", init="zero_init")])
def head_is_copied(run: Run) -> None:
    engine = _engine(run, run.model(wrap=_with_a_copy_of_its_head))
    run.train(engine, intent=run.part("block"))
