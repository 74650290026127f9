"""The core recipes, each by every way to the engine: a plain loop, accelerate, the Trainer, TRL; and around LoRA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harness.cell import Hyper, Options, case, freeze_all, freeze_all_then_unfreeze, freeze_except, unfreeze
from harness.drivers import train
from harness.drivers.dress import beside, part

if TYPE_CHECKING:
    from harness.cell._run import Run

_DRIVERS: Final = ("engine", "accelerate", "trainer", "sft_trainer")

#: Each way at stage 1, and at stage 3 as people load a model there.
_WAYS: Final = [
    Options(stage=stage, init="zero_init" if stage == 3 else "plain", driver=driver)
    for driver in _DRIVERS
    for stage in (1, 3)
]

#: LoRA by those of them that go with any model.
_LORA: Final = [
    Options(init="zero_init", driver=driver, adapters="lora") for driver in ("engine", "accelerate", "trainer")
]


@case(
    kind="CONTROL",
    recipe="exclusion freezing",
    moment="before the engine, by every driver",
    happens="Trains, whoever makes the engine; but LoRA by the Trainer of transformers before 5.1 raises on torch 2.10 "
    "and later, as trainer_with_lora tells.",
    variants=[
        *_WAYS,
        *_LORA,
        Options(stage=1, adapters="lora_head"),
        Options(init="zero_init", adapters="lora_head"),
        Options(stage=1, adapters="lora_tokens"),
        Options(stage=1, adapters="lora_tokens", driver="trainer"),
    ],
)
def frozen_before_any_driver(run: Run) -> None:
    """Freeze what must not train, then hand the model on."""
    meant = (*part(run, "block"), *beside(run))
    train(run, freeze=lambda model: freeze_except(model, meant), intent=meant)


@case(
    kind="CONTROL",
    recipe="freeze all, unfreeze matches",
    moment="both before the engine, by every driver",
    happens="Trains, as exclusion freezing does, whoever makes the engine.",
    variants=[*_WAYS, *_LORA],
)
def literal_loop_before_any_driver(run: Run) -> None:
    """The report's literal loop, then hand the model on."""
    meant = part(run, "block")
    train(run, freeze=lambda model: freeze_all_then_unfreeze(model, meant), intent=meant)


@case(
    kind="C",
    recipe="freeze part, engine, unfreeze more",
    moment="across the engine, by every driver",
    happens="Silent, whoever made the engine: what is unfrozen afterwards has a gradient, and never moves.",
    instead="unfreeze before the engine is created, or create a new engine after unfreezing.",
    cure="frozen_before_any_driver",
    variants=[*_WAYS, *_LORA],
)
def unfreeze_more_after_any_driver(run: Run) -> None:
    """Train one block, and unfreeze another once the engine exists."""
    first, later = part(run, "other block"), part(run, "block")
    train(
        run,
        freeze=lambda model: freeze_except(model, first),
        after_engine=lambda model: unfreeze(model, later),
        intent=(*first, *later),
    )


@case(
    kind="D",
    recipe="exclusion freezing",
    moment="after the engine, with weight decay, by every driver",
    happens="What was asked for trains, and what was frozen too late shrinks, whoever made the engine.",
    instead="freeze before the engine is created.",
    cure="frozen_before_any_driver",
    variants=[*_WAYS, *_LORA],
)
def frozen_after_any_driver(run: Run) -> None:
    """All trainable, or all adapters, when the engine is created, then frozen; AdamW decays."""
    meant = part(run, "block")
    train(
        run,
        after_engine=lambda model: freeze_except(model, meant),
        intent=meant,
        hyper=Hyper(weight_decay=0.1),
    )


@case(
    kind="A",
    recipe="freeze all, engine, unfreeze",
    moment="across the engine, by every driver",
    happens="The engine cannot be created, whoever is to: no parameter is left to train.",
    instead="set every flag before the engine is created.",
    cure="frozen_before_any_driver",
    variants=[*_WAYS, *_LORA],
)
def nothing_trains_by_any_driver(run: Run) -> None:
    """Everything is frozen when the engine is created, and some of it unfrozen afterwards."""
    meant = part(run, "block")
    train(run, freeze=freeze_all, after_engine=lambda model: unfreeze(model, meant), intent=meant)
