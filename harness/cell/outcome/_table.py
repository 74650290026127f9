"""The freeze table: recipe and moment down, verdict across stages; as text and as Markdown."""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.cell._case import Case
from harness.cell.outcome._record import CaseRecord

__all__ = ["Label", "Row", "as_markdown", "as_text", "rows_of"]

_STAGES = (0, 1, 2, 3)

#: The longest verdict, EXTRA_TRAINED.  Longer cells, of several verdicts, are wrapped.
_WIDEST_CELL = 13

#: With four of the widest cells this makes 80 columns.
_NARROWEST_LABEL = 16


@dataclass(frozen=True)
class Label:
    """What the table says of a case beside its verdicts; plain data, so that it can travel."""

    recipe: str
    #: how to ask for it: ``thawcheck run NAME``
    name: str = ""
    moment: str = ""
    happens: str = ""
    instead: str = ""
    #: where it stands, which gives the order of the rows
    path: str = ""
    line: int = 0

    @classmethod
    def of(cls, case: Case) -> Label:
        return cls(case.recipe, case.name, case.moment, case.happens, case.instead, case.path, case.line)

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @property
    def text(self) -> str:
        return f"{self.recipe}, {self.moment}" if self.moment else self.recipe

    @property
    def sentences(self) -> str:
        instead = f" Instead: {self.instead}" if self.instead else ""
        said = f"{self.happens}{instead}".strip()
        return f"{self.name}: {said}" if self.name and said else said


@dataclass
class Row:
    """One case: its verdicts by ZeRO stage, over all its variants."""

    label: Label
    cells: dict[int, Counter[str]] = field(default_factory=dict)
    differs: set[int] = field(default_factory=set)

    def parts(self, stage: int) -> list[str]:
        """One verdict where all variants agree, else each with its count."""
        counts = self.cells.get(stage)
        if not counts:
            return ["-"]
        if len(counts) == 1:
            return list(counts)
        return [f"{count} {verdict}" for verdict, count in counts.most_common()]

    def cell(self, stage: int) -> str:
        """The same on one line; ``!`` marks a surprise."""
        return ", ".join(self.parts(stage)) + self._mark(stage)

    def lines(self, stage: int, width: int) -> list[str]:
        """The same on as many lines as it takes."""
        whole = self.cell(stage)
        if len(whole) <= width:
            return [whole]
        *others, last = self.parts(stage)
        return [line for part in (*others, last + self._mark(stage)) for line in textwrap.wrap(part, width)]

    def _mark(self, stage: int) -> str:
        return " !" if stage in self.differs else ""


def rows_of(records: Iterable[CaseRecord], labels: Mapping[str, Label]) -> list[Row]:
    """A row per case, in the order of the files and in each file.

    :param labels: by the name of the case.
    """
    rows: dict[str, Row] = {}
    for record in records:
        row = rows.setdefault(record.case, Row(labels.get(record.case, Label(record.case))))
        stage = int(record.options["stage"])
        row.cells.setdefault(stage, Counter())[str(record.verdict)] += 1
        if record.as_expected is False:
            row.differs.add(stage)
    return sorted(rows.values(), key=lambda row: (row.label.path, row.label.line))


def as_text(rows: Sequence[Row], width: int) -> list[str]:
    """Lines of at most ``width`` columns, or of 80 where that is less."""
    width = max(80, width)
    columns = [f"stage {stage}" for stage in _STAGES]
    longest = max((len(row.cell(stage)) for row in rows for stage in _STAGES), default=0)
    cell_width = max(len(columns[0]), min(_WIDEST_CELL, longest))
    label_width = max(_NARROWEST_LABEL, width - 4 - len(_STAGES) * (cell_width + 2))
    lines = [_line("", "recipe, moment", columns, label_width, cell_width)]
    lines.append("-" * len(lines[0]))
    for number, row in enumerate(rows, 1):
        cells = [row.lines(stage, cell_width) for stage in _STAGES]
        label = textwrap.wrap(row.label.text, label_width)
        for place in range(max(len(label), *map(len, cells))):
            parts = [cell[place] if place < len(cell) else "" for cell in cells]
            first = label[place] if place < len(label) else ""
            lines.append(_line("" if place else f"{number}", first, parts, label_width, cell_width))
    for number, row in enumerate(rows, 1):
        if row.label.sentences:
            lines += ["", *textwrap.wrap(f"{number}. {row.label.sentences}", width, subsequent_indent="   ")]
    return [line.rstrip() for line in lines]


def as_markdown(rows: Sequence[Row], title: str, versions: Mapping[str, str]) -> str:
    """For pasting into an issue."""
    stack = ", ".join(f"{name} {version}" for name, version in versions.items())
    heads = " | ".join(f"stage {stage}" for stage in _STAGES)
    lines = [f"### {_plain(title)}", "", stack, "", f"| recipe, moment | {heads} |", f"|---|{'---|' * len(_STAGES)}"]
    for row in rows:
        cells = " | ".join(row.cell(stage) for stage in _STAGES)
        lines.append(f"| {_plain(row.label.text).replace('|', chr(92) + '|')} | {cells} |")
    said = [f"- **{_plain(row.label.text)}**: {_plain(row.label.sentences)}" for row in rows if row.label.sentences]
    return "\n".join([*lines, "", *said]).rstrip() + "\n"


def _line(number: str, label: str, cells: Sequence[str], label_width: int, cell_width: int) -> str:
    return f"{number:>2}  {label:<{label_width}}" + "".join(f"  {cell:<{cell_width}}" for cell in cells)


def _plain(text: str) -> str:
    """On one line, and with no ``<`` that would start a tag; inside backticks it stands for itself."""
    pieces = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(piece if piece.startswith("`") else piece.replace("<", "&lt;") for piece in pieces)
