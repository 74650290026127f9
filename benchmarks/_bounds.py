"""Which figures are asserted.  Ratios, bytes and threads; never seconds, which machines decide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from benchmarks._figures import Figures

__all__ = ["BOUNDS", "Bound", "Check", "check"]

#: A million bytes: the stricter reading of MB.
_MB: Final = 1_000_000


@dataclass(frozen=True)
class Bound:
    """One wanted property."""

    what: str
    sign: Literal[">=", "<=", "=="]
    limit: float
    unit: str
    measured: Callable[[Figures], float]


@dataclass(frozen=True)
class Check:
    """A bound and what was found."""

    bound: Bound
    found: float

    @property
    def met(self) -> bool:
        if self.bound.sign == ">=":
            return self.found >= self.bound.limit
        if self.bound.sign == "<=":
            return self.found <= self.bound.limit
        return self.found == self.bound.limit


BOUNDS: Final = (
    Bound("faster than spawn", ">=", 15, "x", lambda seen: seen.ratio("spawn", "zygote")),
    Bound("faster than forkserver", ">=", 15, "x", lambda seen: seen.ratio("forkserver", "zygote")),
    Bound("faster than torchrun", ">=", 15, "x", lambda seen: seen.ratio("torchrun", "zygote")),
    Bound("slower than ranks kept alive", "<=", 8, "x", lambda seen: seen.ratio("zygote", "alive")),
    Bound("zygote, resident", "<=", 450, "MB", lambda seen: seen.memory.zygote_resident / _MB),
    Bound("zygote, threads", "==", 1, "", lambda seen: seen.memory.zygote_threads),
    Bound("largest rank, private", "<=", 60, "MB", lambda seen: max(seen.memory.ranks_private) / _MB),
)


def check(figures: Figures) -> list[Check]:
    """Hold the figures against every bound."""
    return [Check(bound, bound.measured(figures)) for bound in BOUNDS]
