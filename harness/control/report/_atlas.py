"""Cases against stacks: all that a report shows, in whatever shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Final

from harness.cell._options import Options
from harness.cell.outcome._expect import Expectations, differences
from harness.cell.outcome._observed import Outcome
from harness.control.report._columns import Column, columns_of
from harness.control.report._rows import Row, rows_for
from harness.control.report._sources import Sources
from harness.control.stacks import Stack

__all__ = ["Atlas", "Cell", "make_atlas"]


_FIRST: Final = ("deepspeed", "torch", "transformers", "accelerate", "peft", "axolotl", "python", "numpy")


@dataclass(frozen=True)
class Cell:
    """One case on one stack."""

    #: variant -> what it did; in the order of the row's variants
    outcomes: Mapping[str, Outcome]
    #: variant -> in words, how it differs from what is expected; those that do not are left out
    surprises: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Atlas:
    columns: Sequence[Column]
    rows: Sequence[Row]
    #: case and key of the column; what was not measured is left out
    cells: Mapping[tuple[str, str], Cell]
    #: whether verdicts were held against expectations
    judged: bool

    @cached_property
    def kinds(self) -> list[str]:
        return list(dict.fromkeys(row.kind for row in self.rows))

    @cached_property
    def packages(self) -> list[str]:
        """Those that matter most first, others by name."""
        names = {name for column in self.columns for name in column.versions}
        return [*(name for name in _FIRST if name in names), *sorted(names - {*_FIRST})]

    @cached_property
    def by_case(self) -> Mapping[str, list[Cell]]:
        found: dict[str, list[Cell]] = {}
        for (name, _), cell in self.cells.items():
            found.setdefault(name, []).append(cell)
        return found

    def variants(self, row: Row, column: Column) -> Iterator[tuple[Options, Outcome, str]]:
        """What each did, and how that differs from what is expected."""
        cell = self.cells.get((row.name, column.key))
        if cell is None:
            return
        for options in row.variants:
            outcome = cell.outcomes.get(options.id)
            if outcome is not None:
                yield options, outcome, cell.surprises.get(options.id, "")


def make_atlas(sources: Sources, stacks: Mapping[str, Stack], expectations: Expectations | None) -> Atlas:
    """:raises ExpectationError: where two expectations apply to one verdict."""
    columns = columns_of(sources.stacks, sources.extras, stacks)
    outcomes: dict[tuple[str, str], dict[str, Outcome]] = {}
    surprises: dict[tuple[str, str], dict[str, str]] = {}
    seen: dict[str, dict[Options, None]] = {}
    for column in columns:
        for outcome in column.observed.outcomes:
            place = outcome.case, column.key
            into = outcomes.setdefault(place, {})
            for options in outcome.variants:
                seen.setdefault(outcome.case, {})[options] = None
                into[options.id] = outcome
            if expectations is not None and (found := dict(_surprises(column, outcome, expectations))):
                surprises.setdefault(place, {}).update(found)
    rows = rows_for(seen, {name: list(some) for name, some in seen.items()})
    cells = {place: Cell(some, surprises.get(place, {})) for place, some in outcomes.items()}
    return Atlas(columns, rows, cells, expectations is not None)


def _surprises(column: Column, outcome: Outcome, expectations: Expectations) -> Iterator[tuple[str, str]]:
    """Variant, and how it differs from what is expected."""
    # One record for all variants, and one comparison with each entry: there are very many variants.
    record = column.observed.record(outcome, outcome.variants[0])
    told: dict[int, str] = {}
    for options in outcome.variants:
        record.options, record.id = _settings(options), f"{outcome.case}[{options.id}]"
        entry = expectations.of(record)
        if id(entry) not in told:
            told[id(entry)] = "; ".join(differences(record, entry))
        if text := told[id(entry)]:
            yield options.id, text


_settings: Final = cache(Options.as_dict)
