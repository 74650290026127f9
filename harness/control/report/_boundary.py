"""Where along an axis of versions a case begins or ends to do something."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any

from harness.cell._options import Options
from harness.cell.outcome._verdict import Verdict, headline
from harness.control.expect._where import covers
from harness.control.report._atlas import Atlas
from harness.control.report._columns import Column
from harness.control.report._rows import Row

__all__ = ["Axis", "Band", "Span", "axes_of", "bands_of", "strip_of", "where_text", "words"]


@dataclass(frozen=True)
class Axis:
    """Stacks that differ in one thing, in its order."""

    title: str
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Span:
    """Neighbours on the axis where the verdict is the same; None where nothing was measured."""

    verdict: Verdict | None
    #: first place and the one after the last
    start: int
    end: int


@dataclass(frozen=True)
class Band:
    """Variants of a case that do alike along the whole axis."""

    label: str
    spans: tuple[Span, ...]


def axes_of(atlas: Atlas) -> list[Axis]:
    groups: dict[str, list[Column]] = {}
    for column in atlas.columns:
        if column.moves:
            groups.setdefault(column.group, []).append(column)
    return [Axis(title, tuple(columns)) for title, columns in groups.items() if len(columns) > 1]


def bands_of(atlas: Atlas, row: Row, axis: Axis) -> list[Band]:
    """None where the case was measured nowhere on the axis."""
    alike: dict[tuple[Verdict | None, ...], list[Options]] = {}
    per_column = [_verdicts(atlas, row, column) for column in axis.columns]
    for options in row.variants:
        alike.setdefault(tuple(one.get(options.id) for one in per_column), []).append(options)
    return [
        Band(where_text(tuple(some), row.variants), tuple(_spans(verdicts)))
        for verdicts, some in alike.items()
        if any(one not in (None, Verdict.UNSOLVABLE) for one in verdicts)
    ]


def strip_of(atlas: Atlas, row: Row, axis: Axis) -> Band:
    """All variants of the case in one band: the verdict that it is known by."""
    verdicts = [_verdicts(atlas, row, column).values() for column in axis.columns]
    return Band("", tuple(_spans([headline(some) if some else None for some in verdicts])))


def _verdicts(atlas: Atlas, row: Row, column: Column) -> Mapping[str, Verdict]:
    if column.observed.unsolvable:
        return dict.fromkeys((options.id for options in row.variants), Verdict.UNSOLVABLE)
    return {options.id: outcome.verdict for options, outcome, _ in atlas.variants(row, column)}


def _spans(verdicts: Sequence[Verdict | None]) -> Iterator[Span]:
    start = 0
    for verdict, some in groupby(verdicts):
        end = start + len(list(some))
        yield Span(verdict, start, end)
        start = end


def words(band: Band, axis: Axis) -> str:
    """The band as a sentence: what it does from where to where."""
    parts = []
    for span in band.spans:
        first, last = axis.columns[span.start].label, axis.columns[span.end - 1].label
        where = first if first == last else f"{first} to {last}"
        parts.append(f"{span.verdict or 'not measured'} {where}")
    return "; ".join(parts)


@cache
def where_text(some: tuple[Options, ...], every: tuple[Options, ...]) -> str:
    """Variants by what they have in common and no other has."""
    if len(some) == len(every):
        return "every variant" if len(every) > 1 else every[0].id
    if len(some) == 1:
        return some[0].id
    return "; ".join(_settings(where) if where else "every variant" for where, _ in covers(some, every))


def _settings(where: Mapping[str, tuple[Any, ...]]) -> str:
    return ", ".join(_setting(axis, values) for axis, values in where.items())


def _setting(axis: str, values: Sequence[Any]) -> str:
    if axis == "stage":
        return f"stage{'s' if len(values) > 1 else ''} {_listed(values)}"
    if axis in ("model", "precision"):
        return _listed(values)
    if axis == "init":
        return _listed([{"zero_init": "zero.Init", "plain": "built plainly"}[one] for one in values])
    if axis == "persistence":
        return _listed([{"zero": "all partitioned", "default": "small ones kept whole"}[one] for one in values])
    return _listed([f"no {axis}" if one in ("none", 0) else f"{axis} {one}" for one in values])


def _listed(values: Sequence[Any]) -> str:
    *others, last = map(str, values)
    return f"{', '.join(others)} or {last}" if others else last
