"""One thing found, and how bad it is."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["Finding", "Level", "worst"]


class Level(str, enum.Enum):
    """From what stops everything to what is only told."""

    INPUT = "bad input"  #: what was given cannot be read or makes no sense
    WRONG = "not safe"  #: it will not train what was asked for
    UNKNOWN = "not known"  #: nothing wrong was found, and the two ranks could not be had
    CAUTION = "safe but"  #: it may not be what was meant
    NOTE = "note"  #: nothing is wrong

    def __str__(self) -> str:
        return self.value


_ORDER = (*Level,)


@dataclass(frozen=True)
class Finding:
    """:ivar code: the kind of finding, one word or several joined by dashes.
    :ivar where: file and key, pattern or option, in the user's own spelling.
    :ivar text: what was found.
    :ivar instead: what to do.
    :ivar evidence: names of the cases that were measured.
    :ivar pattern: the pattern that it is about, as written.
    :ivar rewrite: what to write in its place, where that was tried on the model's names.
    """

    level: Level
    code: str
    where: str
    text: str
    instead: str = ""
    evidence: tuple[str, ...] = ()
    pattern: str = ""
    rewrite: str = ""

    def __str__(self) -> str:
        told = f"{self.where}: {self.text}" + (f"; {self.instead}" if self.instead else "")
        return told + (f" (measured: {', '.join(self.evidence)})" if self.evidence else "")

    def as_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = {
            "level": str(self.level),
            "code": self.code,
            "where": self.where,
            "text": self.text,
            "instead": self.instead,
            "evidence": [*self.evidence],
            "pattern": self.pattern,
            "rewrite": self.rewrite,
        }
        return {key: value for key, value in plain.items() if value}


def worst(findings: Iterable[Finding]) -> Level:
    """The level that speaks for all; NOTE when there are none."""
    return min((one.level for one in findings), key=_ORDER.index, default=Level.NOTE)
