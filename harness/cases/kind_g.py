"""Kind G: adapters that are saved empty or unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.cell import Fix, Hyper, Options, case
from harness.drivers.adapters import lora, reloaded
from harness.drivers.disk import GATHER, gathered_state
from harness.drivers.trainer import train_with_trainer

if TYPE_CHECKING:
    from harness.cell._run import Run

_LORA = "*lora_*"
#: Not Adam, with which DeepSpeed before 0.13.2 takes a step too many.
_SGD = Hyper(optimizer="SGD", lr=0.1, weight_decay=0.0)

_HIGHER = [Options(model="mlp", stage=2), Options(model="mlp"), Options(model="mlp", init="zero_init")]


def _trained_adapter(run: Run, **settings: Any) -> Any:
    """An engine after two steps of LoRA, and of what else the settings have trained."""
    model = run.model(wrap=lora(run, **settings))
    engine = run.engine(model, hyper=_SGD, zero_optimization=GATHER)
    run.train(engine, intent=(_LORA, "*modules_to_save*") if settings else _LORA)
    return engine


def _save_gathered(run: Run, engine: Any) -> None:
    state = gathered_state(run, engine)
    if run.rank == 0:
        engine.module.save_pretrained(str(run.folder / "adapter"), state_dict=state)


@case(
    kind="G",
    refs=[
        "huggingface/peft#453",
        "huggingface/peft#460",
        "huggingface/peft#1328",
        "huggingface/peft#1443",
        "huggingface/peft#1710",
        "huggingface/peft#2071",
        "deepspeedai/DeepSpeed#4295",
        "hiyouga/LlamaFactory#446",
    ],
    recipe="LoRA, then model.save_pretrained",
    moment="nothing gathered",
    happens="The file is written without complaint, with empty tensors in it; loading it raises a size mismatch with "
    "torch.Size([0]). What is under the persistence threshold is saved whole, so small adapters come through.",
    instead="gather first: give `save_pretrained` the state dict that `accelerator.get_state_dict(engine)` returns.",
    cure="adapter_saved_from_gathered_state",
    variants=[*_HIGHER, Options(model="mlp", persistence="default")],
    needs=("peft",),
)
def adapter_saved_without_gathering(run: Run) -> None:
    """Train LoRA adapters and save them as in PEFT's quick tour.

    ``PeftModel.save_pretrained`` takes what ``model.state_dict()`` gives (peft/peft_model.py and
    peft/utils/save_and_load.py, 0.21.2), and under ZeRO-3 that is a placeholder of no elements for every
    parameter that is partitioned at the moment.  DeepSpeed leaves those whole that have fewer elements than
    ``stage3_param_persistence_threshold``: a report that says rank 8 loads and rank 16 does not (peft#2071)
    has one rank on either side of it.
    """
    engine = _trained_adapter(run)
    run.reach("saved")
    engine.module.save_pretrained(str(run.folder / "adapter"), is_main_process=run.rank == 0)
    run.saved(reloaded(run, run.folder / "adapter"), only=_LORA)


@case(
    kind="CONTROL",
    recipe="LoRA, then model.save_pretrained",
    moment="from a gathered state dict",
    happens="What is loaded into a fresh base model is what was trained. PEFT 0.19.1 cannot load it beside "
    "transformers 4.57.6, of which it imports what came later.",
    variants=_HIGHER,
    needs=("peft",),
)
def adapter_saved_from_gathered_state(run: Run) -> None:
    """All ranks gather, rank 0 saves: what ``accelerator.get_state_dict`` does, and the Trainer."""
    engine = _trained_adapter(run)
    _save_gathered(run, engine)
    run.saved(reloaded(run, run.folder / "adapter"), only=_LORA)


@case(
    kind="G",
    refs=["huggingface/peft#1450"],
    fixes=[Fix("peft", "0.9.0", "huggingface/peft#1450")],
    recipe="LoRA with modules_to_save",
    moment="after zero.Init",
    happens="The head trains as PEFT's copy of it, and comes back. PEFT before 0.9.0 copies a partitioned head's "
    "placeholders, and the first forward fails over a parameter without elements.",
    instead="use PEFT 0.9.0 or newer.",
    variants=_HIGHER,
    needs=("peft",),
)
def modules_to_save_after_zero_init(run: Run) -> None:
    """The head is trained whole, beside the adapters.

    PEFT copies the module, and gathers what is partitioned while it does so (``ModulesToSaveWrapper`` in
    peft/utils/other.py, 0.21.2).
    """
    engine = _trained_adapter(run, modules_to_save=["head"])
    _save_gathered(run, engine)
    run.saved(reloaded(run, run.folder / "adapter"), only=(_LORA, "*modules_to_save*"))


class _Inside:
    """For ``run.model(wrap=...)``: the adapted model as a part of a larger one, as with a vision model around it."""

    def __init__(self, adapt: Any) -> None:
        self._adapt = adapt

    def __call__(self, model: Any) -> Any:
        from torch import nn

        class Outer(nn.Module):
            def __init__(self, inner: Any) -> None:
                super().__init__()
                self.language_model = inner

            def forward(self, **inputs: Any) -> Any:
                return self.language_model(**inputs)

        return Outer(self._adapt(model))


@case(
    kind="G",
    refs=["OpenGVLab/InternVL#905"],
    recipe="LoRA on a part of a larger model",
    moment="saved from the larger model's state dict",
    happens="Silent but for a warning about missing keys: the adapter that comes back is a fresh one, with zeros for "
    "lora_B, since its names in the file begin with the part's name.",
    instead="cut the names in the state dict down to those that the part itself has.",
    cure="adapter_of_a_part_by_its_own_names",
    variants=_HIGHER,
    needs=("peft",),
)
def adapter_of_a_part_by_outer_names(run: Run) -> None:
    """A larger model holds the adapted one; its gathered state dict is what the adapter is saved from.

    PEFT picks adapter weights from a given state dict by ``lora_`` in their names, writes them as they are called
    there (``get_peft_model_state_dict`` in peft/utils/save_and_load.py, 0.21.2), and loads not strictly.
    """
    _save_part(run, cut=False)


@case(
    kind="CONTROL",
    refs=["OpenGVLab/InternVL#905"],
    recipe="LoRA on a part of a larger model",
    moment="saved under the part's own names",
    happens="What is loaded into a fresh base model is what was trained. PEFT 0.19.1 cannot load it beside "
    "transformers 4.57.6, of which it imports what came later.",
    variants=_HIGHER,
    needs=("peft",),
)
def adapter_of_a_part_by_its_own_names(run: Run) -> None:
    """A larger model holds the adapted one; its gathered state dict is cut down to the part's own names."""
    _save_part(run, cut=True)


def _save_part(run: Run, *, cut: bool) -> None:
    engine = run.engine(run.model(wrap=_Inside(lora(run))), hyper=_SGD, zero_optimization=GATHER)
    run.train(engine, intent=_LORA)
    state = gathered_state(run, engine)
    if run.rank == 0:
        own = {key.removeprefix("language_model."): one for key, one in state.items()}
        engine.module.language_model.save_pretrained(str(run.folder / "adapter"), state_dict=own if cut else state)
    back = reloaded(run, run.folder / "adapter")
    run.saved({f"language_model.{name}": one for name, one in back.items()}, only=_LORA)


@case(
    kind="CONTROL",
    refs=["huggingface/peft#1402"],
    recipe="LoRA through the Trainer",
    moment="trainer.save_model",
    happens="What is loaded into a fresh base model is what was trained; the zeros of the report were not seen.",
    variants=[Options(model="mlp"), Options(init="zero_init")],
    needs=("transformers", "accelerate", "peft"),
)
def adapter_saved_by_the_trainer(run: Run) -> None:
    """The Trainer gathers before it saves, where the JSON lets it."""
    trainer = train_with_trainer(run, wrap=lora(run), intent=_LORA, config={"zero_optimization": GATHER})
    run.reach("saved")
    trainer.save_model(str(run.folder / "adapter"))
    run.saved(reloaded(run, run.folder / "adapter"), only=_LORA)
