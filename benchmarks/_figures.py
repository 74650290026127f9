"""What was measured, and what follows from it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks._memory import Memory

__all__ = ["Figures"]


@dataclass(frozen=True)
class Figures:
    """All samples of one run."""

    #: design -> for each round the seconds of its cases
    seconds: Mapping[str, Sequence[Sequence[float]]]
    #: design -> what it is called in a table
    labels: Mapping[str, str]
    zygote_start_seconds: float
    memory: Memory

    def samples(self, design: str) -> list[float]:
        return [one for samples in self.seconds[design] for one in samples]

    def ratio(self, slow: str, fast: str) -> float:
        """How many times longer ``slow`` takes.

        The median over rounds of the ratio within each round: what else the machine does during
        a round hits both alike, and one disturbed round moves nothing.
        """
        rounds = zip(self.seconds[slow], self.seconds[fast], strict=True)
        return statistics.median(statistics.median(one) / statistics.median(other) for one, other in rounds)
