"""A report as JSON, after the schema that is published beside this file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from harness import __version__
from harness.cell.outcome._observed import Outcome
from harness.cell.outcome._results import as_line
from harness.control.report._atlas import Atlas
from harness.control.report._columns import Column
from harness.control.report._look import LOOKS, SHOWN
from harness.control.report._rows import Row
from harness.control.report._tally import total

__all__ = ["SCHEMA_FILE", "VERSION", "as_json", "schema"]

#: Of the schema.  Raised when a field changes its meaning or goes; a new field raises nothing.
VERSION: Final = 1
SCHEMA_FILE: Final = Path(__file__).with_name("schema.json")


def schema() -> str:
    return SCHEMA_FILE.read_text(encoding="utf-8")


def as_json(atlas: Atlas) -> str:
    counts = total(atlas)
    plain = {
        "format": "thawcheck-report",
        "version": VERSION,
        "harness": __version__,
        "judged": atlas.judged,
        "summary": {
            "stacks": len(atlas.columns),
            "cases": len(atlas.rows),
            "verdicts": {str(verdict): count for verdict, count in counts.counts.items()},
            "surprises": counts.surprises,
        },
        "verdicts": [{"name": str(one), "symbol": LOOKS[one].symbol, "means": LOOKS[one].means} for one in SHOWN],
        "stacks": [_stack(column) for column in atlas.columns],
        "cases": [_case(row) for row in atlas.rows],
        "outcomes": [one for row in atlas.rows for column in atlas.columns for one in _outcomes(atlas, row, column)],
    }
    # Strict JSON, then readable.
    return f"{json.dumps(json.loads(as_line(plain)), indent=1)}\n"


def _stack(column: Column) -> dict[str, Any]:
    observed = column.observed
    plain = {
        "key": column.key,
        "stack": observed.stack,
        "group": column.group,
        "device": observed.device,
        "measured": observed.measured,
        "harness": observed.harness,
        "versions": dict(observed.versions),
    }
    return plain | ({"unsolvable": observed.unsolvable} if observed.unsolvable else {})


def _case(row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "kind": row.kind,
        "recipe": row.recipe,
        "moment": row.moment,
        "happens": row.happens,
        "instead": row.instead,
        "cure": row.cure,
        "references": list(row.refs),
        "drivers": list(row.drivers),
        "variants": [options.id for options in row.variants],
    }


def _outcomes(atlas: Atlas, row: Row, column: Column) -> Iterator[dict[str, Any]]:
    alike: dict[tuple[int, str], tuple[Outcome, list[str]]] = {}
    for options, outcome, surprise in atlas.variants(row, column):
        alike.setdefault((id(outcome), surprise), (outcome, []))[1].append(options.id)
    for (_, surprise), (outcome, variants) in alike.items():
        plain = {**outcome.as_dict(), "variants": variants, "stack": column.key}
        yield plain | ({"surprise": surprise} if surprise else {})
