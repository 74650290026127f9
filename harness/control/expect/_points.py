"""From observed files to what a rule is looked for: of each variant of each case, a point per stack."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from packaging.version import Version

from harness.cell._case import Case
from harness.cell._options import Options
from harness.cell.outcome._observed import Observed, Outcome
from harness.cell.outcome._record import CaseRecord, ParameterVerdict
from harness.cell.outcome._verdict import Verdict

__all__ = ["PACKAGES", "Measured", "Point", "World", "gather", "whole_records"]

#: What may decide an outcome; where several explain it equally well, the first of them is taken.
PACKAGES: Final = ("deepspeed", "torch", "transformers", "accelerate", "axolotl", "peft", "trl", "python", "numpy")

#: Where a case ran: device, and number of ranks.
World = tuple[str, int]


@dataclass(frozen=True)
class Point:
    """One variant on one stack."""

    stack: str
    #: of :data:`PACKAGES`, those that are installed; without what tells builds of one release apart
    versions: Mapping[str, Version]
    outcome: Outcome

    @property
    def place(self) -> tuple[Version | None, ...]:
        """All that a rule can see of it."""
        return tuple(self.versions.get(package) for package in PACKAGES)


@dataclass
class Measured:
    """All points of a matrix, and what was left out of them."""

    #: (case, device and ranks) -> variant -> its points, in the order of the stacks
    points: dict[tuple[str, World], dict[Options, list[Point]]] = field(default_factory=dict)
    #: model -> every parameter of it that was ever at fault
    names: dict[str, set[str]] = field(default_factory=dict)
    #: those of models whose every parameter is known by now: the first cases run on the stock models as they
    #: are, and what they freeze late covers all of them
    whole: set[str] = field(default_factory=set)
    unsolvable: list[str] = field(default_factory=list)
    stacks: int = 0
    #: case or variant that the catalogue has not -> stacks
    unknown: dict[str, list[str]] = field(default_factory=dict)

    def every(self) -> Iterator[Point]:
        for by_variant in self.points.values():
            for points in by_variant.values():
                yield from points

    @property
    def verdicts(self) -> int:
        return sum(1 for _ in self.every())

    def knows(self, case: str, options: Options) -> bool:
        """Whether the catalogue has it."""
        return any(name == case and options in by_variant for (name, _), by_variant in self.points.items())

    def worlds(self, case: str) -> list[World]:
        return sorted(world for name, world in self.points if name == case)


def gather(observed: Iterable[Observed], cases: Sequence[Case]) -> Measured:
    """Sort what was observed by what it is about."""
    known = {case.name: {*case.variants} for case in cases}
    first = {case.name for case in cases if case.module == cases[0].module}  # none, where there is no case
    found = Measured()
    for one in observed:
        if one.unsolvable:
            found.unsolvable.append(one.stack)
            continue
        found.stacks += 1
        versions = _versions(one.versions)
        for outcome in one.outcomes:
            for options in outcome.variants:
                if options not in known.get(outcome.case, ()):
                    name = f"{outcome.case}[{options.id}]" if outcome.case in known else outcome.case
                    stacks = found.unknown.setdefault(name, [])
                    if one.stack not in stacks:
                        stacks.append(one.stack)
                    continue
                where = found.points.setdefault((outcome.case, (one.device, outcome.world)), {})
                where.setdefault(options, []).append(Point(one.stack, versions, outcome))
                for names in outcome.parameters.values():
                    found.names.setdefault(options.model, set()).update(names)
                    if outcome.case in first:
                        found.whole.update(names)
    return found


def _versions(given: Mapping[str, str]) -> dict[str, Version]:
    found = {package: Version(Version(given[package]).public) for package in PACKAGES if package in given}
    if "python" in found:
        # Which patch release it was depends on who measured.
        found["python"] = Version(".".join(map(str, found["python"].release[:2])))
    return found


def whole_records(observed: Observed, names: Mapping[str, set[str]]) -> Iterator[CaseRecord]:
    """Its records, with the parameters that were not at fault there, too: a pattern must leave them alone."""
    for record in observed.records():
        faulty = {one.name for one in record.parameters}
        if faulty:
            record.parameters += [
                ParameterVerdict(name, Verdict.TRAINS, False, False, (), ())
                for name in sorted(names.get(record.options["model"], set()) - faulty)
            ]
        yield record
