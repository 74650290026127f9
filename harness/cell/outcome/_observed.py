"""matrix/observed/NAME.jsonl: a head, then a line for each outcome with the variants that had it.

The same measurement gives the same bytes whoever repeats it, but for the head's date and harness: so a diff
of this folder shows changed verdicts and nothing else.
"""

from __future__ import annotations

import datetime as dt
import json
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from harness.cell._options import Options
from harness.cell.outcome._record import CaseRecord, Failure, ParameterVerdict
from harness.cell.outcome._results import as_line
from harness.cell.outcome._verdict import Verdict
from harness.cell.ranks._device import DEVICES

__all__ = ["FORMAT", "Observed", "ObservedError", "Outcome", "load_all", "read_observed"]

#: Of the file.  Raised when a field changes its meaning or goes.
FORMAT = 1


#: Many lines, and many files, name the same few variants.
_variant: Final = cache(Options.from_id)


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
    #: digest of the case's code that was measured; empty where that is not known
    code: str = ""

    def as_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = {
            "case": self.case,
            **({"code": self.code} if self.code else {}),
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
        """Raises ValueError, with every fault of the values, where it is no outcome."""
        if faults := [*_outcome_faults(plain)]:
            raise ValueError("; ".join(faults))
        failure = plain.get("failure")
        return cls(
            plain["case"],
            Verdict(plain["verdict"]),
            tuple(map(_variant, plain["variants"])),
            plain["world"],
            {Verdict(verdict): tuple(names) for verdict, names in plain.get("parameters", {}).items()},
            Failure(failure["moment"], failure["type"], failure["message"]) if failure else None,
            plain.get("code", ""),
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
            code=outcome.code,
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
    # A bool is an int to Python, and true is 1.
    if type(head["observed"]) is not int or head["observed"] != FORMAT:
        by = head.get("harness", "an unknown thawcheck")
        fault = f"{path}:1: format {_shown(head['observed'])}, written by {by if isinstance(by, str) else _shown(by)}"
        what = f"this thawcheck reads format {FORMAT}: measure the stack again, or use the thawcheck that wrote it"
        raise ObservedError([*faults, f"{fault}; {what}"])
    # A file that was cut off between two lines looks whole but for this.
    count = head.get("outcomes", len(plain) - 1)
    if not faults and (type(count) is not int or count != len(plain) - 1):
        faults.append(f"{path}:1: says {_shown(count)} outcomes, and {len(plain) - 1} follow; {again}")
    faults += [f"{path}:1: {fault}" for fault in _head_faults(head, path.stem)]
    if head.get("unsolvable") and len(plain) > 1:
        faults.append(f"{path}:{plain[1][0]}: has an outcome, but line 1 says that the stack is unsolvable; {again}")
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
    # At line feeds alone: a message may hold other ends of lines, which JSON leaves as they are.
    lines = text.removesuffix("\n").split("\n") if text else []
    found: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(lines, 1):
        try:
            one = json.loads(line)
        except ValueError:
            cut = ", perhaps cut off by a kill" if number == len(lines) else ""
            faults.append(f"{path}:{number}: is no JSON{cut}; {again}")
            continue
        except RecursionError:
            faults.append(f"{path}:{number}: is nested too deeply; {again}")
            continue
        if isinstance(one, dict):
            found.append((number, one))
        else:
            faults.append(f"{path}:{number}: must be a JSON object, found {line[:40]!r}")
    return found


def _shown(value: Any) -> str:
    """A value in a message: short, and however deep it is nested."""
    return reprlib.repr(value)


def _head_faults(head: Mapping[str, Any], stem: str) -> Iterator[str]:
    texts = ("stack", "harness", "measured", "device", "lock")
    if missing := [key for key in (*texts, "versions") if key not in head]:
        yield f"{', '.join(missing)} missing"
    for key in (*texts, "unsolvable"):
        if not isinstance(head.get(key, ""), str):
            yield f"{key} must be a text, found {_shown(head[key])}"
    if "versions" in head:
        yield from _version_faults(head["versions"], unsolvable=bool(head.get("unsolvable")))
    measured, device, stack = head.get("measured"), head.get("device"), head.get("stack")
    if isinstance(measured, str) and not _is_day(measured):
        yield f"measured must be a day as YYYY-MM-DD, found {_shown(measured)}"
    if isinstance(device, str) and device not in DEVICES:
        yield f"no device is called {_shown(device)}; there is: {', '.join(DEVICES)}"
    if isinstance(stack, str) and stack != stem:
        yield f"is of stack {stack!r}, but the file is called {stem!r}"


def _version_faults(versions: Any, *, unsolvable: bool) -> Iterator[str]:
    if not isinstance(versions, dict) or not all(isinstance(one, str) for one in versions.values()):
        yield f"versions must be packages and versions, found {_shown(versions)}"
        return
    if not versions and not unsolvable:
        yield "versions must say what was installed, and are empty"
    for package, one in versions.items():
        if not _is_version(one):
            yield f"versions: {package} {one!r} is no version"


def _is_day(text: str) -> bool:
    try:
        # Newer Pythons read other spellings, too, which do not sort as days do.
        return dt.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _is_version(text: str) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _outcome_faults(plain: Mapping[str, Any]) -> Iterator[str]:
    if missing := [key for key in ("case", "verdict", "world", "variants") if key not in plain]:
        yield f"{', '.join(missing)} missing"
    for key in ("case", "verdict", "code"):
        if not isinstance(plain.get(key, ""), str):
            yield f"{key} must be a text, found {_shown(plain[key])}"
    world = plain.get("world", 1)
    if type(world) is not int or world < 1:
        yield f"world must be a number of ranks, 1 or more, found {_shown(world)}"
    if "variants" in plain and not _are_texts(plain["variants"]):
        yield f"variants must be a list of one or more, found {_shown(plain['variants'])}"
    parameters = plain.get("parameters", {})
    if not isinstance(parameters, dict) or not all(map(_are_texts, parameters.values())):
        yield f"parameters must be verdicts, each with a list of names, found {_shown(parameters)}"
    if "failure" in plain and not _is_failure(plain["failure"]):
        yield f"failure must be a moment, a type and a message, all texts, found {_shown(plain['failure'])}"


def _are_texts(value: Any) -> bool:
    """Whether it is a list of texts, with something in it."""
    # Of JSON, so of this very type: faster than to ask each.
    return isinstance(value, list) and {*map(type, value)} == {str}


def _is_failure(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(key), str) for key in ("moment", "type", "message"))


def _outcomes(path: Path, plain: list[tuple[int, dict[str, Any]]], faults: list[str]) -> tuple[Outcome, ...]:
    found: list[Outcome] = []
    first: dict[tuple[str, str], int] = {}
    for number, one in plain:
        try:
            outcome = Outcome.from_dict(one)
        except ValueError as error:
            faults.append(f"{path}:{number}: is no outcome: {error}")
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
