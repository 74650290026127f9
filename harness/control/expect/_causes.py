"""matrix/causes.toml: causes that many cases share, so that no entry of theirs is left without a word.

A table ``[[cause]]`` has the keys of an entry (harness/cell/outcome/_expect.py), of which ``note`` is needed and
``case`` may be left out.  It explains an entry whose verdict is its own, whose message, if it has one, it matches,
and all of whose stacks and variants it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from harness.cell.outcome._expect import Expectation
from harness.cell.outcome._expect_faults import faults_of, listed
from harness.cell.outcome._verdict import Verdict
from harness.control.expect._shrink import Draft
from harness.control.stacks import MatrixError
from harness.control.stacks._releases import read_toml

__all__ = ["Cause", "explaining", "read_causes"]

#: A cause: an entry of any case where ``case`` is empty.
Cause = Expectation


def read_causes(path: Path) -> tuple[list[Cause], list[str]]:
    """Those without a fault, and every fault of the others, with file and line; none where there is no file."""
    if not path.exists():
        return [], []
    try:
        plain, faults = read_toml(path)
    except MatrixError as error:
        return [], [*error.faults]
    for key in sorted({*plain} - {"cause"}):
        faults.add((key,), f"unknown table {key!r}; causes are [[cause]]")
    given = plain.get("cause", [])
    if not isinstance(given, list):
        faults.add(("cause",), "causes are [[cause]], with two brackets each")
        given = []
    found: list[Cause] = []
    for number, one in enumerate(given):
        wrong = _faults(one)
        for key, fault in wrong:
            faults.add(("cause", number, *([key] if key else [])), fault)
        if not wrong:
            found += _made(one, f"{path.name}, cause {number + 1}")
    return found, list(faults.found)


def _faults(one: Any) -> list[tuple[str, str]]:
    if not isinstance(one, dict):
        return faults_of(one)
    # What an entry must say and a cause need not.
    found = faults_of({"case": "any", "moment": "any", "type": "any", **one} if _fails(one) else {"case": "any", **one})
    if not one.get("note"):
        found.append(("note", "a cause needs a note: what is it?"))
    return found


def _fails(one: dict[str, Any]) -> bool:
    return one.get("verdict") == str(Verdict.RAISES)


def _made(one: dict[str, Any], source: str) -> Iterable[Cause]:
    for case in listed(one.get("case", "")):
        yield Cause(
            Verdict(one["verdict"]),
            case,
            {axis: listed(values) for axis, values in one.get("where", {}).items()},
            one.get("versions", {}),
            moment=one.get("moment"),
            type=one.get("type"),
            message=one.get("message"),
            note=one["note"],
            refs=tuple(one.get("refs", ())),
            source=source,
        )


def explaining(draft: Draft, causes: Sequence[Cause]) -> list[Cause]:
    """Those that hold for all that an entry was made of."""
    stacks = [{package: str(one) for package, one in point.versions.items()} for point in draft.points]
    said = {point.outcome.failure.message for point in draft.points if point.outcome.failure}
    return [
        one
        for one in causes
        if one.verdict is draft.entry.verdict
        and one.case in ("", draft.entry.case)
        and one.type in (None, draft.entry.type)
        and one.moment in (None, draft.entry.moment)
        and (one.message is None or (said and all(re.search(one.message, text) for text in said)))
        and all(map(one.speaks_of, draft.variants))
        and all(map(one.holds_on, stacks))
    ]
