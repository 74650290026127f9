"""Every place on a line where what is done changes, in as few looks as may be.  Knows of no package and no run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Generic, TypeVar

__all__ = ["UNUSABLE", "Boundary", "EndsAgree", "NothingUsable", "Unusable", "boundaries", "looks_needed"]

Did = TypeVar("Did")


class Unusable:
    """In the place of what was done, where nothing could be: not installable, not importable."""

    def __repr__(self) -> str:
        return "UNUSABLE"


UNUSABLE: Final = Unusable()


class EndsAgree(Exception):
    """Both ends do the same: there is nothing to look for between them."""

    def __init__(self, first: int, last: int, did: object) -> None:
        super().__init__(f"places {first} and {last} do the same: {did}")
        self.first = first
        self.last = last
        self.did = did


class NothingUsable(Exception):
    """Fewer than two places can be used at all."""


@dataclass(frozen=True)
class Boundary(Generic[Did]):
    """Neighbours that do not do the same; what lies between them cannot be used."""

    last: int
    first: int
    before: Did
    after: Did

    @property
    def skipped(self) -> range:
        return range(self.last + 1, self.first)


Look = Callable[[int], "Did | Unusable"]


def boundaries(count: int, look: Look[Did], *, every: bool = False) -> list[Boundary[Did]]:
    """Look at the ends, then in the middle of what is left between places that do not do the same.

    One boundary among n places takes about log2(n) looks.  What begins and ends again between two places that do
    the same is found only by ``every``, which looks everywhere.

    :param look: what is done at a place, counted from 0; it may remember.
    :raises EndsAgree: unless ``every``, when the outermost places that can be used do the same.
    :raises NothingUsable: when there are no two of them.
    """
    seen: dict[int, Did] = {}

    def usable(places: range) -> int | None:
        for place in places:
            found = look(place)
            if not isinstance(found, Unusable):
                seen[place] = found
                return place
        return None

    low = usable(range(count))
    high = usable(range(count - 1, -1, -1))
    if low is None or high is None or low == high:
        raise NothingUsable
    if every:
        places = [place for place in range(low, high + 1) if usable(range(place, place + 1)) is not None]
        return [
            Boundary(one, other, seen[one], seen[other]) for one, other in pairwise(places) if seen[one] != seen[other]
        ]
    if seen[low] == seen[high]:
        raise EndsAgree(low, high, seen[low])

    def between(one: int, other: int) -> Iterator[Boundary[Did]]:
        if seen[one] == seen[other]:
            return
        middle = _nearest_usable(one, other, usable)
        if middle is None:
            yield Boundary(one, other, seen[one], seen[other])
            return
        yield from between(one, middle)
        yield from between(middle, other)

    return list(between(low, high))


def _nearest_usable(one: int, other: int, usable: Callable[[range], int | None]) -> int | None:
    """The place nearest to the middle that can be used."""
    middle = (one + other) // 2
    for distance in range(other - one):
        for place in dict.fromkeys((middle + distance, middle - distance)):
            if one < place < other and usable(range(place, place + 1)) is not None:
                return place
    return None


def looks_needed(count: int) -> int:
    """About how many looks one boundary among so many places takes, the ends with them."""
    return min(count, 2 + max(count - 2, 0).bit_length())
