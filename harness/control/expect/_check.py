"""What is wrong with entries that read well one by one: held against the catalogue, the releases and each other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from packaging.version import Version

from harness.cell._case import Case
from harness.cell._options import Options
from harness.cell._patterns import nearest
from harness.cell.outcome._expect import Expectation
from harness.cell.outcome._expect_faults import ABSENT
from harness.cell.outcome._verdict import Verdict
from harness.control.expect._compare import said
from harness.control.expect._points import Measured
from harness.control.expect._ranges import holds, is_empty, meet

__all__ = ["entry_faults", "gaps"]

#: package -> releases, oldest first
_Releases = Mapping[str, Sequence[str]]


def entry_faults(entries: Sequence[Expectation], cases: Sequence[Case], releases: _Releases) -> Iterator[str]:
    """Each with the file and line of its entry, without the folder."""
    by_name = {case.name: case for case in cases}
    for entry in entries:
        case = by_name.get(entry.case)
        if case is None:
            yield f"{entry.source}: no case is called {entry.case!r}; {nearest(entry.case, by_name)}"
        elif not any(map(entry.speaks_of, case.variants)):
            ids = ", ".join(options.id for options in case.variants)
            yield f"{entry.source}: no variant of {case.name} is as `where` says; there is: {ids}"
        yield from (f"{entry.source}: {fault}" for fault in _impossible(entry, releases))
    for one, other in itertools.combinations(entries, 2):
        if one.case == other.case and _overlap(one, other, by_name.get(one.case), releases):
            both = ", ".join(f"{package} {wanted}" for package, wanted in _common(one, other).items())
            where = f" where {both}" if both else ""
            yield f"{one.source}: both this entry and {other.source} apply to {one.case}{where}"


def _impossible(entry: Expectation, releases: _Releases) -> Iterator[str]:
    for package, wanted in entry.versions.items():
        if wanted == ABSENT:
            continue
        known = releases.get(package, ())
        if is_empty(wanted):
            yield f"versions {package} {wanted!r}: no version is in this range"
        elif known and not any(holds(wanted, release) for release in known):
            span = f"{known[0]} to {known[-1]}"
            yield f"versions {package} {wanted!r}: no release that releases.toml knows is in this range, of {span}"


def _overlap(one: Expectation, other: Expectation, case: Case | None, releases: _Releases) -> bool:
    """Whether a variant, a device, a number of ranks and versions are in both."""
    return (
        _may_be_equal(one.device, other.device)
        and _may_be_equal(one.world, other.world)
        and _share_a_variant(one, other, case)
        and all(
            meet(one.versions[package], other.versions[package], releases.get(package, ()))
            for package in one.versions.keys() & other.versions.keys()
        )
    )


def _may_be_equal(one: object, other: object) -> bool:
    return None in (one, other) or one == other


def _share_a_variant(one: Expectation, other: Expectation, case: Case | None) -> bool:
    if case is None:
        return all({*one.where[axis]} & {*other.where[axis]} for axis in one.where.keys() & other.where.keys())
    return any(one.speaks_of(options) and other.speaks_of(options) for options in case.variants)


def _common(one: Expectation, other: Expectation) -> dict[str, str]:
    """The ranges of both, package by package."""
    found: dict[str, list[str]] = {}
    for entry in (one, other):
        for package, wanted in entry.versions.items():
            if wanted not in found.setdefault(package, []):
                found[package].append(wanted)
    return {package: ",".join(wanted) for package, wanted in found.items()}


def gaps(
    entries: Sequence[Expectation], cases: Sequence[Case], releases: _Releases, measured: Measured
) -> Iterator[str]:
    """Releases between the ranges of two entries, that are in neither and were not seen to train."""
    for case in cases:
        mine = [one for one in entries if one.case == case.name]
        alike: dict[tuple[int, ...], list[Options]] = {}
        for options in case.variants:
            some = tuple(at for at, one in enumerate(mine) if one.speaks_of(options))
            alike.setdefault(some, []).append(options)
        for some, variants in alike.items():
            for package, known in releases.items():
                ranges = [mine[at].versions.get(package, ABSENT) for at in some]
                for hole in _holes(ranges, known):
                    untrained = [one for one in variants if not _trained(case.name, one, package, hole, measured)]
                    if untrained:
                        yield (
                            f"{case.name}, {said(untrained, case)}: no entry is about {package} {_span(hole)}, though "
                            "some are about older and newer ones, and no stack was seen to train there"
                        )


def _holes(ranges: Sequence[str], known: Sequence[str]) -> list[list[str]]:
    """Runs of releases in no range, between such as are in one."""
    covered = [any(holds(wanted, release) for wanted in ranges) for release in known]
    runs = [(inside, [*run]) for inside, run in itertools.groupby(zip(known, covered, strict=True), lambda one: one[1])]
    # What is before the first range and past the last is open on purpose.
    return [
        [release for release, _ in run]
        for at, (inside, run) in enumerate(runs)
        if not inside and 0 < at < len(runs) - 1
    ]


def _trained(case: str, options: Options, package: str, hole: Sequence[str], measured: Measured) -> bool:
    first, last = Version(hole[0]), Version(hole[-1])
    return any(
        point.outcome.verdict is Verdict.TRAINS and first <= point.versions.get(package, Version("0")) <= last
        for (name, _), by_variant in measured.points.items()
        if name == case
        for point in by_variant.get(options, ())
    )


def _span(hole: Sequence[str]) -> str:
    return hole[0] if len(hole) == 1 else f"{hole[0]} to {hole[-1]}"
