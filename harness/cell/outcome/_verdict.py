"""The closed set of verdicts and the one order of precedence among them."""

from __future__ import annotations

import enum
from collections.abc import Iterable

__all__ = ["PRECEDENCE", "Verdict", "headline"]


class Verdict(str, enum.Enum):
    """What a case was seen to do; the comment at each says what it asserts."""

    CRASH = "CRASH"  #: a rank died by a signal, or left without reporting
    HANG = "HANG"  #: no rank made progress until the deadline
    RAISES = "RAISES"  #: the code under test raised; moment, type and message are kept
    NO_GRAD = "NO_GRAD"  #: meant to train, but no gradient (or all zero where the twin's is not)
    NO_UPDATE = "NO_UPDATE"  #: meant to train, has a gradient, never moves
    WRONG_GRAD = "WRONG_GRAD"  #: its gradient is not the twin's
    WRONG_UPDATE = "WRONG_UPDATE"  #: its gradient is the twin's, its weight after the step is not
    EXTRA_TRAINED = "EXTRA_TRAINED"  #: outside the intent, flag on, and it moves
    FROZEN_DRIFT = "FROZEN_DRIFT"  #: outside the intent, flag off, and yet it moves
    SAVE_LOSS = "SAVE_LOSS"  #: what comes back from disk is not what was trained
    TRAINS = "TRAINS"  #: gradients and weights equal the twin's, all else bit-equal
    FROZEN = "FROZEN"  #: of one parameter only: outside the intent and bit-equal throughout
    NOT_RUN = "NOT_RUN"  #: nothing was measured; the reason is kept
    UNSOLVABLE = "UNSOLVABLE"  #: the stack cannot be installed

    def __str__(self) -> str:
        return self.value


#: Worst first.  A case has one headline: the first of these that any of its ranks or
#: parameters shows.  Nothing measured outranks something measured (first two), then what ended
#: the process, then what silently trains nothing, then what trains it wrongly, then what
#: touches the rest.  FROZEN is below TRAINS: a case whose every parameter is frozen as meant
#: has no trained parameter and never reaches a headline (an intent matches something).
PRECEDENCE: tuple[Verdict, ...] = (
    Verdict.UNSOLVABLE,
    Verdict.NOT_RUN,
    Verdict.CRASH,
    Verdict.HANG,
    Verdict.RAISES,
    Verdict.NO_GRAD,
    Verdict.NO_UPDATE,
    Verdict.WRONG_GRAD,
    Verdict.WRONG_UPDATE,
    Verdict.EXTRA_TRAINED,
    Verdict.FROZEN_DRIFT,
    Verdict.SAVE_LOSS,
    Verdict.TRAINS,
    Verdict.FROZEN,
)

_RANK = {verdict: place for place, verdict in enumerate(PRECEDENCE)}


def headline(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict that speaks for all of ``verdicts``; ``NOT_RUN`` when there are none."""
    return min(verdicts, key=_RANK.__getitem__, default=Verdict.NOT_RUN)
