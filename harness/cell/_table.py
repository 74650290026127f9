"""The freeze table: recipe and moment down, verdict across stages; as text and as Markdown."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from harness.cell._case import Case
from harness.cell._record import CaseRecord

__all__ = ["Row", "as_markdown", "as_text", "rows_of"]

_STAGES = (0, 1, 2, 3)


@dataclass
class Row:
    """One case: its verdicts by ZeRO stage, over all its variants."""

    case: str
    recipe: str
    moment: str
    happens: str
    instead: str
    cells: dict[int, Counter[str]] = field(default_factory=dict)
    differs: set[int] = field(default_factory=set)

    @property
    def label(self) -> str:
        return f"{self.recipe}, {self.moment}" if self.moment else self.recipe

    def cell(self, stage: int) -> str:
        """One verdict where all variants agree, else each with its count; ``!`` for surprises."""
        counts = self.cells.get(stage)
        if not counts:
            return "-"
        if len(counts) == 1:
            text = next(iter(counts))
        else:
            text = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
        return f"{text} !" if stage in self.differs else text


def rows_of(records: Iterable[CaseRecord], cases: Iterable[Case]) -> list[Row]:
    """A row per case, in the order of ``cases``."""
    known = {case.name: case for case in cases}
    rows: dict[str, Row] = {}
    for record in records:
        case = known.get(record.case)
        row = rows.setdefault(
            record.case,
            Row(
                record.case,
                case.recipe if case else record.case,
                case.moment if case else "",
                case.happens if case else "",
                case.instead if case else "",
            ),
        )
        stage = int(record.options.get("stage", 3))
        row.cells.setdefault(stage, Counter())[str(record.verdict)] += 1
        if record.as_expected is False:
            row.differs.add(stage)
    order = {name: place for place, name in enumerate(known)}
    return sorted(rows.values(), key=lambda row: order.get(row.case, len(order)))


def as_text(rows: Sequence[Row], width: int) -> list[str]:
    """Lines of at most ``width`` columns (never under 78)."""
    columns = [f"stage {stage}" for stage in _STAGES]
    cell_width = max([len(one) for one in columns] + [min(13, len(row.cell(s))) for row in rows for s in _STAGES])
    label_width = max(24, max(78, width) - 4 * (cell_width + 2) - 4)
    lines = [_line("", "recipe, moment", columns, label_width, cell_width)]
    lines.append("-" * len(lines[0]))
    for number, row in enumerate(rows, 1):
        cells = [textwrap.wrap(row.cell(stage), cell_width) for stage in _STAGES]
        label = textwrap.wrap(row.label, label_width)
        for place in range(max(len(label), *map(len, cells))):
            parts = [cell[place] if place < len(cell) else "" for cell in cells]
            first = label[place] if place < len(label) else ""
            lines.append(_line(f"{number}" if not place else "", first, parts, label_width, cell_width))
    for number, row in enumerate(rows, 1):
        text = _sentences(row)
        if text:
            lines += ["", *textwrap.wrap(f"{number}. {text}", max(78, width) - 1, subsequent_indent="   ")]
    return [line.rstrip() for line in lines]


def as_markdown(rows: Sequence[Row], title: str, versions: dict[str, str]) -> str:
    """For pasting into an issue."""
    stack = ", ".join(f"{name} {version}" for name, version in versions.items())
    heads = " | ".join(f"stage {stage}" for stage in _STAGES)
    lines = [f"### {title}", "", stack, "", f"| recipe, moment | {heads} |", f"|---|{'---|' * len(_STAGES)}"]
    for row in rows:
        cells = " | ".join(_escaped(row.cell(stage)) for stage in _STAGES)
        lines.append(f"| {_escaped(row.label)} | {cells} |")
    lines.append("")
    lines += [f"- **{_escaped(row.label)}**: {_escaped(_sentences(row))}" for row in rows if _sentences(row)]
    return "\n".join(lines) + "\n"


def _sentences(row: Row) -> str:
    instead = f" Instead: {row.instead}" if row.instead else ""
    return f"{row.happens}{instead}".strip()


def _line(number: str, label: str, cells: Sequence[str], label_width: int, cell_width: int) -> str:
    return f"{number:>2}  {label:<{label_width}}" + "".join(f"  {cell:<{cell_width}}" for cell in cells)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
