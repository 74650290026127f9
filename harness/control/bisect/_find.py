"""From a line and what can be seen on it to the places where verdicts change, each seen on both sides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from harness.control.bisect._memory import Sight
from harness.control.bisect._search import UNUSABLE, Boundary, Unusable, boundaries
from harness.control.boundaries import Did

__all__ = ["Finder", "Found", "Look"]

#: Runs of a place that was seen to do different things, for a count.
_MORE: Final = 6


class Look(Protocol):
    """At least so many runs at a place."""

    def __call__(self, number: int, times: int) -> Sight: ...


@dataclass
class Found:
    """What a bisection gave."""

    boundaries: list[Boundary[Did]] = field(default_factory=list)
    #: place -> what it did, and how often, where runs differ: then no boundary is to be believed
    flips: dict[int, Counter[Did]] = field(default_factory=dict)
    #: place -> why it cannot be used
    unusable: dict[int, str] = field(default_factory=dict)
    #: place -> what it does, of all that were looked at or known
    did: dict[int, Did] = field(default_factory=dict)
    #: places that were run now or by this bisection before
    run: set[int] = field(default_factory=set)
    #: places that do not do what was observed before
    refuted: set[int] = field(default_factory=set)


class Finder:
    """Looks at places of one line for one variant."""

    def __init__(
        self,
        variant: str,
        look: Look,
        known: Mapping[int, Did | None],
        *,
        times: int,
        say: Callable[[int, Found], None] = lambda _, __: None,
    ) -> None:
        """:param known: what was observed before: trusted until a side of a boundary shows it to be wrong.
        :param times: runs at each place that is looked at; they must do the same.
        :param say: called after each place that was run.
        """
        self.found = Found()
        self._variant = variant
        self._look = look
        self._trusted = dict(known)
        self._times = times
        self._say = say

    def find(self, count: int, *, every: bool = False) -> Found:
        """All boundaries among so many places, the sides of each run by this bisection itself.

        :raises EndsAgree: see :func:`boundaries`.
        :raises NothingUsable: see :func:`boundaries`.
        """
        found = self.found
        while True:
            found.boundaries = boundaries(count, self._at, every=every)
            unseen = sorted({side for one in found.boundaries for side in (one.last, one.first)} - found.run)
            if not unseen:
                return found
            for number in unseen:
                before = self._trusted[number]
                if self._run(number) != before:
                    found.refuted.add(number)
            if found.refuted:
                # What was observed elsewhere does not hold here: from now on only what is run counts.
                found.did = {number: did for number, did in found.did.items() if number in found.run}
                self._trusted = {}

    def _at(self, number: int) -> Did | Unusable:
        if number in self.found.run:
            did = self.found.did.get(number)
        elif number in self._trusted:
            did = self._trusted[number]
            if did is None:
                self.found.unusable[number] = "observed before: it cannot be used"
            else:
                self.found.did[number] = did
        else:
            did = self._run(number)
        return UNUSABLE if did is None else did

    def _run(self, number: int) -> Did | None:
        sight = self._look(number, self._times)
        if len({one.did for one in sight.of(self._variant)}) > 1:
            sight = self._look(number, _MORE)
        counts = Counter(one.did for one in sight.of(self._variant) if one.did is not None)
        found = self.found
        found.run.add(number)
        if not counts:
            found.unusable[number] = sight.unusable or sight.of(self._variant)[0].headline
            found.did.pop(number, None)
        else:
            found.did[number] = counts.most_common(1)[0][0]
            found.unusable.pop(number, None)
            if len(counts) > 1:
                found.flips[number] = counts
        self._say(number, found)
        return found.did.get(number)
