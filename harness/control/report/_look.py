"""How a verdict looks wherever a report shows it: symbol, colour, sentence; words and order are the verdicts' own.

A symbol never stands without its word nearby, and a colour never without its symbol.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from harness.cell.outcome._verdict import PRECEDENCE, Verdict

__all__ = ["LOOKS", "SHOWN", "Look"]


@dataclass(frozen=True)
class Look:
    #: one character that most fonts have
    symbol: str
    #: verdicts of one family share a colour in the pages, and this one in a terminal
    family: str
    terminal: str
    means: str


LOOKS: Final[Mapping[Verdict, Look]] = {
    Verdict.UNSOLVABLE: Look("⊘", "none", "bright_black", "the stack cannot be installed"),
    Verdict.NOT_RUN: Look("–", "none", "bright_black", "nothing was measured, and it says why"),  # noqa: RUF001
    Verdict.CRASH: Look("✕", "ends", "magenta", "a rank died by a signal, or left without reporting"),
    Verdict.HANG: Look("∞", "ends", "magenta", "no rank made progress until the deadline"),
    Verdict.RAISES: Look("!", "ends", "magenta", "the code under test raised"),
    Verdict.NO_GRAD: Look("∅", "still", "red", "meant to train, has no gradient"),
    Verdict.NO_UPDATE: Look("=", "still", "red", "meant to train, has a gradient, never moves"),
    Verdict.WRONG_GRAD: Look("∇", "wrong", "yellow", "its gradient is not the twin's"),
    Verdict.WRONG_UPDATE: Look("≠", "wrong", "yellow", "its gradient is right, its step is not"),
    Verdict.EXTRA_TRAINED: Look("+", "more", "blue", "nobody meant it to train, and its flag is on and it moves"),
    Verdict.FROZEN_DRIFT: Look("~", "more", "blue", "its flag is off, and it moves all the same"),
    Verdict.SAVE_LOSS: Look("↺", "more", "blue", "what comes back from disk is not what was trained"),
    Verdict.TRAINS: Look("✓", "fine", "green", "trains what it should, and nothing else moves"),
    Verdict.FROZEN: Look("□", "fine", "green", "meant to stay, and did"),
}

#: Those that a case can be known by, worst first.
SHOWN: Final = tuple(one for one in PRECEDENCE if one is not Verdict.FROZEN)
