"""matrix/stacks.toml as checked records; what they mean together is in ``_expand``."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from harness.control.stacks._faults import Faults
from harness.control.stacks._releases import TAKES, read_toml
from harness.control.stacks._stack import normalize

__all__ = ["ERA", "LABELS", "Base", "Document", "Era", "Exclusion", "Single", "Sweep", "read_document"]

#: The closed set of labels; `tox run -m LABEL` runs what has it.
LABELS = ("smoke", "deepspeed", "transformers", "axolotl", "torch", "peft", "python", "era", "dev")

ERA = re.compile(r"(?P<year>20\d\d)q(?P<quarter>[1-4])")
_PYTHON = re.compile(r"3\.\d+")

Place = tuple["str | int", ...]


@dataclass(frozen=True)
class Base:
    """What is held while something else moves.  Every field may be given anew by who builds on it."""

    python: tuple[str, ...] = ()
    as_of: dt.date | None = None
    #: package -> exact version, or a range such as ``<2``
    pins: Mapping[str, str] = field(default_factory=dict)
    #: packages at whatever version the solver takes
    floats: tuple[str, ...] = ()


@dataclass(frozen=True)
class Single:
    """``[stack.NAME]``."""

    name: str
    description: str
    labels: tuple[str, ...]
    base: str
    changes: Base
    dev: bool = False
    prereleases: bool = False
    requires: tuple[str, ...] = ()
    #: packages that bring their own dependencies, though pyproject.toml leaves those out everywhere else
    whole: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sweep:
    """``[sweep.NAME]``: one axis moves."""

    key: str
    name: str
    description: str
    label: str
    base: str
    changes: Base
    moves: str
    range: str = ""
    take: str = "every"
    #: for the axes ``python`` (versions) and ``as_of`` (first and last era)
    values: tuple[str, ...] = ()
    #: packages pinned to their newest release on the day when the moving one came out
    of_its_day: tuple[str, ...] = ()


@dataclass(frozen=True)
class Exclusion:
    """``[[exclude]]``: combinations that a sweep leaves out."""

    where: Mapping[str, str]
    reason: str


@dataclass(frozen=True)
class Document:
    """The whole file."""

    path: Path
    faults: Faults
    bases: Mapping[str, Base]
    singles: Sequence[Single]
    sweeps: Sequence[Sweep]
    exclusions: Sequence[Exclusion]
    #: packages that may be named though no release of theirs is known
    undated: Sequence[str] = ()


class _Table:
    """Reads the keys of one table; what is wrong goes to the faults, and a default takes its place."""

    def __init__(self, faults: Faults, place: Place, plain: Any, known: Sequence[str]) -> None:
        self._faults = faults
        self._place = place
        self._plain: Mapping[str, Any] = plain if isinstance(plain, dict) else {}
        if not isinstance(plain, dict):
            faults.add(place, f"must be a table, found {plain!r}")
        faults.unknown(place, self._plain, known)

    def has(self, key: str) -> bool:
        return key in self._plain

    def fault(self, key: str, text: str) -> None:
        self._faults.add((*self._place, key), text)

    def text(self, key: str, *, needed: bool = True, check: Callable[[str], str] = lambda _: "") -> str:
        value = self._plain.get(key)
        if value is None:
            if needed:
                self._faults.add(self._place, f"{key} is missing")
        elif not isinstance(value, str) or len(value.splitlines()) != 1 or not value.strip():
            self.fault(key, f"must be one line of text, found {value!r}")
        elif found := check(value):
            self.fault(key, found)
        else:
            return value
        return ""

    def texts(self, key: str, check: Callable[[str], str] = lambda _: "") -> tuple[str, ...]:
        value = self._plain.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not value or not all(isinstance(one, str) for one in value):
            self.fault(key, f"must be an array of strings with at least one entry, found {value!r}")
            return ()
        for one in value:
            if value.count(one) > 1:
                self.fault(key, f"{one!r} stands there twice")
                break
            if found := check(one):
                self.fault(key, found)
        return tuple(value)

    def pairs(self, key: str, check: Callable[[str], str]) -> dict[str, str]:
        value = self._plain.get(key, {})
        if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
            self.fault(key, f"must be a table of packages and versions, found {value!r}")
            return {}
        spelt: dict[str, str] = {}
        for package, one in value.items():
            if found := check(one):
                self._faults.add((*self._place, key, package), f"{one!r} {found}")
            if (other := spelt.setdefault(normalize(package), package)) != package:
                self._faults.add((*self._place, key, package), f"is the same package as {other}")
        return dict(value)

    def day(self, key: str) -> dt.date | None:
        value = self._plain.get(key)
        if value is None or type(value) is dt.date:
            return value
        self.fault(key, f"must be a day such as 2024-03-31, without quotes, found {value!r}")
        return None

    def flag(self, key: str) -> bool:
        value = self._plain.get(key, False)
        if not isinstance(value, bool):
            self.fault(key, f"must be true or false, found {value!r}")
        return value is True


_HELD = ("python", "as_of", "pins", "floats")


def read_document(path: Path) -> Document:
    """Raises MatrixError where it is no TOML; what else is wrong is in ``faults`` of what is returned."""
    plain, faults = read_toml(path)
    table = _Table(faults, (), plain, ("base", "stack", "sweep", "exclude", "undated"))
    return Document(
        path,
        faults,
        {name: _base(_Table(faults, ("base", name), one, _HELD)) for name, one in _tables(plain, "base", faults)},
        [_single(name, one, faults) for name, one in _tables(plain, "stack", faults)],
        [_sweep(key, one, faults) for key, one in _tables(plain, "sweep", faults)],
        _exclusions(plain.get("exclude", []), faults),
        [normalize(one) for one in table.texts("undated", _name_fault)],
    )


def _tables(plain: Mapping[str, Any], kind: str, faults: Faults) -> list[tuple[str, Any]]:
    tables = plain.get(kind, {})
    if not isinstance(tables, dict):
        faults.add((kind,), f"must be tables [{kind}.NAME], found {tables!r}")
        return []
    return list(tables.items())


def _base(table: _Table) -> Base:
    return Base(
        table.texts("python", _python_fault),
        table.day("as_of"),
        table.pairs("pins", _pin_fault),
        table.texts("floats", _name_fault),
    )


_OF_A_STACK = ("description", "labels", "base", "dev", "prereleases", "requires", "whole")


def _single(name: str, plain: Any, faults: Faults) -> Single:
    table = _Table(faults, ("stack", name), plain, (*_OF_A_STACK, *_HELD))
    dev = table.flag("dev")
    if dev != table.has("requires"):
        table.fault("requires" if table.has("requires") else "dev", "dev stacks, and they alone, say what they require")
    if dev and (table.has("base") or table.has("as_of")):
        table.fault("dev", "a dev stack takes what is newest: it is built on no base and as of no day")
    if table.has("whole") and dev:
        table.fault("whole", "a dev stack is not locked, and what it requires is installed as pyproject.toml says")
    if table.has("prereleases") and not dev:
        table.fault("prereleases", "only dev stacks take pre-releases")
    return Single(
        name,
        table.text("description"),
        table.texts("labels", lambda one: "" if one in LABELS else f"{one!r} is not one of {', '.join(LABELS)}"),
        table.text("base", needed=not dev),
        _base(table),
        dev,
        table.flag("prereleases"),
        table.texts("requires", _requirement_fault),
        table.texts("whole", _name_fault),
    )


def _sweep(key: str, plain: Any, faults: Faults) -> Sweep:
    known = ("name", "description", "label", "base", "moves", "range", "take", "values", "of_its_day", *_HELD)
    table = _Table(faults, ("sweep", key), plain, known)
    moves = table.text("moves")
    listed = moves in ("python", "as_of")
    for given, wanted in (("values", listed), ("range", not listed), ("take", not listed)):
        if table.has(given) != wanted:
            what = "is missing" if wanted else "has no meaning"
            table.fault(given, f"{what} where {moves or 'nothing'} moves")
    values = table.texts("values", _VALUE_FAULTS.get(moves, lambda _: ""))
    # Quarters are in the order of their text.
    if moves == "as_of" and values and not (len(values) == 2 and values[0] < values[1]):
        table.fault("values", f"must be the first and the last quarter, in this order, found {', '.join(values)}")
    if table.has("of_its_day") and listed:
        table.fault("of_its_day", f"{moves} has no releases, so there is no day")
    return Sweep(
        key,
        table.text("name", check=lambda one: "" if "{version}" in one else "must hold {version}"),
        table.text("description"),
        table.text("label", check=lambda one: "" if one in LABELS else f"{one!r} is not one of {', '.join(LABELS)}"),
        table.text("base"),
        _base(table),
        moves,
        table.text("range", needed=False, check=_range_fault),
        table.text("take", needed=False, check=lambda one: "" if one in TAKES else f"is not one of {', '.join(TAKES)}")
        or "every",
        values,
        table.texts("of_its_day", _name_fault),
    )


def _exclusions(plain: Any, faults: Faults) -> list[Exclusion]:
    if not isinstance(plain, list):
        faults.add(("exclude",), "must be [[exclude]], with two brackets each")
        return []
    found = []
    for number, one in enumerate(plain):
        table = _Table(faults, ("exclude", number), one, ("where", "reason"))
        where = table.pairs("where", _range_fault)
        if not where:
            table.fault("where", "must name at least one package and a range")
        # "python" is no package, and stays what it is.
        found.append(Exclusion({normalize(one): wanted for one, wanted in where.items()}, table.text("reason")))
    return found


def _python_fault(text: str) -> str:
    return "" if _PYTHON.fullmatch(text) else f"{text!r} is no version such as '3.11'"


def _range_fault(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        return "is no range such as '>=0.16,<0.19.3'"
    return ""


def _pin_fault(text: str) -> str:
    try:
        Version(text)
    except InvalidVersion:
        return "is neither a version nor a range such as '<2'" if _range_fault(text) or not text else ""
    return ""


def _name_fault(text: str) -> str:
    return "" if re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", text) else f"{text!r} is no bare name"


def _requirement_fault(text: str) -> str:
    try:
        Requirement(text)
    except InvalidRequirement as error:
        return f"{text!r} is no requirement: {error}"
    return ""


def _era_fault(text: str) -> str:
    return "" if ERA.fullmatch(text) else f"{text!r} is no quarter such as '2024q1'"


#: What is wrong with a value, on the axes that have values.
_VALUE_FAULTS: Mapping[str, Callable[[str], str]] = {"python": _python_fault, "as_of": _era_fault}


@dataclass(frozen=True)
class Era:
    """A quarter of a year; a stack of it is what a person got who installed on its last day."""

    year: int
    quarter: int

    @classmethod
    def of(cls, text: str) -> Era:
        found = ERA.fullmatch(text)
        if found is None:
            raise ValueError(text)
        return cls(int(found["year"]), int(found["quarter"]))

    def __str__(self) -> str:
        return f"{self.year}q{self.quarter}"

    @property
    def last_day(self) -> dt.date:
        after = dt.date(self.year + self.quarter // 4, self.quarter % 4 * 3 + 1, 1)
        return after - dt.timedelta(days=1)

    @property
    def next(self) -> Era:
        return Era(self.year + self.quarter // 4, self.quarter % 4 + 1)
