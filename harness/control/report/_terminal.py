"""A report at the terminal: colours and rules for a person, plain aligned lines for a pipe."""

from __future__ import annotations

import io
from typing import IO, Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.control.report._atlas import Atlas
from harness.control.report._look import LOOKS
from harness.control.report._plain import for_terminal
from harness.control.report._tally import Tally, number, summary, surprises, tallies, total

__all__ = ["terminal"]

#: Of those that are not as expected; `--json` has all.
_SHOWN: Final = 40

#: How a count of a verdict is written; without a space it is never broken.
_WHOLE, _LEGEND, _SHORT = "{count} {word}", "{symbol} {count} {word}", "{symbol}{count}"


def terminal(atlas: Atlas, by: str, file: IO[str]) -> str:
    """What to print to ``file``, which may be a terminal or not."""
    kept = io.StringIO()
    probe = Console(file=file)
    # Who reads a pipe wants each line whole.
    console = Console(
        file=kept,
        force_terminal=probe.is_terminal,
        no_color=probe.no_color,
        width=probe.width if probe.is_terminal else 10_000,
    )
    plain = not probe.is_terminal
    console.print(Text(summary(atlas), style="bold"))
    # With words even there where the lines of the table have symbols alone: it is their legend.
    console.print(_verdicts(total(atlas), _WHOLE if plain else _LEGEND))
    table = Table(box=None if plain else box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    table.add_column(by, overflow="fold")
    if by != "case":
        table.add_column("", overflow="fold")
    table.add_column("verdicts", overflow="fold")
    if atlas.judged:
        table.add_column("not as expected", justify="right")
    for one in tallies(atlas, by):
        cells: list[Text] = [Text(for_terminal(one.name))]
        if by != "case":
            cells.append(Text(for_terminal(one.about), style="dim"))
        cells.append(_verdicts(one, _WHOLE if plain else _SHORT))
        if atlas.judged:
            cells.append(Text(f"{one.surprises:,}" if one.surprises else "-", style="bold" if one.surprises else "dim"))
        table.add_row(*cells)
    console.print(table)
    if atlas.judged:
        _differing(atlas, console)
    return "".join(f"{line.rstrip()}\n" for line in kept.getvalue().splitlines())


def _verdicts(one: Tally, shape: str) -> Text:
    """Worst first."""
    made = Text()
    for verdict, count in one.counts.items():
        if made:
            made.append(", " if shape == _WHOLE else "  ")
        text = shape.format(symbol=LOOKS[verdict].symbol, count=f"{count:,}", word=verdict)
        made.append(text, style=LOOKS[verdict].terminal)
    return made or Text("-", style="dim")


def _differing(atlas: Atlas, console: Console) -> None:
    every = list(surprises(atlas))
    if not every:
        console.print(Text("every verdict is the expected one"))
        return
    console.print(Text(f"{number(len(every), 'difference')} from what is expected:", style="bold"))
    for one in every[:_SHOWN]:
        where = Text(f"{for_terminal(one.row.name)} on {for_terminal(one.column.key)} ", style="bold")
        told = f"({number(len(one.variants), 'variant')}): {for_terminal(one.told)}"
        console.print(where + Text(told), soft_wrap=True)
    if len(every) > _SHOWN:
        console.print(Text(f"and {len(every) - _SHOWN} more: --json FILE has all of them"))
