"""What a report is made of: observed stacks, and results files."""

from __future__ import annotations

import dataclasses
import json
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from harness.cell._options import Options
from harness.cell.outcome._observed import Observed, ObservedError, read_observed
from harness.cell.outcome._record import CaseRecord
from harness.cell.outcome._verdict import Verdict
from harness.cell.ranks._device import DEVICES
from harness.control._fresh import fresh
from harness.control.sweep._condense import condense

__all__ = ["Extra", "SourceError", "Sources", "read_sources"]

#: Of stacks and messages; a report is read, and not a log.
_LONGEST: Final = 4000

#: (case, variant) -> what only a results file tells
Extra = Mapping[tuple[str, str], Mapping[str, Any]]


class SourceError(Exception):
    """Sources that cannot be used; every fault of all of them."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)


@dataclasses.dataclass(frozen=True)
class Sources:
    stacks: tuple[Observed, ...]
    #: as many as stacks
    extras: tuple[Extra, ...]


def read_sources(paths: Iterable[Path]) -> Sources:
    """Observed files, results files, and folders of either.  Raises SourceError with every fault."""
    stacks: list[Observed] = []
    extras: list[Extra] = []
    faults: list[str] = []
    for path in paths:
        files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
        if not path.exists():
            faults.append(f"{path}: there is no such file or folder")
        elif not files:
            faults.append(f"{path}: there is no *.jsonl in it, so nothing was observed there")
        else:
            for file in files:
                try:
                    for one, extra in _read(file):
                        stacks.append(one)
                        extras.append(extra)
                except (ObservedError, SourceError) as error:
                    faults += error.faults
    if faults:
        raise SourceError(faults)
    return Sources(tuple(stacks), tuple(extras))


def _read(path: Path) -> Iterator[tuple[Observed, Extra]]:
    try:
        with path.open("rb") as file:
            first = file.readline()
    except OSError as error:
        raise SourceError([f"{path}: cannot be read: {error.strerror}"]) from None
    if not first.strip():
        raise SourceError([f"{path}: is empty: no case has ended yet, or it was cut off"])
    if b'"observed"' in first:
        yield fresh(read_observed(path)), {}
        return
    records = _records(path)
    by_stack: dict[str, list[CaseRecord]] = {}
    for record in records:
        by_stack.setdefault(record.stack or path.stem, []).append(record)
    for stack, some in by_stack.items():
        try:
            made = condense(some, stack=stack, lock="")
        except ValueError as error:
            raise SourceError([f"{path}: {error}"]) from None
        yield dataclasses.replace(made, path=path), {_key(one): _extra(one) for one in some}


def _records(path: Path) -> list[CaseRecord]:
    """Of a results file, whose last line a kill may have cut off."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError([f"{path}: cannot be read: {error}"]) from None
    *lines, cut = text.split("\n")
    found: dict[tuple[str, str, str], CaseRecord] = {}
    faults: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = _record(json.loads(line))
        except (ValueError, RecursionError) as error:
            what = (
                "is no JSON" if isinstance(error, (json.JSONDecodeError, RecursionError)) else f"is no result: {error}"
            )
            faults.append(f"{path}:{number}: {what}; run the suite again, or remove the line")
            continue
        key = (record.stack, *_key(record))
        if key in found:
            faults.append(f"{path}:{number}: {record.case}[{key[2]}] has a result in an earlier line already")
        found[key] = record
    if not found and not faults:
        faults.append(f"{path}: has no whole line{', only the beginning of one' if cut else ''}; run the suite again")
    if faults:
        raise SourceError(faults)
    return list(found.values())


def _record(plain: Any) -> CaseRecord:
    """Raises ValueError, with every fault."""
    if not isinstance(plain, dict):
        raise ValueError(f"it must be a JSON object, found {reprlib.repr(plain)}")  # noqa: TRY004
    if faults := [*_faults(plain)]:
        raise ValueError("; ".join(faults))
    try:
        record = CaseRecord.from_dict({"kind": "", "id": "", "headline": "", "launcher": "", **plain})
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
    if faults := Options(**record.options).faults():
        raise ValueError("; ".join(faults))
    return record


def _faults(plain: Mapping[str, Any]) -> Iterator[str]:
    wanted = {"case": str, "verdict": str, "options": dict, "world": int, "device": str, "versions": dict}
    if missing := [key for key in wanted if key not in plain]:
        yield f"{', '.join(missing)} missing"
    texts = dict.fromkeys(("stack", "harness", "started", "headline"), str)
    for key, kind in {**wanted, **texts, "parameters": list, "stacks": dict, "notes": list}.items():
        if key in plain and not isinstance(plain[key], kind):
            yield f"{key} must be {_WORDS[kind]}, found {reprlib.repr(plain[key])}"
    if isinstance(one := plain.get("verdict"), str) and one not in [*map(str, Verdict)]:
        yield f"no verdict is called {one!r}"
    if isinstance(one := plain.get("device"), str) and one not in DEVICES:
        yield f"no device is called {one!r}; there is: {', '.join(DEVICES)}"
    if isinstance(options := plain.get("options"), dict):
        known = {one.name for one in dataclasses.fields(Options)}
        if unknown := sorted(map(str, {*options} - known)):
            yield f"no setting is called {', '.join(unknown)}"
    if isinstance(versions := plain.get("versions"), dict) and not all(
        isinstance(one, str) for one in versions.values()
    ):
        yield "versions must be texts"


_WORDS: Final = {str: "a text", int: "a number", dict: "an object", list: "a list"}


def _key(record: CaseRecord) -> tuple[str, str]:
    return record.case, Options(**record.options).id


def _extra(record: CaseRecord) -> dict[str, Any]:
    """What observed files leave out, short."""
    found: dict[str, Any] = {}
    if record.headline:
        found["headline"] = record.headline[:_LONGEST]
    if parted := [
        f"{one.name}: at {one.moment} expected {one.expected}; found {one.found}"[:_LONGEST]
        for one in record.parameters
        if one.expected
    ]:
        found["parted"] = parted[:50]
    if record.stacks:
        found["stacks"] = {str(rank): str(stack)[-_LONGEST:] for rank, stack in record.stacks.items()}
    if record.notes:
        found["notes"] = [str(note)[:_LONGEST] for note in record.notes]
    return found
