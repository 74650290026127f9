"""Whether a fix that is documented upstream is where verdicts change."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from packaging.version import Version

from harness.cell._case import Case, Fix
from harness.cell.outcome._observed import Observed
from harness.cell.outcome._verdict import Verdict
from harness.control.boundaries._axis import axes_of
from harness.control.boundaries._changes import Change, changes_along, measured_along
from harness.control.stacks import Stack

__all__ = ["Agreement", "Finding", "check_fix"]


class Agreement(enum.Enum):
    """Of what is documented with what was measured; the value is for tables."""

    value: str
    EQUAL = "changes there"
    WITHIN = "changes around there"
    ELSEWHERE = "changes elsewhere"
    NOWHERE = "does not change"
    UNMEASURED = "not measured on both sides"


@dataclass(frozen=True)
class Finding:
    """What was measured of one fix."""

    case: Case
    fix: Fix
    agreement: Agreement
    #: at the fix where there is one, else all
    changes: tuple[Change, ...]


def check_fix(case: Case, fix: Fix, stacks: Collection[Stack], observed: Mapping[str, Observed]) -> Finding:
    """Hold the release that is said to have a fix against the axes along which its package moves."""
    release = Version(fix.release)
    axes = axes_of(stacks, fix.package)
    changes = [
        change
        for axis in axes
        for change in changes_along(case, axis, observed)
        if change.before.verdict is not Verdict.TRAINS  # else it is no fix
    ]
    there = [one for one in changes if one.last < release <= one.first]
    exact = [one for one in there if one.first == release and not one.unknown]
    if there:
        agreement = Agreement.EQUAL if exact else Agreement.WITHIN
        return Finding(case, fix, agreement, tuple(exact or there))
    around = False
    for axis in axes:
        for places in measured_along(case, axis, observed).values():
            ends = [Version(axis.stacks[place].at) for place, _ in (places[0], places[-1])]
            around = around or ends[0] < release <= ends[1]
    if not around:
        return Finding(case, fix, Agreement.UNMEASURED, ())
    return Finding(case, fix, Agreement.ELSEWHERE if changes else Agreement.NOWHERE, tuple(changes))
