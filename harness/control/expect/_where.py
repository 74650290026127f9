"""From a set of variants to settings that say just that set."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from harness.cell._options import Options

__all__ = ["covers"]

_AXES = tuple(one.name for one in dataclasses.fields(Options))

#: So many choices of values are tried one by one.
_MANY: Final = 5000

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
            _products(left, every, fits) if _choices(every) <= _MANY else _grown(left, every, fits),
            key=lambda one: (len(one[1]), -len(one[0]), -sum(map(len, one[0].values()))),
        )
        found.append((where, members))
        left = [one for one in left if one not in members]
    return found


def _values(every: Sequence[Options]) -> dict[str, list[Any]]:
    """Of each axis that tells variants apart."""
    values = {axis: list(dict.fromkeys(getattr(one, axis) for one in every)) for axis in _AXES}
    return {axis: some for axis, some in values.items() if len(some) > 1}


def _choices(every: Sequence[Options]) -> int:
    """How many there would be to try."""
    return math.prod(2 ** len(some) - 1 for some in _values(every).values())


def _grown(
    left: Sequence[Options], every: Sequence[Options], fits: Callable[[Sequence[Options]], bool]
) -> Iterator[tuple[Where, list[Options]]]:
    """From each that is left, values added as long as nothing comes in that must not."""
    values = _values(every)
    for seed in left:
        wanted = {axis: {getattr(seed, axis)} for axis in values}
        # What brings members first, then what lets an axis go unsaid.
        for rounds in (True, False):
            while grown := _best_growth(wanted, left, every, values, fits, more=rounds):
                wanted = grown
        members = _members(wanted, every)
        yield (
            {
                axis: tuple(one for one in values[axis] if one in some)
                for axis, some in wanted.items()
                if len(some) < len(values[axis])
            },
            members,
        )


def _best_growth(
    wanted: Mapping[str, set[Any]],
    left: Sequence[Options],
    every: Sequence[Options],
    values: Mapping[str, list[Any]],
    fits: Callable[[Sequence[Options]], bool],
    *,
    more: bool,
) -> dict[str, set[Any]] | None:
    """One value more on one axis: that which brings most members or, unless ``more``, one that brings none."""
    now = len(_members(wanted, every))
    best: tuple[int, dict[str, set[Any]]] | None = None
    for axis, some in values.items():
        for value in some:
            if value in wanted[axis]:
                continue
            candidate = {**wanted, axis: {*wanted[axis], value}}
            members = _members(candidate, every)
            if (len(members) > now) != more or not all(one in left for one in members) or not fits(members):
                continue
            if best is None or len(members) > best[0]:
                best = len(members), candidate
    return best and best[1]


def _members(wanted: Mapping[str, set[Any]], every: Sequence[Options]) -> list[Options]:
    return [one for one in every if all(getattr(one, axis) in some for axis, some in wanted.items())]


def _products(
    left: Sequence[Options], every: Sequence[Options], fits: Callable[[Sequence[Options]], bool]
) -> Iterator[tuple[Where, list[Options]]]:
    """Every choice of values that holds for some that are left, and for no other."""
    values = _values(every)
    axes = [*values]
    for choice in itertools.product(*(_subsets(values[axis]) for axis in axes)):
        wanted = dict(zip(axes, choice, strict=True))
        members = [one for one in every if all(getattr(one, axis) in wanted[axis] for axis in axes)]
        if members and all(one in left for one in members) and fits(members):
            yield {axis: some for axis, some in wanted.items() if len(some) < len(values[axis])}, members


def _subsets(values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Without the empty one."""
    return [some for size in range(len(values), 0, -1) for some in itertools.combinations(values, size)]
