"""In which line of a TOML file each table and key stands: the parser of the standard library does not say."""

from __future__ import annotations

import re

__all__ = ["lines_of"]

_TABLE = re.compile(r"\s*\[\[?\s*(?P<name>[^\[\]]+?)\s*\]\]?\s*(?:#.*)?")
_PART = r"(?:\"[^\"]+\"|'[^']+'|[A-Za-z0-9_-]+)"
_KEY = re.compile(rf"\s*(?P<name>{_PART}(?:\s*\.\s*{_PART})*)\s*=")


def lines_of(text: str) -> dict[tuple[str | int, ...], int]:
    """Table or key -> line number; a number in a place is which of an array of tables.

    Tables are told apart by their headers, so a string over several lines that looks like one misleads; then
    a fault is shown at a wrong line, and nothing worse.
    """
    found: dict[tuple[str | int, ...], int] = {}
    table: tuple[str | int, ...] = ()
    arrays: dict[tuple[str | int, ...], int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if header := _TABLE.fullmatch(line):
            parts = _split(header["name"])
            if line.lstrip().startswith("[["):
                arrays[parts] = arrays.get(parts, -1) + 1
                table = (*parts, arrays[parts])
            else:
                table = parts
                found.setdefault(parts[:1], number)
            found.setdefault(table, number)
        elif key := _KEY.match(line):
            parts = _split(key["name"])
            for end in range(1, len(parts) + 1):
                found.setdefault((*table, *parts[:end]), number)
    return found


def _split(name: str) -> tuple[str, ...]:
    """A dotted name into its parts; a quoted part may hold dots."""
    return tuple(part.strip("\"'") for part in re.findall(r"\"[^\"]+\"|'[^']+'|[^.\s]+", name))
