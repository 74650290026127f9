"""One record at the terminal: headline, every parameter, stacks, logs."""

from __future__ import annotations

from collections.abc import Sequence

from harness.cell.outcome._record import CaseRecord, ParameterVerdict

__all__ = ["conclusion", "details", "parameter_table", "record_text"]

_HEADS = ("parameter", "verdict", "meant", "flag", "group", "grad error", "moved", "twin moved")

#: Only where a parameter is meant to train in part.
_ROW_HEADS = ("rows meant", "rows moved")


def parameter_table(record: CaseRecord) -> str:
    """A line per parameter; empty when none was measured."""
    if not record.parameters:
        return ""
    more = any(one.rows for one in record.parameters)
    heads: tuple[str, ...] = (*_HEADS, *_ROW_HEADS) if more else _HEADS
    rows = [heads, *(_cells(one) + (_row_cells(one) if more else ()) for one in record.parameters)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "-" * len(lines[0]))
    return "\n".join(lines)


def _cells(one: ParameterVerdict) -> tuple[str, ...]:
    return (
        one.name,
        str(one.verdict) + (f" (rank {one.rank})" if one.rank is not None else ""),
        "trains" if one.intended else "frozen",
        "on" if one.flag else "off",
        "-" if one.group is None else str(one.group),
        "-" if one.grad_error is None else f"{one.grad_error:.1e}",
        "-" if one.moved is None else f"{one.moved:.1e}",
        "-" if one.twin_moved is None else f"{one.twin_moved:.1e}",
    )


def _row_cells(one: ParameterVerdict) -> tuple[str, ...]:
    return (one.rows or "-", one.moved_rows or "-")


def conclusion(record: CaseRecord, differences: Sequence[str], advice: Sequence[str] = ()) -> str:
    """Whether the verdict is the expected one, and if not, how it differs and what helps to find out why."""
    if differences:
        return "\n".join([*(f"DIFFERS: {one}" for one in differences), *(f"  {one}" for one in advice)])
    return f"as expected ({(record.expected or {}).get('source', 'default')})"


def record_text(
    record: CaseRecord, differences: Sequence[str] = (), logs: Sequence[str] = (), advice: Sequence[str] = ()
) -> str:
    """All of it, as ``thawcheck run`` prints it; what to conclude stands last."""
    gap = "\n\n" if differences or logs else "\n"
    return f"{details(record, logs)}{gap}{conclusion(record, differences, advice)}"


def details(record: CaseRecord, logs: Sequence[str] = ()) -> str:
    """All that was seen."""
    parts = [f"{record.id}, world {record.world}, {record.device}: {record.verdict}", record.headline]
    if table := parameter_table(record):
        parts += ["", table]
    faults = [one for one in record.parameters if one.expected]
    if faults:
        parts.append("")
        parts += [f"{one.name}: at {one.moment} expected {one.expected}; found {one.found}" for one in faults]
    parts += [f"note: {note}" for note in record.notes]
    for rank, stack in record.stacks.items():
        parts += ["", f"stack of rank {rank}:", stack]
    for number, log in enumerate(logs):
        parts += ["", f"log of rank {number}:", log.rstrip() or "(nothing)"]
    return "\n".join(parts)
