"""From points to entries: as few as say all that was observed, and no more than that on the variants of a case."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from packaging.version import Version

from harness.cell._case import Case
from harness.cell._options import Options
from harness.cell.outcome._expect import Expectation
from harness.cell.outcome._expect_faults import ABSENT
from harness.cell.outcome._observed import Outcome
from harness.cell.outcome._verdict import PRECEDENCE, Verdict
from harness.control.expect._message import beginning, pattern_of
from harness.control.expect._names import patterns_for
from harness.control.expect._points import PACKAGES, Measured, Point, World
from harness.control.expect._tree import Box, Grower
from harness.control.expect._where import covers

__all__ = ["Conflict", "Draft", "same", "shrink"]


@dataclass(frozen=True)
class Conflict:
    """Stacks of the same versions that differ: chance, or a cause that is not recorded."""

    case: str
    options: Options
    #: verdict, in words -> stacks
    found: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Draft:
    """An entry before it has a note, and what it was made of."""

    entry: Expectation
    box: Box
    variants: tuple[Options, ...]
    points: tuple[Point, ...]


def shrink(case: Case, world: World, measured: Measured, grower: Grower) -> tuple[list[Draft], list[Conflict]]:
    """The entries of one case, in the order of its stages."""
    #: variants that did the same on the same versions, with their points there
    groups: dict[tuple[Box, Hashable], dict[Options, tuple[Point, ...]]] = {}
    conflicts: list[Conflict] = []
    for options, points in measured.points[case.name, world].items():
        clear, found = _without_conflicts(case.name, options, points)
        needs = (*case.needs, *options.needs)
        conflicts += found
        for leaf in grower.grow(clear, lambda point: same(point.outcome), _is_plain, needs):
            outcome = leaf.points[0].outcome
            if not _is_plain(leaf.points[0]):
                groups.setdefault((leaf.box, _kind(outcome)), {})[options] = leaf.points
    drafts = [
        _draft(case, box, where, {one: points_of[one] for one in members}, measured)
        for (box, _), points_of in groups.items()
        for where, members in covers(points_of, case.variants, partial(_may_share, points_of, measured.names))
    ]
    return sorted(drafts, key=lambda draft: _order(case, draft)), conflicts


def _is_plain(point: Point) -> bool:
    """Whether it needs no entry."""
    return point.outcome.verdict is Verdict.TRAINS


def same(outcome: Outcome) -> Hashable:
    """Equal for outcomes of one variant that one entry describes."""
    names = frozenset((verdict, frozenset(some)) for verdict, some in outcome.parameters.items())
    return _kind(outcome), names


def _kind(outcome: Outcome) -> Hashable:
    """The same without names of parameters, which differ between models."""
    told: tuple[str, ...] = ()
    if failure := outcome.failure:
        told = {
            Verdict.RAISES: (failure.moment, failure.type, beginning(failure.message)),
            # By which signal is luck: gloo writes past a buffer, and is aborted for it or not.
            Verdict.CRASH: (failure.moment,),
            Verdict.HANG: (failure.moment,),
        }.get(outcome.verdict, (beginning(failure.message),))
    return outcome.verdict, told, frozenset(outcome.parameters)


def _without_conflicts(case: str, options: Options, points: Sequence[Point]) -> tuple[list[Point], list[Conflict]]:
    """Those that rules can explain, and those that none can."""
    by_place: dict[object, list[Point]] = {}
    for point in points:
        by_place.setdefault(point.place, []).append(point)
    clear, conflicts = [], []
    for there in by_place.values():
        by_outcome: dict[Hashable, list[Point]] = {}
        for point in there:
            by_outcome.setdefault(same(point.outcome), []).append(point)
        if len(by_outcome) == 1:
            clear += there
            continue
        found: dict[str, tuple[str, ...]] = {}
        for some in by_outcome.values():
            said = _said(some[0].outcome)
            found[said] = (*found.get(said, ()), *(point.stack for point in some))
        conflicts.append(Conflict(case, options, found))
    return clear, conflicts


def _said(outcome: Outcome) -> str:
    if outcome.failure:
        return f"{outcome.verdict} at {outcome.failure.moment!r}: {outcome.failure.type}: {outcome.failure.message}"
    names = [f"{verdict} of {', '.join(some)}" for verdict, some in outcome.parameters.items()]
    return "; ".join(names) or str(outcome.verdict)


def _may_share(
    points: Mapping[Options, Sequence[Point]], names: Mapping[str, set[str]], some: Sequence[Options]
) -> bool:
    """Whether patterns can select the faulty parameters of each, and no other."""
    by_model: dict[str, Mapping[Verdict, tuple[str, ...]]] = {}
    for options in some:
        parameters = points[options][0].outcome.parameters
        if by_model.setdefault(options.model, parameters) != parameters:
            return False
    for verdict in {one for parameters in by_model.values() for one in parameters}:
        wanted = {name for parameters in by_model.values() for name in parameters.get(verdict, ())}
        for model, parameters in by_model.items():
            if wanted & names.get(model, set()) != {*parameters.get(verdict, ())}:
                return False
    return True


def _draft(
    case: Case,
    box: Box,
    where: Mapping[str, tuple[Any, ...]],
    points: Mapping[Options, Sequence[Point]],
    measured: Measured,
) -> Draft:
    every = [point for some in points.values() for point in some]
    outcome = every[0].outcome
    known = {name for model in {options.model for options in points} for name in measured.names.get(model, ())}
    faulty: dict[Verdict, tuple[str, ...]] = {}
    for verdict in PRECEDENCE:
        if verdict in outcome.parameters:
            wanted = {name for point in every for name in point.outcome.parameters[verdict]}
            # Of any other model nobody knows the parameters that had no fault, and a pattern may select them, too.
            faulty[verdict] = patterns_for(wanted, known) if wanted <= measured.whole else tuple(sorted(wanted))
    entry = Expectation(
        outcome.verdict,
        case.name,
        where=where,
        versions=box.versions(),
        seen={"stacks": len({point.stack for point in every}), **_seen(box, every)},
        parameters=faulty.pop(outcome.verdict, ()),
        also=faulty,
        **_failure(outcome, every),
    )
    return Draft(entry, box, tuple(points), tuple(every))


def _failure(outcome: Outcome, points: Sequence[Point]) -> dict[str, Any]:
    """What is expected of it: a hang or a crash says where, a case that did not run says why, what raises says both."""
    failure = outcome.failure
    if failure is None:
        return {}
    told = {}
    if outcome.verdict is not Verdict.NOT_RUN:
        told["moment"] = failure.moment
    if outcome.verdict is Verdict.RAISES:
        told["type"] = failure.type
    if outcome.verdict in (Verdict.RAISES, Verdict.NOT_RUN):
        told["message"] = pattern_of(point.outcome.failure.message for point in points if point.outcome.failure)
    return told


def _seen(box: Box, points: Sequence[Point]) -> dict[str, str]:
    """The end points that were observed, beside the ranges that were inferred from them."""
    found = {}
    for package, span in box.spans:
        if str(span) != ABSENT:
            there = sorted({point.versions[package] for point in points})
            found[package] = f"{there[0]} to {there[-1]}" if len(there) > 1 else str(there[0])
    return found


def _order(case: Case, draft: Draft) -> tuple[object, ...]:
    """By stage, then by variant, then older versions first."""
    spans = [(PACKAGES.index(package), span.first or Version("0")) for package, span in draft.box.spans]
    stages = [options.stage for options in draft.variants]
    return min(stages), min(case.variants.index(options) for options in draft.variants), spans
