"""matrix/observed/NAME.jsonl: a head, then a line for each outcome with the variants that had it.

The same measurement gives the same bytes whoever repeats it, but for the head's date and harness: so a diff
of this folder shows changed verdicts and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.cell._options import Options
from harness.cell.outcome._record import CaseRecord, Failure, ParameterVerdict
from harness.cell.outcome._results import as_line
from harness.cell.outcome._verdict import Verdict

__all__ = ["FORMAT", "Observed", "ObservedError", "Outcome", "load_all", "read_observed"]

#: Of the file.  Raised when a field changes its meaning or goes.
FORMAT = 1


class ObservedError(Exception):
    """Files that cannot be used; every fault of all of them, with file and line."""

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(faults))


@dataclass(frozen=True)
class Outcome:
    """What some variants of one case did, alike."""

    case: str
    verdict: Verdict
    variants: tuple[Options, ...]
    world: int
    #: verdict -> parameters that have it; those that trained or stayed as meant are left out
    parameters: Mapping[Verdict, tuple[str, ...]] = field(default_factory=dict)
    failure: Failure | None = None

    def as_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = {
            "case": self.case,
            "verdict": str(self.verdict),
            "world": self.world,
            "variants": [one.id for one in self.variants],
        }
        if self.parameters:
            plain["parameters"] = {str(verdict): list(names) for verdict, names in self.parameters.items()}
        if self.failure is not None:
            plain["failure"] = {
                "moment": self.failure.moment,
                "type": self.failure.type,
                "message": self.failure.message,
            }
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Outcome:
        """Raises KeyError, ValueError or TypeError where it is no outcome."""
        failure = plain.get("failure")
        return cls(
            str(plain["case"]),
            Verdict(plain["verdict"]),
            tuple(Options.from_id(one) for one in plain["variants"]),
            int(plain["world"]),
            {Verdict(verdict): tuple(names) for verdict, names in plain.get("parameters", {}).items()},
            Failure(failure["moment"], failure["type"], failure["message"]) if failure else None,
        )


@dataclass(frozen=True)
class Observed:
    """All that was measured on one stack."""

    stack: str
    harness: str
    #: the day, as YYYY-MM-DD
    measured: str
    device: str
    #: the lock that was installed, by its answer
    lock: str
    versions: Mapping[str, str]
    outcomes: tuple[Outcome, ...] = ()
    #: why the stack could not be installed; then nothing else is known of it
    unsolvable: str = ""
    path: Path | None = None

    def lines(self) -> Iterator[str]:
        head: dict[str, Any] = {
            "observed": FORMAT,
            "stack": self.stack,
            "harness": self.harness,
            "measured": self.measured,
            "device": self.device,
            "lock": self.lock,
            "versions": dict(sorted(self.versions.items())),
            "outcomes": len(self.outcomes),
        }
        if self.unsolvable:
            head["unsolvable"] = self.unsolvable
        yield as_line(head)
        for outcome in self.outcomes:
            yield as_line(outcome.as_dict())

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_text("".join(f"{line}\n" for line in self.lines()), encoding="utf-8")
        fresh.replace(path)

    def records(self) -> Iterator[CaseRecord]:
        """A record per variant, with what expectations are held against."""
        for outcome in self.outcomes:
            for options in outcome.variants:
                yield self.record(outcome, options)

    def record(self, outcome: Outcome, options: Options) -> CaseRecord:
        """That of one variant."""
        return CaseRecord(
            case=outcome.case,
            kind="",
            options=options.as_dict(),
            id=f"{outcome.case}[{options.id}]",
            verdict=outcome.verdict,
            headline=outcome.failure.message if outcome.failure else "",
            world=outcome.world,
            device=self.device,
            launcher="",
            failure=outcome.failure,
            parameters=[
                ParameterVerdict(name, verdict, False, False, (), ())
                for verdict, names in outcome.parameters.items()
                for name in names
            ],
            versions=dict(self.versions),
            stack=self.stack,
        )

    def key(self) -> dict[tuple[str, str], Outcome]:
        """By case and variant."""
        return {(one.case, options.id): one for one in self.outcomes for options in one.variants}


def read_observed(path: Path) -> Observed:
    """Raises ObservedError with every fault, each with its line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ObservedError([f"{path}: cannot be read: {error}"]) from None
    again = f"measure the stack again: thawcheck sweep {path.stem} --again"
    faults: list[str] = []
    plain = _objects(path, text, again, faults)
    if not plain or plain[0][0] != 1 or "observed" not in plain[0][1]:
        raise ObservedError([*faults, f"{path}:1: the first line must say what was observed, and does not; {again}"])
    head = plain[0][1]
    if head["observed"] != FORMAT:
        by = head.get("harness", "an unknown thawcheck")
        fault = f"{path}:1: format {head['observed']!r}, written by {by}; this thawcheck reads format {FORMAT}"
        raise ObservedError([*faults, f"{fault}: measure the stack again, or use the thawcheck that wrote it"])
    # A file that was cut off between two lines looks whole but for this.
    if not faults and (count := head.get("outcomes", len(plain) - 1)) != len(plain) - 1:
        faults.append(f"{path}:1: says {count!r} outcomes, and {len(plain) - 1} follow; {again}")
    faults += [f"{path}:1: {fault}" for fault in _head_faults(head, path.stem)]
    outcomes = _outcomes(path, plain[1:], faults)
    if faults:
        raise ObservedError(faults)
    return Observed(
        head["stack"],
        head["harness"],
        head["measured"],
        head["device"],
        head["lock"],
        head["versions"],
        outcomes,
        head.get("unsolvable", ""),
        path,
    )


def _objects(path: Path, text: str, again: str, faults: list[str]) -> list[tuple[int, dict[str, Any]]]:
    """Each line that is a JSON object, with its number."""
    lines = text.splitlines()
    found: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(lines, 1):
        try:
            one = json.loads(line)
        except ValueError:
            cut = ", perhaps cut off by a kill" if number == len(lines) else ""
            faults.append(f"{path}:{number}: is no JSON{cut}; {again}")
            continue
        if isinstance(one, dict):
            found.append((number, one))
        else:
            faults.append(f"{path}:{number}: must be a JSON object, found {line[:40]!r}")
    return found


def _head_faults(head: Mapping[str, Any], stem: str) -> list[str]:
    texts = ("stack", "harness", "measured", "device", "lock")
    missing = [key for key in (*texts, "versions") if key not in head]
    faults = [f"{', '.join(missing)} missing"] if missing else []
    faults += [f"{key} must be a text, found {head[key]!r}" for key in texts if not isinstance(head.get(key, ""), str)]
    if not isinstance(head.get("unsolvable", ""), str):
        faults.append(f"unsolvable must be a text, found {head['unsolvable']!r}")
    versions = head.get("versions", {})
    if not isinstance(versions, dict) or not all(isinstance(one, str) for one in versions.values()):
        faults.append(f"versions must be packages and versions, found {versions!r}")
    else:
        faults += [
            f"versions: {package} {one!r} is no version" for package, one in versions.items() if not _is_version(one)
        ]
    if head.get("stack", stem) != stem:
        faults.append(f"is of stack {head['stack']!r}, but the file is called {stem!r}")
    return faults


def _is_version(text: str) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _outcomes(path: Path, plain: list[tuple[int, dict[str, Any]]], faults: list[str]) -> tuple[Outcome, ...]:
    found: list[Outcome] = []
    first: dict[tuple[str, str], int] = {}
    for number, one in plain:
        try:
            outcome = Outcome.from_dict(one)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            faults.append(f"{path}:{number}: is no outcome: {type(error).__name__}: {error}")
            continue
        found.append(outcome)
        for options in outcome.variants:
            key = (outcome.case, options.id)
            if key in first:
                what = f"{outcome.case}[{options.id}] has an outcome in line {first[key]} already"
                faults.append(f"{path}:{number}: {what}")
            first.setdefault(key, number)
    return tuple(found)


def load_all(folder: Path) -> dict[str, Observed]:
    """Every file of a folder, by stack.  Raises ObservedError with the faults of all of them."""
    found: dict[str, Observed] = {}
    faults: list[str] = []
    for path in sorted(folder.glob("*.jsonl")):
        try:
            found[path.stem] = read_observed(path)
        except ObservedError as error:
            faults += error.faults
    if faults:
        raise ObservedError(faults)
    return found
