"""What a run means to train: every fault of saying so, before anything is measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from harness.cell._patterns import Patterns, as_patterns, nearest, select
from harness.cell.oracle._engine_facts import full_shape

__all__ = ["intended", "intent_faults"]


def intended(module: Any, intent: Patterns) -> frozenset[str]:
    """Names of the parameters that are meant to train."""
    return frozenset(select([name for name, _ in module.named_parameters()], intent))


def intent_faults(module: Any, intent: Patterns, rows: Mapping[str, slice]) -> Iterator[str]:
    """What makes no sense of it, for this model."""
    patterns = as_patterns(intent)
    names = [name for name, _ in module.named_parameters()]
    chosen = intended(module, intent)
    if not patterns:
        yield "no intent: name the parameters that are meant to train"
    for pattern in patterns:
        if not select(names, pattern):
            yield f"intent {pattern!r} matches no parameter; {nearest(pattern, names)}"
    yield from (f"rows of {name!r}: the intent does not name it" for name in rows if name not in chosen)
    whole = {name: full_shape(one) for name, one in module.named_parameters()}
    for name, meant in rows.items():
        if name in chosen and not range(*meant.indices(whole[name][0] if whole[name] else 0)):
            yield f"rows of {name!r}: {meant.start}:{meant.stop} is none of shape {whole[name]}"
    if dropping := sorted({type(one).__name__ for one in module.modules() if _drops_out(one)}):
        # The twin cannot draw the same mask, and every gradient would look wrong.
        yield f"the model drops out at random ({', '.join(dropping)}); build it with p=0"


def _drops_out(module: Any) -> bool:
    return "Dropout" in type(module).__name__ and bool(getattr(module, "p", 0)) and module.training
