"""The fewest ranges of versions we can find that tell outcomes apart: a decision tree over packages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from packaging.version import Version

from harness.cell.outcome._expect_faults import ABSENT
from harness.control.expect._points import PACKAGES, Point
from harness.control.expect._split import NOWHERE, Row, Split, splits

__all__ = ["Box", "Grower", "Leaf", "Scale"]

#: How many splits of one package are followed up at a place of the tree, and how many places are, before the split
#: that tells most is taken as it is.
_TRIED: Final = 3
_PLACES: Final = 300
#: Packages whose versions explain most; to split by another one must save an entry.
_USUAL: Final = 2

_Cost = tuple[int, int, int]


@dataclass(frozen=True)
class Span:
    """Versions of one package: ``first`` is within, ``past`` is the first beyond; None where it is open."""

    first: Version | None = None
    past: Version | None = None
    absent: bool = False

    def __str__(self) -> str:
        if self.absent:
            return ABSENT
        ends = [f">={self.first}" if self.first else "", f"<{self.past}" if self.past else ""]
        # Whatever its version, but there.
        return ",".join(filter(None, ends)) or ">=0"


@dataclass(frozen=True)
class Box:
    """A range of each package that matters; what is not named may be anything."""

    spans: tuple[tuple[str, Span], ...] = ()

    def halves(self, package: str, at: Version | None) -> tuple[Box, Box]:
        """What is older and what is not; or, where no version is given, what has none and what has one."""
        if at is None:
            return self._narrowed(package, Span(absent=True)), self._narrowed(package, Span())
        return self._narrowed(package, Span(past=at)), self._narrowed(package, Span(first=at))

    def _narrowed(self, package: str, span: Span) -> Box:
        spans = dict(self.spans)
        held = spans.get(package, Span())
        spans[package] = Span(span.first or held.first, span.past or held.past, span.absent)
        return Box(tuple((one, spans[one]) for one in PACKAGES if one in spans))

    def holds(self, point: Point) -> bool:
        return all(_holds(span, point.versions.get(package)) for package, span in self.spans)

    def versions(self) -> dict[str, str]:
        """As an expectation says it."""
        return {package: str(span) for package, span in self.spans}


def _holds(span: Span, version: Version | None) -> bool:
    if version is None or span.absent:
        return version is None and span.absent
    return (span.first is None or version >= span.first) and (span.past is None or version < span.past)


@dataclass(frozen=True)
class Leaf:
    """Points that did the same, and the versions that tell them from all others."""

    box: Box
    points: tuple[Point, ...]


class Scale:
    """Versions as numbers, oldest first, since a search compares them a million times."""

    def __init__(self, points: Iterable[Point]) -> None:
        found: dict[str, set[Version]] = {package: set() for package in PACKAGES}
        for point in points:
            for package, version in point.versions.items():
                found[package].add(version)
        self.versions = {package: sorted(some) for package, some in found.items()}
        self._numbers = {
            package: {version: number for number, version in enumerate(some)} for package, some in self.versions.items()
        }

    def place(self, point: Point) -> tuple[int, ...]:
        """In the order of the packages."""
        there = point.versions
        return tuple(self._numbers[one][there[one]] if one in there else NOWHERE for one in PACKAGES)


@dataclass(frozen=True)
class _Tree:
    #: entries and splits by an unusual package; then leaves; then what it shares with other trees, negative
    cost: _Cost
    split: Split | None = None
    halves: tuple[_Tree, ...] = ()

    def boxes(self, box: Box, scale: Scale) -> list[Box]:
        if self.split is None:
            return [box]
        package = PACKAGES[self.split.package]
        at = scale.versions[package][self.split.at] if self.split.at else None
        found = zip(self.halves, box.halves(package, at), strict=True)
        return [one for tree, half in found for one in tree.boxes(half, scale)]

    def splits(self) -> list[Split]:
        return [*([self.split] if self.split else []), *(one for half in self.halves for one in half.splits())]


class Grower:
    """Grows a tree for each variant; of trees as small, one that splits where many do, so that ranges are the same."""

    def __init__(self, scale: Scale, popular: Mapping[Split, int] | None = None) -> None:
        self._scale = scale
        self._popular = popular or {}
        self._trees: dict[tuple[Row, ...], _Tree] = {}
        #: how often each split was made
        self.made: Counter[Split] = Counter()

    def grow(
        self,
        points: Sequence[Point],
        label: Callable[[Point], Hashable],
        plain: Callable[[Point], bool],
        needs: Sequence[str] = (),
    ) -> list[Leaf]:
        """Leaves that share no version and leave none out.

        :param points: no two at the same place may differ, since nothing could tell them apart.
        :param label: equal for outcomes that are the same.
        :param plain: whether an outcome needs no entry.
        :param needs: packages without which there is nothing to see, so whether they are there is asked first.
        """
        return [leaf for box, some in _by_presence(points, needs) for leaf in self._grown(box, some, label, plain)]

    def _grown(
        self,
        box: Box,
        points: Sequence[Point],
        label: Callable[[Point], Hashable],
        plain: Callable[[Point], bool],
    ) -> list[Leaf]:
        # Many variants differ alike, whatever it is that they do.
        numbers: dict[Hashable, int] = {}
        labels = [0 if plain(point) else numbers.setdefault(label(point), len(numbers) + 1) for point in points]
        rows = tuple(zip(map(self._scale.place, points), labels, strict=True))
        if rows not in self._trees:
            self._trees[rows] = _Search(self._popular).best(rows)
        tree = self._trees[rows]
        self.made.update(tree.splits())
        boxes = tree.boxes(box, self._scale)
        return [Leaf(box, tuple(point for point in points if box.holds(point))) for box in boxes]


def _by_presence(points: Sequence[Point], needs: Sequence[str]) -> list[tuple[Box, Sequence[Point]]]:
    """Those that lack a package that is needed, and the others."""
    found: list[tuple[Box, Sequence[Point]]] = [(Box(), points)] if points else []
    for package in PACKAGES:
        if package in needs and len({package in point.versions for point in points}) > 1:
            found = [
                (half, some)
                for box, there in found
                for half in box.halves(package, None)
                if (some := [point for point in there if half.holds(point)])
            ]
    return found


class _Search:
    """For the smallest tree, among those that begin with splits that tell much."""

    def __init__(self, popular: Mapping[Split, int]) -> None:
        self._popular = popular
        self._places = 0
        self._found: dict[tuple[Row, ...], _Tree] = {}

    def best(self, rows: tuple[Row, ...]) -> _Tree:
        least = _least(rows)
        if least[1] == 1:
            return _Tree(least)
        if rows not in self._found:
            self._places += 1
            self._found[rows] = self._search(rows)
        return self._found[rows]

    def _search(self, rows: tuple[Row, ...]) -> _Tree:
        best: _Tree | None = None
        for split in self._promising(rows):
            halves = split.halves(rows)
            price = (int(split.package >= _USUAL), 0, -self._popular.get(split, 0))
            if best is not None and _sum(price, *map(_least, halves))[:2] > best.cost[:2]:
                continue
            trees = tuple(self.best(half) for half in halves)
            cost = _sum(price, *(tree.cost for tree in trees))
            if best is None or cost < best.cost:
                best = _Tree(cost, split, trees)
        assert best is not None, "points at the same place differ"
        return best

    def _promising(self, rows: tuple[Row, ...]) -> list[Split]:
        found = splits(rows)
        if self._places > _PLACES:
            return found[:1]
        tried: Counter[int] = Counter()
        promising = []
        for split in found:
            tried[split.package] += 1
            if tried[split.package] <= _TRIED or split in self._popular:
                promising.append(split)
        return promising


def _least(rows: Sequence[Row]) -> _Cost:
    """The least cost that a tree for these can have, but for what it shares."""
    labels = {label for _, label in rows}
    return len(labels - {0}), len(labels), 0


def _sum(*costs: _Cost) -> _Cost:
    entries, leaves, shared = zip(*costs, strict=True)
    return sum(entries), sum(leaves), sum(shared)
