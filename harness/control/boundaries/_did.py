"""What a variant did, as far as one place on an axis is told from another."""

from __future__ import annotations

from dataclasses import dataclass

from harness.cell.outcome._observed import Outcome
from harness.cell.outcome._record import CaseRecord, Failure
from harness.cell.outcome._verdict import Verdict

__all__ = ["Did"]


@dataclass(frozen=True)
class Did:
    """A verdict, and where and by what it failed: another failure is another thing, not the same one."""

    verdict: Verdict
    moment: str = ""
    error: str = ""

    @classmethod
    def of(cls, found: Outcome | CaseRecord) -> Did | None:
        """None where it did not run: nothing was done."""
        if found.verdict in (Verdict.NOT_RUN, Verdict.UNSOLVABLE):
            return None
        # How a crash ends, by which signal, is luck.
        failure = found.failure or Failure("", "", "")
        return cls(found.verdict, failure.moment, "" if found.verdict is Verdict.CRASH else failure.type)

    def __str__(self) -> str:
        where = f" on the way to {self.moment}" if self.moment else ""
        return f"{self.verdict}{f' ({self.error})' if self.error else ''}{where}"
