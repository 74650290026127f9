"""Plain text in columns."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["columns"]

_Row = tuple[str, ...]


def columns(head: _Row, rows: Iterable[_Row]) -> list[str]:
    """Lines in columns: the first to the left, the others, which are figures, to the right."""
    lines = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, tuple("-" * width for width in widths))
    return ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip() for line in lines]
