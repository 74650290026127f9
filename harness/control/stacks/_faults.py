"""What is wrong with a file of the matrix: all of it at once, each fault with its line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from harness.cell._toml_lines import lines_of

__all__ = ["Faults", "MatrixError"]


class MatrixError(Exception):
    """Files that cannot be used."""

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(faults))


class Faults:
    """Collects what is wrong with one TOML file, and knows in which line each table and key stands."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._lines = lines_of(text)
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
