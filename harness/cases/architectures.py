"""The core recipes on the architectures that people fine-tune, loaded as people load them, with transformers' names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harness.cell import Options, case, freeze_all_then_unfreeze, freeze_except, unfreeze
from harness.cell._real_models import REAL
from harness.drivers.pretrained import loader

if TYPE_CHECKING:
    from harness.cell._run import Run

_STAGE_1: Final = [Options(model=one.name, stage=1) for one in REAL]
_STAGE_3: Final = [Options(model=one.name, init="zero_init") for one in REAL]


@case(
    kind="CONTROL",
    recipe="exclusion freezing, of each architecture",
    moment="before the engine",
    happens="Trains, whatever the parameters are called and whatever else the blocks hold.",
    variants=[*_STAGE_1, *_STAGE_3],
)
def architectures_freeze_except(run: Run) -> None:
    """Train one block of a Llama, Mistral, Qwen, Gemma, Phi, Mixtral, GPT-2, or of the language model of a Llava."""
    model = run.model(load=loader(run))
    freeze_except(model, run.part("block"))
    engine = run.engine(model)
    run.train(engine, intent=run.part("block"))


@case(
    kind="CONTROL",
    recipe="freeze all, unfreeze matches, of each architecture",
    moment="both before the engine",
    happens="Trains, as exclusion freezing does.",
    variants=_STAGE_3,
)
def architectures_literal_loop(run: Run) -> None:
    """The report's literal loop on each of them."""
    model = run.model(load=loader(run))
    freeze_all_then_unfreeze(model, run.part("block"))
    engine = run.engine(model)
    run.train(engine, intent=run.part("block"))


@case(
    kind="C",
    recipe="freeze part, engine, unfreeze more, of each architecture",
    moment="across the engine (naive unfreezing)",
    happens="Silent on each of them: what is unfrozen has a gradient of its rank's own, and never moves.",
    instead="unfreeze before the engine is created, or create a new engine after unfreezing.",
    cure="architectures_freeze_except",
    variants=_STAGE_3,
)
def architectures_unfreeze_more(run: Run) -> None:
    """Train one block, and unfreeze another once the engine exists."""
    model = run.model(load=loader(run))
    freeze_except(model, run.part("other block"))
    engine = run.engine(model)
    unfreeze(model, run.part("block"))
    run.train(engine, intent=(*run.part("other block"), *run.part("block")))
