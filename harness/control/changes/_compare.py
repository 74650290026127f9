"""Verdicts that changed, gathered by case and by the package that moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harness.cell.outcome._expect import Expectations, differences
from harness.cell.outcome._nearby import apart, nearness, outcome_text, versions_in_order
from harness.cell.outcome._observed import Observed
from harness.control.changes._told import told
from harness.control.stacks import Stack
from harness.control.stacks._stack import normalize

__all__ = ["EVERY_CASE", "Change", "Item", "Shift", "compare"]

#: In the place of a case, where a whole stack can or cannot be solved any more.
EVERY_CASE: Final = "every case"

Observations = Mapping[str, Observed]


@dataclass(frozen=True)
class Shift:
    """Variants whose verdict changed alike."""

    variants: tuple[str, ...]
    #: empty where there was none
    before: str
    after: str
    #: what was expected instead; empty where it is as expected
    expected: str


@dataclass(frozen=True)
class Change:
    """What changed in one case on one stack."""

    stack: str
    #: the stack that it is compared with; empty where there was none
    compared: str
    #: of the packages that moved
    versions_before: Mapping[str, str]
    versions_after: Mapping[str, str]
    shifts: tuple[Shift, ...]


@dataclass(frozen=True)
class Item:
    """All changes of one case where one package moved."""

    case: str
    package: str
    changes: tuple[Change, ...]


def compare(
    new: Observations, old: Observations, stacks: Mapping[str, Stack], expectations: Expectations
) -> list[Item]:
    """By case, then package.

    A stack that was not observed before is compared with the nearest that was.  What was never observed counts
    where it is not as expected.

    :raises ExpectationError: where two expectations apply.
    """
    found: dict[tuple[str, str], list[Change]] = {}
    for name, after in sorted(new.items()):
        before = _counterpart(after, old)
        # Of a stack that cannot be solved no versions are known.
        moved = apart(before.versions, after.versions) if before and before.versions and after.versions else []
        packages = _packages(after, before, moved, stacks.get(name))
        for case, shifts in _shifts(after, before, expectations).items():
            change = Change(
                name,
                before.stack if before else "",
                {one: before.versions[one] for one in moved if before and one in before.versions},
                {one: after.versions[one] for one in moved if one in after.versions},
                tuple(shifts),
            )
            for package in packages:
                found.setdefault((case, package), []).append(change)
    return [Item(case, package, tuple(changes)) for (case, package), changes in sorted(found.items())]


def _counterpart(after: Observed, old: Observations) -> Observed | None:
    """The same stack as it was, or else the nearest."""
    same = old.get(after.stack)
    if same is not None and same.device == after.device:
        return same
    others = [one for one in old.values() if one.device == after.device and not one.unsolvable]
    if after.unsolvable or not others:
        return None
    order = versions_in_order(one.versions for one in [after, *others])
    return min(others, key=lambda one: (nearness(after.versions, one.versions, order), one.stack))


def _packages(after: Observed, before: Observed | None, moved: Sequence[str], stack: Stack | None) -> list[str]:
    """What the change goes by: the axis of the stack's sweep where it moved, or else all that moved."""
    axis = normalize(stack.moves) if stack else ""
    if axis in moved or (axis and not moved and (before is None or after.unsolvable or before.unsolvable)):
        return [axis]
    if before is not None and before.stack != after.stack and len(moved) > 1:
        return [f"the stack {after.stack}"]  # far from all that was observed: no package stands for that
    if moved:
        return [one for one in moved if one != "pytest"] or list(moved)
    if before is None or bool(before.unsolvable) != bool(after.unsolvable):
        return [f"the stack {after.stack}"]
    return ["thawcheck" if before.harness != after.harness else "nothing that moved"]


def _shifts(after: Observed, before: Observed | None, expectations: Expectations) -> dict[str, list[Shift]]:
    found: dict[str, list[Shift]] = {}
    if before is not None and before.stack == after.stack and bool(before.unsolvable) != bool(after.unsolvable):
        found[EVERY_CASE] = [Shift((), _solved(before), _solved(after), "")]
    elif after.unsolvable and before is None:
        found[EVERY_CASE] = [Shift((), "", _solved(after), "")]
    known = before.key() if before else {}
    alike: dict[tuple[str, str, str, str], list[str]] = {}
    for outcome in after.outcomes:
        for options in outcome.variants:
            was = known.get((outcome.case, options.id))
            if was is not None and told(was, whole=True) == told(outcome, whole=True):
                continue
            record = after.record(outcome, options)
            entry = expectations.of(record)
            expected = ""
            if differences(record, entry):
                expected = outcome_text(entry.verdict, entry.moment, entry.type, entry.parameters)
            elif was is None:
                continue
            key = (outcome.case, told(was) if was else "", told(outcome), expected)
            alike.setdefault(key, []).append(options.id)
    for (case, before_text, after_text, expected), variants in alike.items():
        found.setdefault(case, []).append(Shift(tuple(variants), before_text, after_text, expected))
    return found


def _solved(one: Observed) -> str:
    return f"UNSOLVABLE: {one.unsolvable}" if one.unsolvable else "solved"
