"""A report as Markdown that fits where GitHub takes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.control.report._atlas import Atlas
from harness.control.report._badge import badge_text
from harness.control.report._fit import fitted
from harness.control.report._look import LOOKS
from harness.control.report._plain import for_markdown, in_code
from harness.control.report._tally import Tally, number, summary, surprises, tallies

__all__ = ["markdown"]


def markdown(atlas: Atlas, limit: str) -> str:
    return fitted([*_lines(atlas)], limit, "thawcheck report --json FILE")


def _lines(atlas: Atlas) -> Iterator[str]:
    yield "## thawcheck"
    yield ""
    yield f"{summary(atlas)}: **{badge_text(atlas)[0]}**."
    every = list(surprises(atlas))
    if every:
        yield ""
        yield "### Not as expected"
        yield ""
        for one in every:
            told = f"{number(len(one.variants), 'variant')}: {for_markdown(one.told)}"
            yield f"- {in_code(one.row.name)} on {in_code(one.column.key)}, {told}"
    yield ""
    yield "### By kind of fault"
    yield ""
    yield from _table(tallies(atlas, "kind"), "kind", judged=atlas.judged)
    for by in ("stack", "case"):
        some = tallies(atlas, by)
        yield ""
        yield f"<details><summary>By {by} ({len(some)})</summary>"
        yield ""
        yield from _table(some, by, judged=atlas.judged)
        yield ""
        yield "</details>"
    yield ""
    yield "<details><summary>What the verdicts mean</summary>"
    yield ""
    yield "| | verdict | means |"
    yield "|---|---|---|"
    yield from (f"| {look.symbol} | `{verdict}` | {look.means} |" for verdict, look in LOOKS.items())
    yield ""
    yield "</details>"


def _table(some: Sequence[Tally], by: str, *, judged: bool) -> Iterator[str]:
    more = " not as expected |" if judged else ""
    yield f"| {by} | | verdicts, worst first |{more}"
    yield f"|---|---|---|{'---:|' if judged else ''}"
    for one in some:
        counts = ", ".join(
            f"{LOOKS[verdict].symbol} {count:,} {verdict}".replace("_", r"\_") for verdict, count in one.counts.items()
        )
        more = f" {one.surprises:,} |" if judged else ""
        yield f"| {in_code(one.name)} | {for_markdown(one.about)} | {counts or '-'} |{more}"
