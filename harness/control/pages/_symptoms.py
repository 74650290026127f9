"""The page for who knows what they see, and not which kind of fault it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from harness.cell._catalog import shipped
from harness.cell._kinds import CONTROL
from harness.cell.outcome._expect import Expectation
from harness.cell.outcome._verdict import Verdict
from harness.control.expect import cause_of
from harness.control.pages._kind import MADE, page_of
from harness.control.pages._measured import message_of

__all__ = ["SYMPTOMS", "symptoms_page"]

SYMPTOMS: Final = "symptoms.md"

_SILENT: Final[Mapping[Verdict, str]] = {
    Verdict.NO_UPDATE: "it has a gradient, the flag says that it trains, and it never moves",
    Verdict.NO_GRAD: "it is meant to train and has no gradient",
    Verdict.WRONG_GRAD: "it trains, by another gradient than plain PyTorch computes; or each rank by its own",
    Verdict.WRONG_UPDATE: "it moves by a wrong step: another rate, another decay, moments of something else",
    Verdict.EXTRA_TRAINED: "it trains, and nobody meant it to",
    Verdict.FROZEN_DRIFT: "it is frozen and moves all the same",
    Verdict.SAVE_LOSS: "what comes back from disk is not what was trained",
}


def symptoms_page(entries: Sequence[Expectation]) -> str:
    """Markdown: silent faults by what is seen of a weight, loud ones by what they say."""
    faults = {case.name: case.kind for case in shipped() if case.kind != CONTROL}
    mine = [one for one in entries if one.case in faults and not cause_of(one)]

    def links(cases: Sequence[str]) -> str:
        return ", ".join(f"[`{one}`]({page_of(faults[one])}#{one})" for one in cases)

    lines = [MADE, "", "# From what you see to the case", ""]
    lines += ["Nothing is said, and of a weight it turns out that", "", "| | cases |", "|---|---|"]
    for verdict, seen in _SILENT.items():
        cases = [name for name in faults if any(one.case == name and _has(one, verdict) for one in mine)]
        lines.append(f"| {seen} ({verdict}) | {links(cases) or '-'} |")
    lines += ["", "It stops without a word: " + links(_cases(mine, Verdict.HANG, Verdict.CRASH)) + "."]
    lines += ["", "It raises:", "", "| message | on the way to | cases |", "|---|---|---|", *_raised(mine, links)]
    return "\n".join([*lines, ""])


def _has(entry: Expectation, verdict: Verdict) -> bool:
    return entry.verdict is verdict or verdict in entry.also


def _cases(entries: Sequence[Expectation], *verdicts: Verdict) -> list[str]:
    return [*dict.fromkeys(one.case for one in entries if one.verdict in verdicts)]


def _raised(entries: Sequence[Expectation], links: Callable[[Sequence[str]], str]) -> Iterator[str]:
    """By message, then by exception where there is none."""
    found: dict[tuple[str, str], tuple[dict[str, None], dict[str, None]]] = {}
    for one in entries:
        if one.verdict is Verdict.RAISES:
            moments, cases = found.setdefault((message_of(one), one.type or ""), ({}, {}))
            moments[one.moment or ""] = None
            cases[one.case] = None
    for (message, error), (moments, cases) in sorted(found.items(), key=lambda one: (not one[0][0], one[0])):
        said = f"{error}: {message}" if message else f"{error}, without a word"
        yield f"| {_code(said)} | {', '.join(moments)} | {links([*cases])} |"


def _code(text: str) -> str:
    """In a table, a bar ends the cell, in code too."""
    return f"`{text.replace('|', '¦').replace('`', chr(39))}`"
