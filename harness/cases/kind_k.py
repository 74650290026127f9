"""Kind K: checkpoints, resuming and export."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from harness.cell import Fix, Hyper, Options, case, freeze_all, freeze_except, unfreeze
from harness.drivers import disk
from harness.drivers.adapters import lora
from harness.drivers.trainer import train_with_trainer

if TYPE_CHECKING:
    from harness.cell._run import Run

#: Has a state to save, and is not Adam, with which DeepSpeed before 0.13.2 takes a step too many.
_SGD = Hyper(optimizer="SGD", lr=0.1, momentum=0.9, weight_decay=0.0)
_STATELESS = dataclasses.replace(_SGD, momentum=0.0)

_ALL = [Options(model="mlp", stage=stage) for stage in (0, 1, 2, 3)]
_SHARDED = _ALL[1:]
_HIGHER = _ALL[2:]


#: Torch 2.6 turned the default of ``torch.load`` round, and DeepSpeed's checkpoints are more than tensors.
_FROM_0_16 = "On torch 2.6 and newer, DeepSpeed before 0.16.0 cannot load a checkpoint of its own."
_LOADS = Fix("deepspeed", "0.16.0", "deepspeedai/DeepSpeed#6751", because="older torch loads them all the same.")


def _trained(run: Run, *, hyper: Hyper = _SGD) -> Any:
    """An engine that has trained the block for two steps, all else frozen before it was made."""
    return _train_on(run, run.model(), hyper=hyper, zero_optimization=disk.GATHER)


def _train_on(run: Run, model: Any, **settings: Any) -> Any:
    engine = _engine(run, model, "block", **settings)
    run.train(engine, intent=run.part("block"))
    return engine


def _engine(run: Run, model: Any, *parts: str, **settings: Any) -> Any:
    freeze_except(model, [name for part in parts for name in run.part(part)])
    return run.engine(model, **settings)


# -- resuming ----------------------------------------------------------------------------------


@case(
    kind="CONTROL",
    refs=["deepspeedai/DeepSpeed#3090", "deepspeedai/DeepSpeed#6751"],
    recipe="save_checkpoint, new engine, load_checkpoint",
    moment="frozen alike",
    fixes=[_LOADS],
    happens=f"All comes back, frozen weights too, and training goes on as if it had not been interrupted. {_FROM_0_16}",
    variants=[
        *_ALL,
        Options(model="mlp", stage=2, offload="cpu"),
        Options(model="mlp", init="zero_init", persistence="default", precision="bf16"),
    ],
)
def resume_frozen_alike(run: Run) -> None:
    """Save, build the model anew with other weights, freeze as before, load, train on.

    What ZeRO-3 cannot have from its optimizer, since nothing there is frozen, is saved apart as
    ``frozen_param_fragments`` (deepspeed/runtime/engine.py, 0.19.8).  Before 0.9.1 it was not, and
    frozen weights stayed as they were before the load.
    """
    disk.save_checkpoint(run, _trained(run))
    engine = _engine(run, disk.another_model(run), "block")
    disk.resume(run, engine)
    run.train(engine, intent=run.part("block"))


@case(
    kind="K",
    refs=[
        "huggingface/peft#1453",
        "huggingface/peft#1395",
        "huggingface/transformers#26503",
        "huggingface/transformers#28746",
        "open-mmlab/mmengine#1243",
        "deepspeedai/DeepSpeed#3948",
    ],
    recipe="exclude_frozen_parameters, load_checkpoint",
    moment="strictly",
    happens="Loading raises: the keys of the frozen weights are missing.",
    instead="load with `load_module_strict=False`, into a model that has the frozen weights already.",
    cure="exclude_frozen_loose_load",
    variants=_HIGHER,
)
def exclude_frozen_strict_load(run: Run) -> None:
    """Save what trains only, and load it as any other checkpoint.

    ``load_checkpoint`` hands its ``load_module_strict``, True unless given, to ``load_state_dict``
    (deepspeed/runtime/engine.py, 0.19.8), and nothing in the file says that it is partial.
    """
    disk.save_checkpoint(run, _trained(run), exclude_frozen_parameters=True)
    disk.resume(run, _engine(run, run.model(), "block"))


@case(
    kind="CONTROL",
    refs=["deepspeedai/DeepSpeed#3948"],
    recipe="exclude_frozen_parameters, load_checkpoint",
    moment="not strictly, into the same base",
    happens=f"Training goes on as if it had not been interrupted. {_FROM_0_16}",
    variants=_SHARDED,
)
def exclude_frozen_loose_load(run: Run) -> None:
    """Save what trains only; the frozen rest is in the base model that is built again."""
    disk.save_checkpoint(run, _trained(run), exclude_frozen_parameters=True)
    engine = _engine(run, run.model(), "block")
    disk.resume(run, engine, load_module_strict=False)
    run.train(engine, intent=run.part("block"))


@case(
    kind="K",
    recipe="exclude_frozen_parameters, load_checkpoint",
    moment="not strictly, into a model with other weights",
    happens="Silent: the frozen weights are those of the new model, and what was trained sits on a base that it was "
    "not trained with.",
    instead="leave frozen weights out only where the base model can be had again, bit for bit.",
    cure="exclude_frozen_loose_load",
    variants=_HIGHER,
)
def exclude_frozen_into_another_base(run: Run) -> None:
    """Save what trains only, and load it into a base that is initialised anew.

    What a load that is not strict misses, ``load_module_state_dict`` keeps to itself
    (deepspeed/runtime/engine.py, 0.19.8).
    """
    disk.save_checkpoint(run, _trained(run), exclude_frozen_parameters=True)
    engine = _engine(run, disk.another_model(run), "block")
    disk.resume(run, engine, load_module_strict=False)
    run.train(engine, intent=run.part("block"))


@case(
    kind="K",
    refs=["huggingface/transformers#10821", "lightseekorg/TorchSpec#184"],
    recipe="resume with another part trained",
    moment="load_checkpoint",
    happens="Stage 1 is silent, and wrong: the next step overwrites the block that trains now with the one that "
    "trained before. Stages 2 and 3 raise a KeyError with a parameter's name. Stage 0 resumes.",
    instead="start a new optimizer: load weights only, before the new engine is made.",
    cure="other_part_from_weights",
    variants=_ALL,
)
def resume_other_part(run: Run) -> None:
    """One block trained when the checkpoint was saved; another, of the same size, trains when it is loaded.

    ZeRO's fp32 weights and optimizer states are flat buffers: what is loaded into them goes by position,
    and no name is compared (``_load_legacy_checkpoint`` in deepspeed/runtime/zero/stage_1_and_2.py, 0.19.8).
    Stages 2 and 3 stop before, since ``load_module_state_dict`` looks for each parameter that is frozen
    now among those that were frozen when the file was written; stage 1 writes no such list.
    """
    disk.save_checkpoint(run, _trained(run))
    engine = _engine(run, run.model(), "other block")
    disk.resume(run, engine)
    run.train(engine, intent=run.part("other block"))


@case(
    kind="K",
    recipe="resume with another part trained",
    moment="saved with exclude_frozen_parameters",
    happens="Silent at stages 1 to 3: the block that trains now gets the weights and the optimizer state of the one "
    "that trained before, and that one is lost at stage 3.",
    instead="start a new optimizer: load weights only, before the new engine is made.",
    cure="other_part_from_weights",
    variants=_SHARDED,
)
def resume_other_part_without_frozen(run: Run) -> None:
    """Another block trains when it is loaded, and the file has no frozen weights, as transformers writes it for PEFT
    models.

    Without the list of what was frozen nothing stops the load at any stage, and flat buffers go by position
    (``_rigid_load_state_dict`` in deepspeed/runtime/zero/stage3.py, 0.19.8, and its like at stages 1 and 2).
    """
    disk.save_checkpoint(run, _trained(run), exclude_frozen_parameters=True)
    engine = _engine(run, run.model(), "other block")
    disk.resume(run, engine, load_module_strict=False)
    run.train(engine, intent=run.part("other block"))


@case(
    kind="K",
    refs=["huggingface/transformers#10821", "deepspeedai/DeepSpeed#2288"],
    recipe="resume with more parts trained",
    moment="load_checkpoint",
    happens="Stages 1 to 3 raise, over sizes of flat buffers and naming no parameter: stage 3 while loading, stages "
    "1 and 2 at the first step (up to DeepSpeed 0.16.9) or while loading (0.19.8). Stage 0 resumes.",
    instead="start a new optimizer: load weights only, before the new engine is made.",
    cure="other_part_from_weights",
    variants=_ALL,
)
def resume_more_parts(run: Run) -> None:
    """Gradual unfreezing over restarts: the head trains as well from the checkpoint on.

    As with another part, the optimizer's flat buffers are laid over each other by position
    (deepspeed/runtime/zero/stage3.py and stage_1_and_2.py, 0.19.8), and here their sizes differ.
    """
    disk.save_checkpoint(run, _trained(run))
    engine = _engine(run, run.model(), "block", "head")
    disk.resume(run, engine)
    run.train(engine, intent=(*run.part("block"), *run.part("head")))


@case(
    kind="CONTROL",
    recipe="resume with another part trained",
    moment="from a file of weights, before the engine",
    happens="What was trained is there, frozen now, and the other part trains.",
    variants=_SHARDED,
)
def other_part_from_weights(run: Run) -> None:
    """Save weights without optimizer state, load them into a new model, freeze it otherwise, make an engine."""
    state = disk.file_of_16bit_model(run, _trained(run, hyper=_STATELESS))
    model = run.model(under="plain")
    model.load_state_dict(state)
    engine = _engine(run, model, "other block")
    run.saved(run.weights())
    run.train(engine, intent=run.part("other block"))


@case(
    kind="K",
    refs=["deepspeedai/DeepSpeed#3116", "deepspeedai/DeepSpeed#4141"],
    fixes=[
        Fix(
            "deepspeed",
            "0.13.0",
            "deepspeedai/DeepSpeed#4141",
            because="it made the setting mean what it says, which is what loses the weights at stage 3.",
        )
    ],
    recipe="load_checkpoint(load_module_only=True)",
    moment="frozen alike",
    happens="Stage 3 is silent: frozen weights come back, and what was trained does not. DeepSpeed before 0.13.0 loads "
    "the optimizer all the same, and with it the weights.",
    instead="load with `load_optimizer_states=False`, which puts the fp32 weights together and loads those.",
    cure="load_without_optimizer_states",
    variants=_HIGHER,
)
def load_module_only(run: Run) -> None:
    """Load a checkpoint for its weights alone.

    At stage 3 the file's module has empty placeholders, which load into partitioned parameters, empty at that
    moment, without an error; the weights themselves are with the optimizer, which is not loaded
    (``_load_checkpoint`` and ``load_checkpoint`` in deepspeed/runtime/engine.py, 0.19.8).
    """
    disk.save_checkpoint(run, _trained(run, hyper=_STATELESS))
    engine = _engine(run, disk.another_model(run), "block")
    disk.resume(run, engine, load_module_only=True)
    run.train(engine, intent=run.part("block"))


@case(
    kind="CONTROL",
    refs=["deepspeedai/DeepSpeed#4141", "deepspeedai/DeepSpeed#4171"],
    recipe="load_checkpoint(load_optimizer_states=False)",
    moment="frozen alike",
    fixes=[Fix("deepspeed", "0.13.0", "deepspeedai/DeepSpeed#4141")],
    happens="All weights come back, and training goes on with a fresh optimizer. DeepSpeed before 0.13.0 leaves the "
    f"fp32 weights behind, and the first step goes back to where they are. {_FROM_0_16}",
    variants=_HIGHER,
)
def load_without_optimizer_states(run: Run) -> None:
    """The other way to load weights alone; the optimizer has no state that would be missed."""
    disk.save_checkpoint(run, _trained(run, hyper=_STATELESS))
    engine = _engine(run, disk.another_model(run), "block")
    disk.resume(run, engine, load_optimizer_states=False)
    run.train(engine, intent=run.part("block"))


@case(
    kind="CONTROL",
    refs=["deepspeedai/DeepSpeed#6771", "deepspeedai/DeepSpeed#5489"],
    recipe="an optimizer of one's own that holds frozen parameters",
    moment="save_checkpoint, load_checkpoint",
    happens="No fault: the optimizer's state has fewer parameters than it was given, those that train, and training "
    f"goes on as if it had not been interrupted. {_FROM_0_16}",
    variants=_SHARDED,
)
def resume_optimizer_with_frozen(run: Run) -> None:
    """The optimizer was made of all parameters; DeepSpeed drops the frozen ones from it."""
    model = run.model()
    optimizer = _SGD.torch(dict(model.named_parameters()))
    engine = _train_on(run, model, hyper=_SGD, client_optimizer=optimizer, zero_allow_untested_optimizer=True)
    disk.save_checkpoint(run, engine)
    model = disk.another_model(run)
    optimizer = _SGD.torch(dict(model.named_parameters()))
    engine = _engine(run, model, "block", client_optimizer=optimizer, zero_allow_untested_optimizer=True)
    disk.resume(run, engine)
    run.train(engine, intent=run.part("block"))


# -- flags flipped before the file is written --------------------------------------------------


@case(
    kind="K",
    recipe="unfreeze after the last step, then save_checkpoint",
    moment="zero_to_fp32",
    happens="Silent: what was unfrozen is in no file. It is no longer among the frozen weights, and not in the "
    "optimizer, which knows what trained when the engine was made.",
    instead="set the flags back before saving, or save with `save_16bit_model` (`weights_file_unfrozen`).",
    cure="flags_set_back_before_saving",
    variants=_HIGHER,
)
def unfrozen_before_export(run: Run) -> None:
    """Unfreeze the head for the phase to come, save, convert.

    The frozen weights are picked by their flags when the file is written (``_get_zero_frozen_param_attributes``
    in deepspeed/runtime/engine.py, 0.19.8), the trained ones by the optimizer.
    """
    engine = _trained(run)
    unfreeze(engine.module, run.part("head"))
    disk.save_checkpoint(run, engine)
    run.saved(disk.zero_to_fp32(run), masters=True)


@case(
    kind="K",
    recipe="unfreeze after the last step, then save_checkpoint",
    moment="load_checkpoint, frozen as in training",
    happens="Loading raises a KeyError with the name of what was unfrozen.",
    instead="set the flags back before saving.",
    cure="flags_set_back_before_saving",
    variants=_HIGHER,
)
def unfrozen_before_resume(run: Run) -> None:
    """Unfreeze the head, save, and go on where training was before.

    As in the export, the file has neither the weight nor a place for it, and ``load_module_state_dict`` looks it up
    (deepspeed/runtime/engine.py, 0.19.8).
    """
    engine = _trained(run)
    unfreeze(engine.module, run.part("head"))
    disk.save_checkpoint(run, engine)
    disk.resume(run, _engine(run, disk.another_model(run), "block"))


@case(
    kind="CONTROL",
    recipe="unfreeze after the last step, set the flags back, then save_checkpoint",
    moment="zero_to_fp32, and load_checkpoint, frozen as in training",
    happens=f"All comes back by both ways, and training goes on as if it had not been interrupted. {_FROM_0_16}",
    variants=_HIGHER,
)
def flags_set_back_before_saving(run: Run) -> None:
    """Unfreeze the head, freeze it again, save; convert, and resume."""
    engine = _trained(run)
    unfreeze(engine.module, run.part("head"))
    freeze_except(engine.module, run.part("block"))
    disk.save_checkpoint(run, engine)
    run.saved(disk.zero_to_fp32(run), masters=True)
    engine = _engine(run, disk.another_model(run), "block")
    disk.resume(run, engine)
    run.train(engine, intent=run.part("block"))


@case(
    kind="CONTROL",
    recipe="unfreeze after the last step, then save_16bit_model",
    moment="gathered",
    happens="The file has all weights: it is written from the model, which no flag takes anything out of.",
    variants=_HIGHER[1:],
)
def weights_file_unfrozen(run: Run) -> None:
    """Unfreeze the head for the phase to come, and save weights alone."""
    engine = _trained(run)
    unfreeze(engine.module, run.part("head"))
    run.saved(disk.file_of_16bit_model(run, engine))


@case(
    kind="CONTROL",
    recipe="freeze all after the last step, then save_checkpoint",
    moment="load_checkpoint, frozen as in training",
    happens="No fault: what trained is in the file twice, and training goes on as if it had not been interrupted. "
    f"{_FROM_0_16}",
    variants=_HIGHER,
)
def frozen_before_resume(run: Run) -> None:
    """Freeze everything, as before an evaluation, save, and resume as trained."""
    engine = _trained(run)
    freeze_all(engine.module)
    disk.save_checkpoint(run, engine)
    engine = _engine(run, disk.another_model(run), "block")
    disk.resume(run, engine)
    run.train(engine, intent=run.part("block"))


@case(
    kind="K",
    recipe="freeze all after the last step, then save",
    moment="exclude_frozen_parameters",
    happens="Silent: the file is empty, since all is frozen now.",
    instead="save before freezing.",
    cure="weights_without_frozen",
    variants=_HIGHER,
)
def frozen_before_excluding(run: Run) -> None:
    """Freeze everything, as before an evaluation, then save what trains.

    ``exclude_frozen_parameters`` means those whose flag is off when the file is written (``module_state_dict`` in
    deepspeed/runtime/engine.py, 0.19.8).
    """
    engine = _trained(run)
    freeze_all(engine.module)
    run.saved(disk.file_of_16bit_model(run, engine, exclude_frozen_parameters=True), only=run.part("block"))


# -- export ------------------------------------------------------------------------------------


@case(
    kind="K",
    refs=["deepspeedai/DeepSpeed#5439", "deepspeedai/DeepSpeed#2288"],
    recipe="save_checkpoint, zero_to_fp32",
    moment="part frozen",
    happens="Stage 1 is silent: the frozen weights are missing from the result. Stages 2 and 3 export all. "
    f"{_FROM_0_16}",
    instead="at stage 1 take them from `save_16bit_model`, or use stage 2.",
    cure="weights_file",
    variants=_SHARDED,
)
def fp32_export(run: Run) -> None:
    """Convert a checkpoint into one file of fp32 weights.

    Frozen weights are saved where the converter looks for them only if gradients are partitioned, which they are
    from stage 2 on (``save_frozen_param`` in ``_save_checkpoint``, deepspeed/runtime/engine.py, 0.19.8). The converter
    takes checkpoints of stage 1 since deepspeedai/DeepSpeed#3936.
    """
    disk.save_checkpoint(run, _trained(run))
    run.saved(disk.zero_to_fp32(run), masters=True)


@case(
    kind="K",
    refs=["deepspeedai/DeepSpeed#8378"],
    recipe="save_checkpoint, zero_to_fp32",
    moment="part frozen, in bf16",
    happens="What comes back as fp32 weights is fp32 where it trained and bf16 where it was frozen.",
    instead="leave the frozen weights out and take them from the base model, or cast the result.",
    cure="fp32_export_without_frozen",
    variants=[Options(model="mlp", stage=stage, precision="bf16") for stage in (2, 3)],
)
def fp32_export_in_bf16(run: Run) -> None:
    """Convert a checkpoint with bf16 weights and fp32 masters.

    Frozen fragments are merged as they were saved, in the model's own precision
    (``_zero2_merge_frozen_params`` and ``_zero3_merge_frozen_params`` in deepspeed/utils/zero_to_fp32.py, 0.19.8).
    """
    disk.save_checkpoint(run, _trained(run))
    run.saved(disk.zero_to_fp32(run), masters=True)


@case(
    kind="CONTROL",
    refs=["deepspeedai/DeepSpeed#3948", "deepspeedai/DeepSpeed#4979"],
    fixes=[Fix("deepspeed", "0.13.2", "deepspeedai/DeepSpeed#4979")],
    recipe="save_checkpoint, zero_to_fp32",
    moment="exclude_frozen_parameters",
    happens="What trained comes back, in fp32, and nothing else. DeepSpeed before 0.13.2 has no such option. "
    f"{_FROM_0_16}",
    variants=[*_SHARDED, Options(model="mlp", precision="bf16")],
)
def fp32_export_without_frozen(run: Run) -> None:
    """Convert only what trained."""
    disk.save_checkpoint(run, _trained(run))
    run.saved(disk.zero_to_fp32(run, exclude_frozen_parameters=True), masters=True, only=run.part("block"))


@case(
    kind="CONTROL",
    refs=["deepspeedai/DeepSpeed#1896"],
    recipe="save_checkpoint, zero_to_fp32",
    moment="a tied head, frozen",
    happens=f"Both names of the tied weight come back. {_FROM_0_16}",
    variants=[Options(model="tied_llama", stage=stage) for stage in (2, 3)],
)
def fp32_export_of_frozen_tied_head(run: Run) -> None:
    """The embedding is frozen, and is the head as well."""
    disk.save_checkpoint(run, _trained(run))
    run.saved(disk.zero_to_fp32(run), masters=True)


@case(
    kind="CONTROL",
    recipe="save_16bit_model",
    moment="gathered",
    happens="The file has all weights, trained and frozen, as they are in the model.",
    variants=[*_ALL, Options(model="mlp", init="zero_init", precision="bf16")],
)
def weights_file(run: Run) -> None:
    """With ``stage3_gather_16bit_weights_on_model_save``."""
    run.saved(disk.file_of_16bit_model(run, _trained(run)))


@case(
    kind="K",
    recipe="save_16bit_model",
    moment="not gathered",
    happens="Stage 3 writes no file: the method returns False, and the reason is a line in the log.",
    instead="set `stage3_gather_16bit_weights_on_model_save`.",
    cure="weights_file",
    variants=_HIGHER,
)
def weights_file_not_gathered(run: Run) -> None:
    """Without that setting, which is off by default.

    What is partitioned would be saved as placeholders, so ``save_16bit_model`` saves nothing
    (deepspeed/runtime/engine.py, 0.19.8).
    """
    run.saved(disk.file_of_16bit_model(run, _train_on(run, run.model(), hyper=_SGD)))


@case(
    kind="CONTROL",
    refs=["deepspeedai/DeepSpeed#3948", "deepspeedai/DeepSpeed#4999"],
    fixes=[Fix("deepspeed", "0.13.2", "deepspeedai/DeepSpeed#4999")],
    recipe="save_16bit_model",
    moment="exclude_frozen_parameters",
    happens="The file has what trained, and nothing else. DeepSpeed before 0.13.2 has no such option.",
    variants=_HIGHER,
)
def weights_without_frozen(run: Run) -> None:
    """Gathered, and cut down to what trains."""
    run.saved(disk.file_of_16bit_model(run, _trained(run), exclude_frozen_parameters=True), only=run.part("block"))


# -- universal checkpoints ---------------------------------------------------------------------

_CONVERTS = Fix("deepspeed", "0.14.5", "deepspeedai/DeepSpeed#5608")


@case(
    kind="CONTROL",
    recipe="ds_to_universal, load_universal",
    moment="into the same base",
    fixes=[_CONVERTS],
    happens="Training goes on as if it had not been interrupted. DeepSpeed before 0.14.5 converts no such checkpoint: "
    "it "
    f"wants what Megatron puts in at stages 1 and 2, and knows no stage 3. {_FROM_0_16}",
    variants=_SHARDED,
)
def universal_into_the_same_base(run: Run) -> None:
    """Convert a checkpoint of a partly frozen model, load it into the model as it was before training."""
    _resume_universal(run, run.model)


@case(
    kind="K",
    refs=["deepspeedai/DeepSpeed#6691"],
    recipe="ds_to_universal, load_universal",
    moment="into a model with other weights",
    happens="Silent: what trained comes back, frozen weights do not and stay those of the new model.",
    instead="load the frozen weights before the engine is made, from the base model or a file of weights; it wants "
    "DeepSpeed 0.14.5 or newer.",
    cure="universal_into_the_same_base",
    variants=_HIGHER,
)
def universal_into_another_base(run: Run) -> None:
    """Load it into a model that is initialised anew.

    With ``load_universal`` on, ``_load_checkpoint`` leaves the module's own state dict aside, and the optimizer
    restores what it holds; no one restores the rest (deepspeed/runtime/engine.py, 0.19.8).
    """
    _resume_universal(run, lambda: disk.another_model(run))


def _resume_universal(run: Run, build: Any) -> None:
    # AdamW: the converter looks for its two moments, whatever the optimizer.
    disk.save_checkpoint(run, _train_on(run, run.model()))
    disk.to_universal(run)
    engine = _engine(run, build(), "block", checkpoint={"load_universal": True})
    disk.resume(run, engine)
    run.train(engine, intent=run.part("block"))


@case(
    kind="K",
    refs=["deepspeedai/DeepSpeed#5430", "deepspeedai/DeepSpeed#5608"],
    recipe="ds_to_universal",
    moment="without --inject_missing_state",
    happens="Stage 2 raises: no universal_checkpoint_info. Stage 3 converts.",
    instead="convert with `--inject_missing_state`, which is there from DeepSpeed 0.14.5 on.",
    cure="universal_into_the_same_base",
    variants=_HIGHER,
)
def universal_without_injection(run: Run) -> None:
    """Convert a checkpoint of a model that is none of Megatron's.

    Frozen or not: the check is for what Megatron puts into its checkpoints
    (``_check_for_required_state`` in deepspeed/checkpoint/ds_to_universal.py, 0.19.8).
    """
    disk.save_checkpoint(run, _train_on(run, run.model()))
    disk.to_universal(run, inject_missing_state=False)


# -- models that save less than they have ------------------------------------------------------


def _with_frozen_copy(model: Any) -> Any:
    """A frozen copy of the head, as preference training keeps one, which the state dict leaves out."""
    import copy

    model.frozen_head = copy.deepcopy(model.head)
    return model


def _leave_out_copy(model: Any) -> None:
    whole = model.state_dict

    def state_dict(*arguments: Any, **settings: Any) -> Any:
        state = whole(*arguments, **settings)
        for key in [key for key in state if key.startswith("frozen_head.")]:
            del state[key]
        return state

    model.state_dict = state_dict


@case(
    kind="K",
    refs=["CarperAI/trlx#482"],
    recipe="a frozen copy that state_dict leaves out",
    moment="load_checkpoint, strictly",
    happens="Loading raises: the keys of the frozen copy are missing.",
    instead="load with `load_module_strict=False`; from stage 2 on the copy comes back all the same.",
    cure="frozen_copy_loose_load",
    variants=_HIGHER,
)
def frozen_copy_strict_load(run: Run) -> None:
    """A model with a frozen copy of its head, and a ``state_dict`` of its own that spares it.

    DeepSpeed saves the copy with the other frozen weights, and stops at the strict load before it gets to them
    (``load_module_state_dict`` in deepspeed/runtime/engine.py, 0.19.8).
    """
    _resume_with_copy(run, strict=True)


@case(
    kind="CONTROL",
    refs=["CarperAI/trlx#482"],
    recipe="a frozen copy that state_dict leaves out",
    moment="load_checkpoint, not strictly",
    happens=f"All comes back, the copy too, and training goes on. {_FROM_0_16}",
    variants=_HIGHER,
)
def frozen_copy_loose_load(run: Run) -> None:
    """A model with a frozen copy of its head that ``state_dict`` spares, loaded with ``load_module_strict=False``."""
    _resume_with_copy(run, strict=False)


def _resume_with_copy(run: Run, *, strict: bool) -> None:
    model = run.model(wrap=_with_frozen_copy)
    _leave_out_copy(model)
    disk.save_checkpoint(run, _train_on(run, model, hyper=_SGD))
    model = disk.another_model(run, wrap=_with_frozen_copy)
    _leave_out_copy(model)
    engine = _engine(run, model, "block")
    disk.resume(run, engine, load_module_strict=strict)
    run.train(engine, intent=run.part("block"))


# -- transformers, accelerate, the Trainer -----------------------------------------------------

_GATHER = {"zero_optimization": disk.GATHER}
_LLAMA = [Options(stage=2), Options(init="zero_init")]


@case(
    kind="K",
    recipe="model.save_pretrained",
    moment="nothing gathered",
    happens="Stage 3 is silent: the file has empty tensors for all that is partitioned, trained or frozen. What is "
    "under the persistence threshold is saved whole.",
    instead="give it the state dict that `accelerator.get_state_dict(engine)` returns.",
    cure="pretrained_from_accelerate",
    variants=[Options(), Options(persistence="default")],
    needs=("transformers",),
)
def pretrained_not_gathered(run: Run) -> None:
    """Unwrap the model and save it, as without ZeRO.

    Some write that it is the frozen weights which are lost.  It is not the flag that counts: ``state_dict`` has what
    is whole on this rank at the moment, and ZeRO-3 keeps small parameters whole
    (deepspeed/runtime/zero/parameter_offload.py, 0.19.8).
    """
    _save_not_gathered(run)


def _save_not_gathered(run: Run) -> None:
    engine = _trained(run)
    run.reach("saved")
    if run.rank == 0:
        engine.module.save_pretrained(run.folder / "model")
    run.saved(disk.weights_in(run, run.folder / "model"))


@case(
    kind="K",
    refs=["huggingface/transformers#27293", "huggingface/transformers#28630", "huggingface/transformers#29906"],
    fixes=[Fix("transformers", "4.40.0", "huggingface/transformers#29906")],
    recipe="model.save_pretrained",
    moment="nothing gathered, stages 1 and 2",
    happens="The file has all weights. Stage 3 is another matter (`pretrained_not_gathered`). transformers before "
    "4.40 is silent but for a warning, and saves one of those that train and none of the others.",
    instead="use transformers 4.40.0 or newer, or the state dict that `accelerator.get_state_dict(engine)` returns.",
    variants=[Options(stage=1), Options(stage=2)],
    needs=("transformers",),
)
def pretrained_at_lower_stages(run: Run) -> None:
    """Unwrap the model and save it, where there is nothing to gather.

    What trains are views of one flat buffer, which ZeRO-1 and ZeRO-2 make.  transformers took tensors of one storage
    for tied weights, and kept one of them (``save_pretrained`` in transformers/modeling_utils.py, 4.39.3).  Frozen
    weights have storage of their own.
    """
    _save_not_gathered(run)


@case(
    kind="CONTROL",
    recipe="model.save_pretrained",
    moment="from accelerator.get_state_dict",
    happens="The file has all weights, trained and frozen. transformers 5.1.0 makes no engine to gather from.",
    variants=_LLAMA,
    needs=("transformers", "accelerate"),
)
def pretrained_from_accelerate(run: Run) -> None:
    """All ranks ask accelerate for the state dict, rank 0 saves."""
    trainer = _trainer(run, config=_GATHER)
    run.reach("saved")
    state = trainer.accelerator.get_state_dict(trainer.model_wrapped)
    if run.rank == 0:
        trainer.model.save_pretrained(run.folder / "model", state_dict=state)
    run.saved(disk.weights_in(run, run.folder / "model"))


@case(
    kind="K",
    recipe="trainer.save_model",
    moment="not gathered",
    happens="Stage 3 writes no weights: what lies there is a checkpoint of DeepSpeed, and `from_pretrained` finds "
    "nothing to load.",
    instead="set `stage3_gather_16bit_weights_on_model_save`.",
    cure="trainer_saves_gathered",
    variants=[Options(stage=2), Options()],
    needs=("transformers", "accelerate"),
)
def trainer_saves_not_gathered(run: Run) -> None:
    """Train with the Trainer, with a JSON that does not ask for gathering, and save.

    accelerate refuses to give a state dict then, and the Trainer saves a checkpoint instead and says so in a warning
    (``save_model`` in transformers/trainer.py, 5.16.1).
    """
    _save_by_trainer(run, _trainer(run))


@case(
    kind="CONTROL",
    recipe="trainer.save_model",
    moment="gathered",
    happens="The file has all weights, trained and frozen. transformers 5.1.0 makes no engine to gather from.",
    variants=_LLAMA,
    needs=("transformers", "accelerate"),
)
def trainer_saves_gathered(run: Run) -> None:
    """With ``stage3_gather_16bit_weights_on_model_save``."""
    _save_by_trainer(run, _trainer(run, config=_GATHER))


def _save_by_trainer(run: Run, trainer: Any) -> None:
    run.reach("saved")
    trainer.save_model(str(run.folder / "model"))
    run.saved(disk.weights_in(run, run.folder / "model"))


#: Training arguments that leave a checkpoint after the last of two steps.
_SAVING = {"save_strategy": "steps", "save_steps": 2}


@case(
    kind="CONTROL",
    refs=["huggingface/transformers#11294", "huggingface/transformers#11318"],
    recipe="trainer.train(resume_from_checkpoint)",
    moment="frozen alike",
    happens="The given model stays, frozen as it is, and training goes on as if it had not been interrupted. "
    f"{_FROM_0_16}",
    variants=_LLAMA,
    needs=("transformers", "accelerate"),
)
def trainer_resumes(run: Run) -> None:
    """A second script builds, freezes and resumes as the first one left it."""
    _trainer(run, arguments=_SAVING, config=_GATHER)
    _trainer(run, resume=True)


@case(
    kind="K",
    refs=["huggingface/peft#1395", "huggingface/peft#1453", "huggingface/transformers#28746"],
    fixes=[Fix("transformers", "4.38.0", "huggingface/transformers#28746")],
    recipe="trainer.train(resume_from_checkpoint)",
    moment="LoRA",
    happens="Training goes on as if it had not been interrupted. transformers 4.37 raises on resuming: the keys of "
    "the frozen weights are missing.",
    instead="use transformers 4.38.0 or newer.",
    variants=_HIGHER,
    needs=("transformers", "accelerate", "peft"),
)
def trainer_resumes_adapter(run: Run) -> None:
    """A second script builds a model with LoRA adapters and resumes as the first one left it.

    For a PEFT model the Trainer leaves frozen weights out of the checkpoint from 4.37.0 on, and loads it not strictly
    from 4.38.0 on (``_save_optimizer_and_scheduler`` in transformers/trainer.py, 4.37.2 and 4.38.2).
    """
    adapted: dict[str, Any] = {"wrap": lora(run), "intent": "*lora_*"}
    train_with_trainer(run, **adapted, arguments=_SAVING, config=_GATHER)
    train_with_trainer(run, **adapted, resume=True)


def _trainer(run: Run, **settings: Any) -> Any:
    def freeze(model: Any) -> None:
        freeze_except(model, run.part("block"))

    return train_with_trainer(run, freeze=freeze, intent=run.part("block"), **settings)
