"""The figures as plain text."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks._bounds import Check
from benchmarks._columns import columns
from benchmarks._figures import Figures

__all__ = ["render"]

_Row = tuple[str, ...]


def render(figures: Figures, checks: Sequence[Check]) -> str:
    """Two tables: what a case costs in each design, and which bounds are met."""
    costs = columns(("design", "median s", "min s", "max s", "times the zygote"), _cost_rows(figures))
    bounds = columns(("the zygote", "wanted", "found", ""), [_check_row(one) for one in checks])
    start = f"The zygote started in {figures.zygote_start_seconds:.1f} s, once for all cases."
    return "\n".join([*costs, "", *bounds, "", start])


def _cost_rows(figures: Figures) -> list[_Row]:
    rows: list[_Row] = []
    for design, label in figures.labels.items():
        samples = figures.samples(design)
        seconds = (statistics.median(samples), min(samples), max(samples))
        rows.append((label, *(f"{one:.2f}" for one in seconds), f"{figures.ratio(design, 'zygote'):.2f}"))
    return rows


def _check_row(one: Check) -> _Row:
    digits = 0 if one.bound.sign == "==" else 2
    wanted = f"{one.bound.sign} {one.bound.limit:g} {one.bound.unit}"
    found = f"{one.found:.{digits}f} {one.bound.unit}"
    return one.bound.what, wanted.rstrip(), found.rstrip(), "met" if one.met else "MISSED"
