"""What a case is expected to do on the versions at hand: read, look up, compare.

TRAINS is the default and has no entry.  An entry is a measured verdict on a range of versions::

    [[expect]]
    case = "unfreeze_more_after_engine"
    verdict = "NO_UPDATE"
    where = {stage = [1, 2, 3]}             # any setting of a variant; one value or several
    versions = {deepspeed = "==0.19.8"}
    parameters = ["model.layers.2.*"]       # exactly these carry the verdict
    also = {FROZEN_DRIFT = ["lm_head.*"]}   # and these, less bad ones; no other fault is expected
    note = "measured ..."                   # a note or refs, or both

Verdicts of a whole process take ``moment``, ``type`` and ``message`` (a regular expression,
searched) instead of ``parameters`` and ``also``; RAISES needs moment and type.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.cell._patterns import select
from harness.cell.outcome._expect_faults import faults_of, listed
from harness.cell.outcome._record import CaseRecord
from harness.cell.outcome._verdict import Verdict

if sys.version_info >= (3, 11):
    import tomllib
else:  # pytest depends on tomli there
    import tomli as tomllib

__all__ = ["DEFAULT", "Expectation", "ExpectationError", "Expectations", "default_folder", "differences"]


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
    versions: Mapping[str, str] = field(default_factory=dict)
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
        from packaging.specifiers import SpecifierSet

        return (
            self.case == record.case
            and self.device in (None, record.device)
            and self.world in (None, record.world)
            and all(record.options.get(axis) in allowed for axis, allowed in self.where.items())
            and all(
                package in record.versions and SpecifierSet(wanted).contains(record.versions[package], prereleases=True)
                for package, wanted in self.versions.items()
            )
        )

    def as_dict(self) -> dict[str, Any]:
        """The part that a result line keeps."""
        kept = {"verdict": str(self.verdict), "moment": self.moment, "type": self.type, "source": self.source}
        return {key: value for key, value in kept.items() if value}


DEFAULT = Expectation(Verdict.TRAINS)


class Expectations:
    """All entries of a folder of TOML files."""

    def __init__(self, entries: Iterable[Expectation] = ()) -> None:
        self.entries = tuple(entries)

    @classmethod
    def load(cls, folder: Path) -> Expectations:
        """Read ``folder/*.toml``.  Raises ExpectationError."""
        faults: list[str] = []
        entries: list[Expectation] = []
        for path in sorted(folder.glob("*.toml")):
            try:
                plain = tomllib.loads(path.read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
                faults.append(f"{path}: {error}")
                continue
            unknown = sorted({*plain} - {"expect"})
            faults += [f"{path}: unknown table {one!r}; entries are [[expect]]" for one in unknown]
            given = plain.get("expect", [])
            if not isinstance(given, list):
                faults.append(f"{path}: entries are [[expect]], with two brackets each")
                continue
            for number, entry in enumerate(given, 1):
                where = f"{path.name} entry {number}"
                found = faults_of(entry)
                faults += [f"{where}: {fault}" for fault in found]
                if not found:
                    entries.append(_made(entry, where))
        if faults:
            raise ExpectationError(faults)
        return cls(entries)

    def of(self, record: CaseRecord) -> Expectation:
        """The one that applies.  Raises ExpectationError where two do."""
        found = [one for one in self.entries if one.applies(record)]
        if len(found) > 1:
            both = " and ".join(one.source for one in found)
            raise ExpectationError([f"{record.id}: {both} both apply; where and versions must tell them apart"])
        return found[0] if found else DEFAULT


def _made(entry: Mapping[str, Any], source: str) -> Expectation:
    """An entry without faults."""
    made = {
        "verdict": Verdict(entry["verdict"]),
        "where": {axis: listed(one) for axis, one in entry.get("where", {}).items()},
        "parameters": tuple(entry.get("parameters", ())),
        "also": {Verdict(verdict): tuple(patterns) for verdict, patterns in entry.get("also", {}).items()},
        "refs": tuple(entry.get("refs", ())),
        "source": source,
    }
    return Expectation(**{**entry, **made})


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
        if expected.message is not None and not re.search(expected.message, record.failure.message):
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
