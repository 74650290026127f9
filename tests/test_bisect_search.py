"""The search of a bisection, on made-up lines: what it finds, in how many looks, and what it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.control.bisect._search import UNUSABLE, Boundary, EndsAgree, NothingUsable, boundaries, looks_needed


class Looks:
    """A line, and where it was looked at."""

    def __init__(self, line: Sequence[str]) -> None:
        self.line = line
        self.at: list[int] = []

    def __call__(self, place: int) -> object:
        if place not in self.at:
            self.at.append(place)
        return UNUSABLE if self.line[place] == "-" else self.line[place]


def found(line: str, *, every: bool = False) -> tuple[list[Boundary[str]], Looks]:
    looks = Looks(line)
    return boundaries(len(line), looks, every=every), looks  # type: ignore[arg-type]


def places(line: str, *, every: bool = False) -> list[tuple[int, int]]:
    return [(one.last, one.first) for one in found(line, every=every)[0]]


@pytest.mark.parametrize("first", range(1, 80))
def test_one_boundary_in_eighty_releases_takes_nine_looks_at_most(first: int) -> None:
    line = "g" * first + "b" * (80 - first)
    one, looks = found(line)

    assert [(each.last, each.first, each.before, each.after) for each in one] == [(first - 1, first, "g", "b")]
    assert len(looks.at) <= looks_needed(80) == 9
    assert looks.at[:2] == [0, 79], "the ends first"


def test_what_cannot_be_used_is_skipped_and_said() -> None:
    assert places("gg-b") == [(1, 3)]
    assert [*found("gg-b")[0][0].skipped] == [2]
    assert places("g----b") == [(0, 5)]
    assert places("--gg-b--") == [(3, 5)]


def test_another_failure_is_a_boundary_of_its_own() -> None:
    assert places("ggxxbb") == [(1, 2), (3, 4)]


def test_ends_that_agree_are_refused_and_looked_at_only() -> None:
    looks = Looks("gbbbg")
    with pytest.raises(EndsAgree) as refused:
        boundaries(5, looks)

    assert (refused.value.first, refused.value.last, refused.value.did) == (0, 4, "g")
    assert looks.at == [0, 4]


def test_every_finds_what_begins_and_ends_again() -> None:
    assert places("ggbbgg", every=True) == [(1, 2), (3, 4)]
    assert places("gggggg", every=True) == []
    assert places("gb-gb", every=True) == [(0, 1), (1, 3), (3, 4)]


@pytest.mark.parametrize("line", ["", "-", "--", "g", "-g-"])
def test_fewer_than_two_usable_places_are_nothing(line: str) -> None:
    with pytest.raises(NothingUsable):
        found(line)


@given(st.text("gbx-", min_size=2, max_size=40))
def test_what_it_finds_is_there(line: str) -> None:
    usable = [place for place, one in enumerate(line) if one != "-"]
    neighbours = {(one, other) for one, other in pairwise(usable) if line[one] != line[other]}
    try:
        some = places(line)
    except NothingUsable:
        assert len(usable) < 2
        return
    except EndsAgree:
        assert line[usable[0]] == line[usable[-1]]
        return

    assert some, "ends that differ have a boundary between them"
    assert set(some) <= neighbours
    assert set(places(line, every=True)) == neighbours
