"""From tables of matrix/stacks.toml to stacks: bases are filled in, sweeps unrolled, exclusions taken out."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from harness.cell._patterns import nearest
from harness.control.stacks._faults import Faults, MatrixError
from harness.control.stacks._read import Base, Document, Era, Exclusion, Single, Sweep, read_document
from harness.control.stacks._releases import Releases, load_releases, taken
from harness.control.stacks._stack import TOOLS, Stack, normalize

__all__ = ["Matrix", "load_matrix"]

_NAME = re.compile(r"[a-z][a-z0-9]*(?:[.-][a-z0-9]+)*")
# tox reads such a part of an environment's name as a Python version.
_PYTHON_FACTOR = re.compile(r"(?:py|python|pypy|cpython)(?P<digits>\d*\.?\d*)|[23]\.?\d*")


@dataclass(frozen=True)
class Left:
    """What an exclusion took out of a sweep."""

    sweep: str
    name: str
    reason: str


@dataclass(frozen=True)
class Matrix:
    """All stacks, by name, in the order of the file."""

    folder: Path
    stacks: Mapping[str, Stack]
    excluded: tuple[Left, ...]
    releases: Releases

    def lock(self, name: str) -> Path:
        return self.folder / "locks" / f"{name}.txt"

    def observed(self, name: str) -> Path:
        return self.folder / "observed" / f"{name}.jsonl"

    def labelled(self, label: str) -> list[str]:
        return [name for name, stack in self.stacks.items() if label in stack.labels]


def load_matrix(folder: Path, taken_names: Iterable[str] = ()) -> Matrix:
    """Read and check both files.

    :param taken_names: names that environments of tox.ini have.
    :raises MatrixError: with every fault found.
    """
    found: list[str] = []
    releases: Releases = {}
    try:
        releases = load_releases(folder / "releases.toml")
    except MatrixError as error:
        found += error.faults
    try:
        document = read_document(folder / "stacks.toml")
    except MatrixError as error:
        raise MatrixError([*found, *error.faults]) from None
    if found:
        raise MatrixError([*found, *document.faults.found])
    expander = _Expander(document, releases, frozenset(taken_names))
    stacks = expander.all()
    document.faults.finish()
    return Matrix(folder, stacks, tuple(expander.left), releases)


class _Expander:
    def __init__(self, document: Document, releases: Releases, taken_names: frozenset[str]) -> None:
        self._document = document
        self._releases = releases
        self._taken = taken_names
        self._faults: Faults = document.faults
        self._uses = [0] * len(document.exclusions)
        self._early: set[tuple[str, str]] = set()
        self.left: list[Left] = []

    def all(self) -> dict[str, Stack]:
        self._check_packages()
        stacks: dict[str, Stack] = {}
        for place, stack in self._each():
            self._check_name(place, stack)
            if stack.name in stacks:
                self._faults.add(place, f"a stack is called {stack.name!r} already")
            stacks[stack.name] = stack
        if not stacks and not self._faults.found:
            self._faults.add((), "there is no stack: write at least one [stack.NAME]")
        for number, uses in enumerate(self._uses):
            if not uses:
                self._faults.add(("exclude", number), "excludes nothing: no sweep has such a stack")
        return stacks

    def _each(self) -> Iterator[tuple[tuple[str, ...], Stack]]:
        for single in self._document.singles:
            yield ("stack", single.name), self._single(single)
        for sweep in self._document.sweeps:
            for stack in self._sweep(sweep):
                yield ("sweep", sweep.key), stack

    def _single(self, single: Single) -> Stack:
        place = ("stack", single.name)
        if single.dev:
            why = {"python": "the first that the stack names"}
            python = single.changes.python or ("3.11",)
            requires = (*single.requires, *TOOLS)
            return Stack(
                single.name,
                single.description,
                single.labels,
                python,
                requires,
                None,
                why,
                dev=True,
                prereleases=single.prereleases,
            )
        held, why = self._held(place, single.base, single.changes)
        made = self._made(place, single.name, single.description, single.labels, held, why)
        whole = tuple(map(normalize, single.whole))
        for package in whole:
            if package not in why:
                self._faults.add((*place, "whole"), f"the stack has no {package}: pin it, or let it float")
        because = "; its own dependencies are installed, too, and decide what floats"
        why = {package: f"{reason}{because}" if package in whole else reason for package, reason in made.why.items()}
        return dataclasses.replace(made, whole=whole, why=why)

    def _sweep(self, sweep: Sweep) -> Iterator[Stack]:
        place = ("sweep", sweep.key)
        base, why = self._held(place, sweep.base, sweep.changes)
        for at, held, reason in self._steps(sweep, base):
            name = sweep.name.replace("{version}", at)
            description = sweep.description.replace("{version}", at)
            if excluded := self._exclusion(held):
                self.left.append(Left(sweep.key, name, excluded.reason))
                continue
            moved = {_axis(sweep.moves): reason}
            its_day = f"the newest on the day when {sweep.moves} {at} came out"
            moved |= dict.fromkeys(map(normalize, sweep.of_its_day), its_day)
            stack = self._made(place, name, description, (sweep.label,), held, {**why, **moved})
            yield dataclasses.replace(stack, sweep=sweep.key, moves=sweep.moves, at=at)

    def _steps(self, sweep: Sweep, base: Base) -> Iterator[tuple[str, Base, str]]:
        """Where the axis stands, what is held there, and why it stands there."""
        place = ("sweep", sweep.key)
        origin = f"[sweep.{sweep.key}] in matrix/stacks.toml"
        if sweep.moves == "as_of":
            for era in _eras(sweep.values):
                reason = f"the last day of {era}, which {origin} moves along"
                yield str(era), dataclasses.replace(base, as_of=era.last_day), reason
            return
        if sweep.moves == "python":
            for version in sweep.values:
                yield version, dataclasses.replace(base, python=(version,)), f"listed by {origin}"
            return
        package = normalize(sweep.moves)
        if package not in self._releases:
            if sweep.moves:
                known = ", ".join(("python", "as_of", *self._releases))
                self._faults.add((*place, "moves"), f"{sweep.moves!r} is no axis; there is: {known}")
            return
        releases = self._releases[package]
        versions = taken(releases, SpecifierSet(sweep.range), sweep.take)
        if not versions:
            self._faults.add((*place, "range"), f"{sweep.range!r} holds no known release of {package}")
        for version in versions:
            pins = {**base.pins, package: version, **self._companions(sweep, releases[version])}
            floats = tuple(one for one in base.floats if one not in pins)
            reason = f"moved by {origin}: {sweep.take.replace('-', ' ')} of {sweep.range}"
            yield version, dataclasses.replace(base, pins=pins, floats=floats), reason

    def _companions(self, sweep: Sweep, day: dt.date) -> dict[str, str]:
        """What was newest of the packages that go with the moving one on the day when it came out."""
        found = {}
        for package in map(normalize, sweep.of_its_day):
            if package not in self._releases:  # a fault that is told elsewhere
                continue
            there = [one for one, came in self._releases[package].items() if came <= day]
            if there:
                found[package] = there[-1]
            elif (sweep.key, package) not in self._early:  # once, of the oldest: it need not be told of each
                self._early.add((sweep.key, package))
                fault = f"matrix/releases.toml knows no release of {package} up to {day}"
                self._faults.add(("sweep", sweep.key, "of_its_day"), fault)
        return found

    def _held(self, place: tuple[str, ...], name: str, changes: Base) -> tuple[Base, dict[str, str]]:
        """A base with what is given anew, and where each part comes from."""
        base = self._document.bases.get(name)
        if base is None:
            if name:
                known = ", ".join(self._document.bases) or "none"
                self._faults.add((*place, "base"), f"no base is called {name!r}; there is: {known}")
            base = Base()
        mine = f"set by [{'.'.join(place)}]"
        theirs = f"held by [base.{name}]"
        anew = {normalize(one) for one in (*changes.pins, *changes.floats)}
        pins = {normalize(one): version for one, version in base.pins.items() if normalize(one) not in anew}
        floats = [normalize(one) for one in base.floats if normalize(one) not in anew]
        held = Base(
            changes.python or base.python,
            changes.as_of or base.as_of,
            {**pins, **{normalize(one): version for one, version in changes.pins.items()}},
            tuple(dict.fromkeys([*floats, *map(normalize, changes.floats)])),
        )
        why = dict.fromkeys((*pins, *floats), theirs) | dict.fromkeys(anew, mine)
        return held, {"python": mine if changes.python else theirs, **why}

    def _made(
        self,
        place: tuple[str, ...],
        name: str,
        description: str,
        labels: tuple[str, ...],
        held: Base,
        why: Mapping[str, str],
    ) -> Stack:
        if not held.python:
            self._faults.add(place, f"{name}: no python is given, neither here nor by its base")
        floats, absent = self._of_the_day(held)
        # Under a day, a floating package is the newest of that day; say so.
        newest = f", the newest as of {held.as_of}" if held.as_of else ", the newest"
        why = {
            **why,
            **{package: f"floats{newest}, that suits the rest; {why[package]}" for package in floats},
            **dict.fromkeys(absent, f"left out: it had no release by {held.as_of}"),
        }
        pinned = [f"{package}=={one}" if _exact(one) else f"{package}{one}" for package, one in held.pins.items()]
        return Stack(name, description, labels, held.python or ("3",), (*pinned, *floats, *TOOLS), held.as_of, why)

    def _of_the_day(self, held: Base) -> tuple[list[str], list[str]]:
        """Floating packages that existed on the day, and those that did not yet."""
        there: list[str] = []
        absent: list[str] = []
        for package in held.floats:
            first: dt.date | None = min(self._releases.get(package, {}).values(), default=None)
            late = first is not None and held.as_of is not None and first > held.as_of
            (absent if late else there).append(package)
        return there, absent

    def _check_packages(self) -> None:
        """What tables name, at the table and once, however many stacks it is in."""
        document = self._document
        held = [(("base", name), base) for name, base in document.bases.items()]
        held += [(("stack", single.name), single.changes) for single in document.singles]
        held += [(("sweep", sweep.key), sweep.changes) for sweep in document.sweeps]
        for place, base in held:
            for package, version in base.pins.items():
                self._check_pin((*place, "pins", package), normalize(package), version)
            for package in base.floats:
                self._check_package((*place, "floats"), package, [*self._releases, *document.undated])
        for sweep in document.sweeps:
            for package in sweep.of_its_day:
                self._check_package(("sweep", sweep.key, "of_its_day"), package, self._releases)

    def _check_package(self, place: tuple[str, ...], package: str, known: Iterable[str]) -> None:
        known = list(known)
        if normalize(package) not in known:
            fault = f"matrix/releases.toml knows no {package!r}; {nearest(normalize(package), known)}"
            self._faults.add(place, fault)

    def _check_pin(self, place: tuple[str, ...], package: str, version: str) -> None:
        known = self._releases.get(package)
        if known is None:
            self._check_package(place, package, [*self._releases, *self._document.undated])
            return
        if not _exact(version) or version in known:
            return
        earlier = [one for one in known if Version(one) < Version(version)]
        hint = f"the nearest before it is {earlier[-1]}" if earlier else f"the first is {next(iter(known), 'none')}"
        self._faults.add(place, f"{package} {version} is no release that matrix/releases.toml knows; {hint}")

    def _exclusion(self, held: Base) -> Exclusion | None:
        versions = {package: one for package, one in held.pins.items() if _exact(one)}
        versions["python"] = held.python[0] if held.python else "0"
        for number, one in enumerate(self._document.exclusions):
            if all(
                package in versions and SpecifierSet(wanted).contains(versions[package], prereleases=True)
                for package, wanted in one.where.items()
            ):
                self._uses[number] += 1
                return one
        return None

    def _check_name(self, place: tuple[str, ...], stack: Stack) -> None:
        if not _NAME.fullmatch(stack.name):
            self._faults.add(place, f"{stack.name!r} must be of lower-case letters, digits, dots and dashes")
        if stack.name in self._taken:
            self._faults.add(place, f"tox.ini has an environment called {stack.name!r}")
        for factor in stack.name.split("-"):
            found = _PYTHON_FACTOR.fullmatch(factor)
            if found and (found["digits"] or "").replace(".", "") != stack.python[0].replace(".", ""):
                self._faults.add(place, f"{stack.name!r}: tox would read {factor!r} as another Python version")


def _axis(moves: str) -> str:
    return moves if moves in ("python", "as_of") else normalize(moves)


def _exact(version: str) -> bool:
    try:
        Version(version)
    except InvalidVersion:
        return False
    return True


def _eras(ends: tuple[str, ...]) -> Iterator[Era]:
    """From the first to the last, both with."""
    try:
        era, last = Era.of(ends[0]), Era.of(ends[-1])
    except (ValueError, IndexError):  # a fault that is told elsewhere
        return
    while (era.year, era.quarter) <= (last.year, last.quarter):
        yield era
        era = era.next
