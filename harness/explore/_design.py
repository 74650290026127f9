"""Few combinations that hold every pair, or triple, of values: a covering design, by greedy choice."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["covering", "interactions"]

Combination = Mapping[str, Any]

#: Random candidates for each step of the greedy choice; more make the design a little smaller.
_CANDIDATES = 40


def covering(
    axes: Mapping[str, Sequence[Any]],
    *,
    strength: int,
    seed: int,
    allowed: Callable[[Combination], bool] = lambda _: True,
) -> list[dict[str, Any]]:
    """Combinations that together hold every choice of values of any ``strength`` axes that is allowed at all.

    The same seed gives the same combinations.

    :param allowed: whether a combination makes sense.  What no allowed combination holds is left out.
    """
    dice = random.Random(seed)  # noqa: S311  (no secret)
    possible = [
        combination
        for values in itertools.product(*axes.values())
        if allowed(combination := dict(zip(axes, values, strict=True)))
    ]
    left = {one for combination in possible for one in interactions(combination, strength)}
    chosen = []
    while left:
        # One that holds something that is left, for certain; then the best of a few that were drawn.
        wanted = dict(dice.choice(sorted(left, key=repr)))
        fitting = [one for one in possible if all(one[axis] == value for axis, value in wanted.items())]
        drawn = dice.sample(fitting, min(_CANDIDATES, len(fitting)))
        best = max(drawn, key=lambda one: len(left.intersection(interactions(one, strength))))
        chosen.append(best)
        left.difference_update(interactions(best, strength))
    return chosen


def interactions(combination: Combination, strength: int) -> Iterator[tuple[tuple[str, Any], ...]]:
    """Every choice of that many of its values."""
    return itertools.combinations(combination.items(), strength)
