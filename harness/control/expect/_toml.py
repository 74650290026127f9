"""Entries as the TOML that a person would write."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from harness.cell.outcome._expect import Expectation

__all__ = ["file_text", "header_of", "other_comments", "tables"]

_WIDTH: Final = 120


def header_of(text: str) -> str:
    """The comment that a file begins with."""
    lines = []
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            break
        lines.append(line.rstrip())
    return "\n".join(lines).strip()


def other_comments(text: str) -> list[int]:
    """The lines of comments that are not of the header."""
    after = len(header_of(text).splitlines())
    return [number for number, line in enumerate(text.splitlines(), 1) if line.startswith("#") and number > after]


def file_text(header: str, entries: Iterable[Expectation]) -> str:
    """A whole file."""
    return "\n\n".join([*filter(None, [header]), *(_table(*one) for one in tables(entries))]) + "\n"


def tables(entries: Iterable[Expectation]) -> list[tuple[list[str], Expectation]]:
    """Entries that differ in nothing but the case are one; it stands where the first of them did."""
    found: list[tuple[list[str], Expectation]] = []
    for entry in entries:
        bare = dataclasses.replace(entry, case="", source="")
        for cases, one in found:
            if one == bare:
                cases.append(entry.case)
                break
        else:
            found.append(([entry.case], bare))
    return found


def _table(cases: list[str], entry: Expectation) -> str:
    told: dict[str, Any] = {
        "case": _short(cases),
        "verdict": str(entry.verdict),
        "where": {axis: _short(values) for axis, values in entry.where.items()},
        "device": entry.device,
        "world": entry.world,
        "versions": dict(entry.versions),
        "seen": dict(entry.seen),
        "parameters": list(entry.parameters),
        "also": {str(verdict): list(patterns) for verdict, patterns in entry.also.items()},
        "moment": entry.moment,
        "type": entry.type,
        "message": entry.message,
        "note": entry.note,
        "refs": list(entry.refs),
    }
    lines = [_line(key, value) for key, value in told.items() if value not in (None, "", [], {})]
    return "\n".join(["[[expect]]", *lines])


def _short(values: Sequence[Any]) -> Any:
    return values[0] if len(values) == 1 else list(values)


def _line(key: str, value: Any) -> str:
    line = f"{key} = {_value(value)}"
    return line if len(line) <= _WIDTH else f"{key} = {_value(value, wide=False)}"


def _value(value: Any, *, wide: bool = True) -> str:
    """:param wide: on one line; else a line for each part of a list, which TOML allows in a table of one line, too."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_value(one, wide=wide)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        parts = [_value(one) for one in value]
        return f"[{', '.join(parts)}]" if wide else "\n".join(["[", *(f"  {one}," for one in parts), "]"])
    if isinstance(value, str):
        return _string(value)
    return json.dumps(value)


def _string(text: str) -> str:
    """Regular expressions are literal strings, where a backslash is one."""
    if "\\" in text and "'" not in text and text.isprintable():
        return f"'{text}'"
    # JSON's escapes are TOML's, but that TOML wants one for this character, too.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
