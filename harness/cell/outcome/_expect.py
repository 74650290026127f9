"""What a case is expected to do on the versions at hand: read, look up, compare.

TRAINS is the default and has no entry.  An entry is a measured verdict on a range of versions::

    [[expect]]
    case = "unfreeze_more_after_engine"     # one case, or a list of those that do the same
    verdict = "NO_UPDATE"
    where = {stage = [1, 2, 3]}             # any setting of a variant; one value or several
    versions = {deepspeed = ">=0.14.4", axolotl = "absent"}  # ranges; "absent": where it is not installed
    seen = {stacks = 34, deepspeed = "0.14.4 to 0.19.8"}     # what these ranges were inferred from; never compared
    parameters = ["model.layers.2.*"]       # exactly these carry the verdict
    also = {FROZEN_DRIFT = ["lm_head.*"]}   # and these, less bad ones; no other fault is expected
    note = "measured ..."                   # a note or refs, or both

Verdicts of a whole process take ``moment``, ``type`` and ``message`` (a regular expression,
searched) instead of ``parameters`` and ``also``; RAISES needs moment and type.
`thawcheck expect --update` writes such files from what was observed, `thawcheck lint` checks them together.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from harness.cell._options import Options
from harness.cell._patterns import select
from harness.cell._toml_lines import lines_of
from harness.cell.outcome._expect_faults import ABSENT, faults_of, listed
from harness.cell.outcome._record import CaseRecord
from harness.cell.outcome._steady import steady
from harness.cell.outcome._verdict import Verdict

if sys.version_info >= (3, 11):
    import tomllib
else:  # pytest depends on tomli there
    import tomli as tomllib

__all__ = [
    "DEFAULT",
    "Expectation",
    "ExpectationError",
    "Expectations",
    "default_folder",
    "differences",
    "read_entries",
]


class ExpectationError(Exception):
    """Files that cannot be used; every fault of all of them at once."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)


@dataclass(frozen=True)
class Expectation:
    """One entry, checked."""

    verdict: Verdict
    case: str = ""
    where: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    #: package -> range, or "absent"
    versions: Mapping[str, str] = field(default_factory=dict)
    #: package -> the end points that were observed; and the number of stacks
    seen: Mapping[str, Any] = field(default_factory=dict)
    device: str | None = None
    world: int | None = None
    parameters: tuple[str, ...] = ()
    also: Mapping[Verdict, tuple[str, ...]] = field(default_factory=dict)
    moment: str | None = None
    type: str | None = None
    message: str | None = None
    note: str = ""
    refs: tuple[str, ...] = ()
    source: str = "default"

    def applies(self, record: CaseRecord) -> bool:
        """Whether it speaks of this case, variant, device and stack."""
        return (
            self.case == record.case
            and self.device in (None, record.device)
            and self.world in (None, record.world)
            and all(record.options.get(axis) in allowed for axis, allowed in self.where.items())
            and self.holds_on(record.versions)
        )

    def holds_on(self, versions: Mapping[str, str]) -> bool:
        """Whether its ranges hold these versions."""
        return all(_holds(wanted, versions.get(package)) for package, wanted in self.versions.items())

    def speaks_of(self, options: Options) -> bool:
        """Whether its settings are among those of this variant."""
        return all(getattr(options, axis) in allowed for axis, allowed in self.where.items())

    def as_dict(self) -> dict[str, Any]:
        """The part that a result line keeps."""
        kept = {"verdict": str(self.verdict), "moment": self.moment, "type": self.type, "source": self.source}
        return {key: value for key, value in kept.items() if value}


DEFAULT = Expectation(Verdict.TRAINS)


class Expectations:
    """All entries of a folder of TOML files."""

    def __init__(self, entries: Iterable[Expectation] = ()) -> None:
        self.entries = tuple(entries)
        self._of: dict[str, list[Expectation]] = defaultdict(list)
        for one in self.entries:
            self._of[one.case].append(one)

    @classmethod
    def load(cls, folder: Path) -> Expectations:
        """Read ``folder/*.toml``.  Raises ExpectationError."""
        entries, faults = read_entries(folder)
        if faults:
            raise ExpectationError(faults)
        return cls(entries)

    def of(self, record: CaseRecord) -> Expectation:
        """The one that applies.  Raises ExpectationError where two do."""
        found = [one for one in self._of.get(record.case, ()) if one.applies(record)]
        if len(found) > 1:
            both = " and ".join(one.source for one in found)
            raise ExpectationError([f"{record.id}: {both} both apply; where and versions must tell them apart"])
        return found[0] if found else DEFAULT


def read_entries(folder: Path) -> tuple[list[Expectation], list[str]]:
    """The entries of ``folder/*.toml`` that have no fault, and every fault of the others, with file and line."""
    faults: list[str] = []
    entries: list[Expectation] = []
    for path in sorted(folder.glob("*.toml")):
        try:
            text = path.read_text(encoding="utf-8")
            plain = tomllib.loads(text)
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            faults.append(f"{path}: {error}")
            continue
        lines = lines_of(text)
        unknown = sorted({*plain} - {"expect"})
        faults += [f"{path}:{_line(lines, one)}: unknown table {one!r}; entries are [[expect]]" for one in unknown]
        given = plain.get("expect", [])
        if not isinstance(given, list):
            faults.append(f"{path}:{_line(lines, 'expect')}: entries are [[expect]], with two brackets each")
            continue
        for number, entry in enumerate(given):
            found = faults_of(entry)
            faults += [f"{path}:{_line(lines, 'expect', number, key)}: {fault}" for key, fault in found]
            if not found:
                entries += _made(entry, f"{path.name}:{_line(lines, 'expect', number)}")
    return entries, faults


def _line(lines: Mapping[tuple[str | int, ...], int], *place: str | int) -> int:
    """Of the innermost part that has a line of its own; of a table ``[a.b]`` too, where ``a`` has none."""
    for end in range(len(place), 0, -1):
        found = [line for one, line in lines.items() if one[:end] == place[:end]]
        if found:
            return min(found)
    return 1


@cache
def _holds(wanted: str, version: str | None) -> bool:
    from packaging.specifiers import SpecifierSet

    if version is None or wanted == ABSENT:
        return version is None and wanted == ABSENT
    return SpecifierSet(wanted).contains(version, prereleases=True)


def _made(entry: Mapping[str, Any], source: str) -> list[Expectation]:
    """An entry without faults: for each case that it speaks of."""
    made = {
        "verdict": Verdict(entry["verdict"]),
        "where": {axis: listed(one) for axis, one in entry.get("where", {}).items()},
        "parameters": tuple(entry.get("parameters", ())),
        "also": {Verdict(verdict): tuple(patterns) for verdict, patterns in entry.get("also", {}).items()},
        "refs": tuple(entry.get("refs", ())),
        "source": source,
    }
    return [Expectation(**{**entry, **made, "case": case}) for case in listed(entry["case"])]


def differences(record: CaseRecord, expected: Expectation) -> list[str]:
    """In words, how the record differs; empty when all is as expected."""
    if record.verdict is not expected.verdict:
        return [f"expected {expected.verdict} ({expected.source}), found {record.verdict}: {record.headline}"]
    found = []
    if record.failure is not None:
        for what in ("moment", "type"):
            wanted, got = getattr(expected, what), getattr(record.failure, what)
            if wanted is not None and wanted != got:
                found.append(f"expected {what} {wanted!r} ({expected.source}), found {got!r}: {record.headline}")
        # Entries are made of messages as they are kept, on one line; people write them as they are shown.
        seen = (record.failure.message, steady(record.failure.message))
        if expected.message is not None and not any(re.search(expected.message, one) for one in seen):
            found.append(
                f"expected a message like {expected.message!r} ({expected.source}), found {record.failure.message!r}"
            )
    if record.parameters:
        found += _parameter_differences(record, expected)
    return found


def _parameter_differences(record: CaseRecord, expected: Expectation) -> list[str]:
    """Which parameters carry the headline, where that is said, and what the others are.

    A headline speaks for the worst alone; so any other fault must be named by ``also``, or it
    would hide behind an expected one.
    """
    names = [one.name for one in record.parameters]
    asked = dict(expected.also)
    if expected.parameters:
        asked[expected.verdict] = expected.parameters
    got: dict[Verdict, set[str]] = {}
    for one in record.parameters:
        got.setdefault(one.verdict, set()).add(one.name)
    found = []
    for verdict in sorted({*asked, *got} - {Verdict.TRAINS, Verdict.FROZEN}, key=str):
        if verdict is expected.verdict and not expected.parameters:
            continue  # of which parameters is not said
        wanted = set(select(names, asked.get(verdict, ())))
        more, less = sorted(got.get(verdict, set()) - wanted), sorted(wanted - got.get(verdict, set()))
        if more or less:
            parts = [f"also of {', '.join(more)}" if more else "", f"but not of {', '.join(less)}" if less else ""]
            found.append(
                f"expected {verdict} of {', '.join(asked.get(verdict, ())) or 'no parameter'} ({expected.source}), "
                f"found it {' '.join(filter(None, parts))}"
            )
    return found


def default_folder() -> Path | None:
    """The expectations that come with the harness: in the wheel, or in the source tree."""
    package = Path(__file__).resolve().parents[2]
    for folder in (package / "_expected", package.parent / "matrix" / "expected"):
        if folder.is_dir():
            return folder
    return None
