"""Verdicts counted: by kind, by stack, by case, and those that are not as expected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from harness.cell.outcome._verdict import Verdict
from harness.control.report._atlas import Atlas
from harness.control.report._columns import Column
from harness.control.report._look import SHOWN
from harness.control.report._rows import Row, kind_title

__all__ = ["BY", "Surprise", "Tally", "number", "summary", "surprises", "tallies", "total"]


@dataclass(frozen=True)
class Tally:
    """A line of a table."""

    name: str
    #: in a few words, what that is
    about: str
    counts: Mapping[Verdict, int]
    surprises: int


@dataclass(frozen=True)
class Surprise:
    """Variants of a case that on one stack differ alike from what is expected."""

    row: Row
    column: Column
    verdict: Verdict
    told: str
    variants: tuple[str, ...]


def number(count: int, thing: str) -> str:
    return f"{count:,} {thing}" + ("" if count == 1 else "s")


def summary(atlas: Atlas) -> str:
    """One line about all of it."""
    count = sum(len(cell.outcomes) for cell in atlas.cells.values())
    days = sorted({column.observed.measured for column in atlas.columns if column.observed.measured})
    when = f", measured {days[0]}{f' to {days[-1]}' if len(days) > 1 else ''}" if days else ""
    stacks, cases = number(len(atlas.columns), "stack"), number(len(atlas.rows), "case")
    return f"{stacks}, {cases}, {number(count, 'verdict')}{when}"


def total(atlas: Atlas) -> Tally:
    return next(iter(_grouped(atlas, lambda *_: ("all", ""))), Tally("all", "", {}, 0))


def tallies(atlas: Atlas, by: str) -> list[Tally]:
    """A line for each kind, stack or case, in the order of the atlas."""
    return list(_grouped(atlas, BY[by]))


def _grouped(atlas: Atlas, name_of: Callable[[Row, Column], tuple[str, str]]) -> Iterator[Tally]:
    counts: dict[tuple[str, str], Counter[Verdict]] = {}
    odd: Counter[tuple[str, str]] = Counter()
    for column in atlas.columns:
        for row in atlas.rows:
            cell = atlas.cells.get((row.name, column.key))
            if cell is not None:
                counts.setdefault(name_of(row, column), Counter()).update(one.verdict for one in cell.outcomes.values())
                odd[name_of(row, column)] += len(cell.surprises)
        if column.observed.unsolvable:
            for row in atlas.rows[:1]:
                counts.setdefault(name_of(row, column), Counter())
    order = dict.fromkeys(name_of(row, column) for row in atlas.rows for column in atlas.columns)
    for name in order:
        if name in counts:
            yield Tally(*name, {one: counts[name][one] for one in SHOWN if counts[name][one]}, odd[name])


def _versions(column: Column) -> str:
    if column.observed.unsolvable:
        return f"UNSOLVABLE: {column.observed.unsolvable}"
    return ", ".join(f"{name} {column.versions[name]}" for name in _TOLD if name in column.versions)


_TOLD: Final = ("deepspeed", "torch", "transformers", "axolotl")

BY: Final[Mapping[str, Callable[[Row, Column], tuple[str, str]]]] = {
    "kind": lambda row, _: (row.kind, kind_title(row.kind)),
    "stack": lambda _, column: (column.key, _versions(column)),
    "case": lambda row, _: (row.name, f"{row.recipe}, {row.moment}" if row.moment else row.recipe),
}


def surprises(atlas: Atlas) -> Iterator[Surprise]:
    for row in atlas.rows:
        for column in atlas.columns:
            alike: dict[tuple[Verdict, str], list[str]] = {}
            for options, outcome, told in atlas.variants(row, column):
                if told:
                    alike.setdefault((outcome.verdict, told), []).append(options.id)
            for (verdict, told), variants in alike.items():
                yield Surprise(row, column, verdict, told, tuple(variants))
