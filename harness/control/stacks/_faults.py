"""What is wrong with a file of the matrix: all of it at once, each fault with its line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

__all__ = ["Faults", "MatrixError"]

_TABLE = re.compile(r"\s*\[\[?\s*(?P<name>[^\[\]]+?)\s*\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"\s*(?P<name>\"[^\"]+\"|'[^']+'|[A-Za-z0-9_-]+)\s*=")


class MatrixError(Exception):
    """Files that cannot be used."""

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(faults))


class Faults:
    """Collects what is wrong with one TOML file, and knows in which line each table and key stands."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._lines = _lines_of(text)
        self.found: list[str] = []

    def add(self, place: Sequence[str | int], fault: str) -> None:
        """A fault at a table or key, e.g. ``("sweep", "deepspeed", "range")``; a number is which of an array."""
        line = self._line(place)
        shown = ".".join(f"[{part + 1}]" if isinstance(part, int) else part for part in place).replace(".[", "[")
        where = f"{self._path}:{line}" if line else f"{self._path}"
        self.found.append(f"{where}: {shown}: {fault}" if shown else f"{where}: {fault}")

    def unknown(self, place: Sequence[str | int], keys: Iterable[str], known: Sequence[str]) -> None:
        """Keys that nothing reads."""
        for key in keys:
            if key not in known:
                self.add((*place, key), f"unknown key; known are {', '.join(known)}")

    def finish(self) -> None:
        """Raises MatrixError if anything was found."""
        if self.found:
            raise MatrixError(self.found)

    def _line(self, place: Sequence[str | int]) -> int | None:
        """Of the innermost part that has a line of its own."""
        for end in range(len(place), 0, -1):
            if line := self._lines.get(tuple(place[:end])):
                return line
        return None


def _lines_of(text: str) -> dict[tuple[str | int, ...], int]:
    """Table or key -> line number.  Tables are told apart by their headers, so a string over several lines
    that looks like one misleads; then a fault is shown at a wrong line, and nothing worse."""
    found: dict[tuple[str | int, ...], int] = {}
    table: tuple[str | int, ...] = ()
    arrays: dict[tuple[str | int, ...], int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if header := _TABLE.fullmatch(line):
            parts = tuple(part.strip().strip("\"'") for part in _split(header["name"]))
            if line.lstrip().startswith("[["):
                arrays[parts] = arrays.get(parts, -1) + 1
                table = (*parts, arrays[parts])
            else:
                table = parts
                found.setdefault(parts[:1], number)
            found.setdefault(table, number)
        elif key := _KEY.match(line):
            found.setdefault((*table, key["name"].strip("\"'")), number)
    return found


def _split(name: str) -> list[str]:
    """A dotted table name into its parts; a quoted part may hold dots."""
    return re.findall(r"\"[^\"]+\"|'[^']+'|[^.\s]+", name)
