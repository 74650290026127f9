"""One question about one package that parts stacks in two, and how much the answer tells about the outcome."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from harness.control.expect._points import PACKAGES

__all__ = ["NOWHERE", "Row", "Split", "splits"]

#: For a package where it is not installed.
NOWHERE: Final = -1
#: In the order of PACKAGES, the place of its version among all versions of a package; and a number for the outcome.
Row = tuple[tuple[int, ...], int]


@dataclass(frozen=True)
class Split:
    """Is a package older than a version, or is it absent?"""

    #: its place in PACKAGES
    package: int
    #: the place of the first version for which the answer is no; the oldest has 0, which asks whether it is absent
    at: int
    gain: float = field(compare=False)

    def halves(self, rows: Sequence[Row]) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
        """Those with the answer yes, and the others."""
        package, at = self.package, self.at
        return tuple(row for row in rows if row[0][package] < at), tuple(row for row in rows if row[0][package] >= at)


def splits(rows: Sequence[Row]) -> list[Split]:
    """Every split that may help, the one that tells most first; of equals in the order of the packages."""
    found = [split for package in range(len(PACKAGES)) for split in _of(package, rows)]
    # Sums of logarithms differ in the last digits by the order in which they were made.
    return sorted(found, key=lambda split: -round(split.gain, 9))


def _of(package: int, rows: Sequence[Row]) -> Iterator[Split]:
    groups: dict[int, Counter[int]] = {}
    for place, label in rows:
        version = place[package]
        if version not in groups:
            groups[version] = Counter()
        groups[version][label] += 1
    if len(groups) == 1:
        return
    every = Counter(label for _, label in rows)
    if NOWHERE in groups:
        # Versions are split once all have one: "older than this, or absent" is no range.
        yield Split(package, 0, _gain(groups[NOWHERE], every))
        return
    before: Counter[int] = Counter()
    for version, after in itertools.pairwise(sorted(groups)):
        before += groups[version]
        # Between versions that all did one same thing there is nothing to tell.
        if len(groups[version].keys() | groups[after].keys()) > 1:
            yield Split(package, after, _gain(before, every))


def _gain(half: Counter[int], every: Counter[int]) -> float:
    """What the answer tells; the same for all splits of the same rows but for a constant."""
    return -_unsaid(half) - _unsaid(every - half)


def _unsaid(counts: Mapping[int, int]) -> float:
    """Entropy, times the number of rows."""
    total = sum(counts.values())
    return -sum(count * math.log2(count / total) for count in counts.values())
