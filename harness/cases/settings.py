"""The core recipes under every setting that a variant may have, one at a time: which of them change the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from harness.cell import Hyper, Options, case, freeze_except, unfreeze
from harness.drivers import train
from harness.drivers.dress import part

if TYPE_CHECKING:
    from harness.cell._run import Run

_SETTINGS: Final[Sequence[dict[str, Any]]] = (
    {},
    {"persistence": "default"},
    {"precision": "bf16"},
    {"checkpointing": "reentrant"},
    {"checkpointing": "non_reentrant"},
    {"offload": "cpu"},
    {"accumulation": 3},
    {"clipping": 0.05},
    {"overlap": "on"},
    {"overlap": "off"},
    {"gather_16bit": True},
    {"embeddings": "resized"},
    {"model": "tied_llama"},
    {"model": "tied_llama", "embeddings": "resized"},
)
_OF_STAGE_3: Final = ("persistence", "gather_16bit")

_AT_STAGE_2: Final = [Options(stage=2, **one) for one in _SETTINGS if not {*one} & {*_OF_STAGE_3}]
_AT_STAGE_3: Final = [Options(init="zero_init", **one) for one in _SETTINGS]


@case(
    kind="CONTROL",
    recipe="exclusion freezing, under each setting",
    moment="before the engine",
    happens="Trains under each: none of them decides who trains.",
    variants=[*_AT_STAGE_2, *_AT_STAGE_3],
)
def settings_freeze_except(run: Run) -> None:
    """Accumulation, clipping, bf16, checkpointing, offloading and so on, each by itself."""
    meant = part(run, "block")
    train(run, freeze=lambda model: freeze_except(model, meant), intent=meant)


@case(
    kind="C",
    recipe="freeze part, engine, unfreeze more, under each setting",
    moment="across the engine (naive unfreezing)",
    happens="Silent under each: what was in no optimizer group when the engine was made is in none, however gradients "
    "are clipped, summed up, reduced or kept.",
    instead="unfreeze before the engine is created, or create a new engine after unfreezing.",
    cure="settings_freeze_except",
    variants=_AT_STAGE_3,
)
def settings_unfreeze_more(run: Run) -> None:
    """One block trains, and another is unfrozen once the engine exists, under each setting by itself."""
    first, later = part(run, "other block"), part(run, "block")
    train(
        run,
        freeze=lambda model: freeze_except(model, first),
        after_engine=lambda model: unfreeze(model, later),
        intent=(*first, *later),
    )


@case(
    kind="D",
    recipe="exclusion freezing, under each setting",
    moment="after the engine, with weight decay",
    happens="What was frozen too late decays under each; in bf16 in its fp32 master first, which the weight follows.",
    instead="freeze before the engine is created.",
    cure="settings_freeze_except",
    variants=_AT_STAGE_3,
)
def settings_freeze_after(run: Run) -> None:
    """All trains when the engine is made, and all but a block is frozen then, under each setting by itself."""
    meant = part(run, "block")
    train(run, after_engine=lambda model: freeze_except(model, meant), intent=meant, hyper=Hyper(weight_decay=0.1))
