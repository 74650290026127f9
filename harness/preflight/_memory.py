"""How much the optimizer of a plan holds on each rank; arithmetic, nothing measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from harness.preflight._plan import Plan

__all__ = ["bytes_text", "count_text", "optimizer_bytes"]

#: Elements that an optimizer keeps for each one that it steps.
_STATES: Final[Mapping[str, int]] = {"sgd": 0, "lion": 1, "adagrad": 1, "adamw": 2, "adam": 2}


def optimizer_bytes(plan: Plan, trained: int, world: int) -> int:
    """fp32 masters where weights are of 16 bits, and states in fp32; shared out among ranks from stage 1 on."""
    name = plan.optimizer.lower()
    states = next((count for key, count in _STATES.items() if name.startswith(key)), 2)
    per_element = 4 * states + (4 if plan.precision != "fp32" else 0)
    stage = plan.deepspeed.stage if plan.deepspeed else 0
    return per_element * trained // (world if stage else 1)


def count_text(count: int) -> str:
    """As people say it: 70.6 B, 524 M, 4,096."""
    for size, letter in ((1_000_000_000, "B"), (1_000_000, "M")):
        if count >= size:
            return f"{count / size:.3g} {letter}"
    return f"{count:,}"


def bytes_text(count: float) -> str:
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:g} B"
