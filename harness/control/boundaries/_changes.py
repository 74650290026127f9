"""Changes of what a case does between neighbours on an axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from packaging.version import Version

from harness.cell._case import Case
from harness.cell._options import Options
from harness.cell.outcome._observed import Observed, Outcome
from harness.control.boundaries._axis import Axis
from harness.control.boundaries._did import Did

__all__ = ["Change", "changes_along", "measured_along"]


#: By variant: places on the axis, counted from 0, and what it did there.
Places = dict[Options, list[tuple[int, Outcome]]]


@dataclass(frozen=True)
class Change:
    """One variant did one thing up to a release, and another from one on."""

    options: Options
    axis: Axis
    #: the last release that did as before, and the first that does not: those that were measured
    last: Version
    first: Version
    before: Outcome
    after: Outcome
    #: releases of the axis between the two, of which nothing is known
    unknown: tuple[Version, ...]


def measured_along(
    case: Case, axis: Axis, observed: Mapping[str, Observed]
) -> dict[Options, list[tuple[int, Outcome]]]:
    """By variant: its places on the axis, with what it did there."""
    found: Places = {}
    for place, stack in enumerate(axis.stacks):
        for outcome in observed[stack.name].outcomes if stack.name in observed else ():
            if outcome.case == case.name and Did.of(outcome) is not None:
                for options in outcome.variants:
                    found.setdefault(options, []).append((place, outcome))
    return found


def changes_along(case: Case, axis: Axis, observed: Mapping[str, Observed]) -> Iterator[Change]:
    """Every change of every variant."""
    for options, places in measured_along(case, axis, observed).items():
        for (place, before), (next_place, after) in pairwise(places):
            if Did.of(before) != Did.of(after):
                between = tuple(Version(one.at) for one in axis.stacks[place + 1 : next_place])
                last, first = Version(axis.stacks[place].at), Version(axis.stacks[next_place].at)
                yield Change(options, axis, last, first, before, after, between)
