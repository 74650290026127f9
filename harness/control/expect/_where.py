"""From a set of variants to settings that say just that set."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from harness.cell._options import Options

__all__ = ["covers"]

_AXES = tuple(one.name for one in dataclasses.fields(Options))

Where = Mapping[str, tuple[Any, ...]]


def covers(
    chosen: Collection[Options],
    every: Sequence[Options],
    fits: Callable[[Sequence[Options]], bool] = lambda _: True,
) -> list[tuple[Where, list[Options]]]:
    """Settings that together hold for each chosen variant once and for no other variant of the case.

    :param every: all variants of the case.
    :param fits: whether some variants may go together.
    """
    left = [one for one in every if one in chosen]
    found = []
    while left:
        # The largest first: few entries; of equals the one that says least.
        where, members = max(
            _products(left, every, fits),
            key=lambda one: (len(one[1]), -len(one[0]), -sum(map(len, one[0].values()))),
        )
        found.append((where, members))
        left = [one for one in left if one not in members]
    return found


def _products(
    left: Sequence[Options], every: Sequence[Options], fits: Callable[[Sequence[Options]], bool]
) -> Iterator[tuple[Where, list[Options]]]:
    """Every choice of values that holds for some that are left, and for no other."""
    values = {axis: list(dict.fromkeys(getattr(one, axis) for one in every)) for axis in _AXES}
    axes = [axis for axis in _AXES if len(values[axis]) > 1]
    for choice in itertools.product(*(_subsets(values[axis]) for axis in axes)):
        wanted = dict(zip(axes, choice, strict=True))
        members = [one for one in every if all(getattr(one, axis) in wanted[axis] for axis in axes)]
        if members and all(one in left for one in members) and fits(members):
            yield {axis: some for axis, some in wanted.items() if len(some) < len(values[axis])}, members


def _subsets(values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Without the empty one."""
    return [some for size in range(len(values), 0, -1) for some in itertools.combinations(values, size)]
