"""The space that is explored, and the combinations that are chosen from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from harness.cell import Options
from harness.explore._design import covering
from harness.explore.names import HYPERS, MOMENTS, RECIPES

__all__ = ["AXES", "choose"]

AXES: Final[Mapping[str, tuple[Any, ...]]] = {
    "recipe": RECIPES,
    "moment": MOMENTS,
    "optimizer": tuple(HYPERS),
    "model": ("tiny_llama", "tied_llama", "mlp"),
    "stage": (0, 1, 2, 3),
    "init": ("plain", "zero_init"),
    "persistence": ("zero", "default"),
    "precision": ("fp32", "bf16"),
    "checkpointing": ("none", "reentrant", "non_reentrant"),
    "offload": ("none", "cpu"),
    "accumulation": (1, 2),
    "clipping": (0.0, 0.05),
}
_OF_A_VARIANT: Final = [*AXES][3:]


def choose(*, strength: int, seed: int) -> list[str]:
    """Combinations, by their names, that hold every choice of values of any ``strength`` axes."""
    return [_name(one) for one in covering(AXES, strength=strength, seed=seed, allowed=_makes_sense)]


def _name(one: Mapping[str, Any]) -> str:
    variant = Options(**{axis: one[axis] for axis in _OF_A_VARIANT})
    return f"{one['recipe']}__{one['moment']}__{one['optimizer']}[{variant.id}]"


def _makes_sense(one: Mapping[str, Any]) -> bool:
    """``zero.Init`` and the threshold are settings of stage 3, offloading is one of ZeRO."""
    if one["stage"] == 0 and one["offload"] != "none":
        return False
    return one["stage"] == 3 or (one["init"], one["persistence"]) == ("plain", "zero")
