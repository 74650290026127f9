"""What is not the same on two sides: two runs, two stacks, or one folder on two days."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.cell.outcome._nearby import apart
from harness.cell.outcome._observed import Observed, Outcome
from harness.cell.outcome._verdict import Verdict
from harness.control.changes._told import told

__all__ = ["REGRESSIONS", "Difference", "Pair", "Way", "differences_of", "pairs_of"]


class Way(str, enum.Enum):
    """Which way a verdict went; in the order in which they are shown."""

    WORSE = "worse"  #: it trained, and does not any more
    LOST = "lost"  #: it was measured on this very stack, and is not any more
    OTHER = "another fault"  #: one fault in place of another, or of other parameters; a silent one is no better
    BETTER = "better"  #: it did not train, and does now
    NEW = "new"  #: it was not measured before

    def __str__(self) -> str:
        return self.value


#: Those that make `thawcheck diff` exit with 1.
REGRESSIONS = (Way.WORSE, Way.LOST)

#: Of what was not measured, in place of an outcome.
_ABSENT = "not measured"


@dataclass(frozen=True)
class Pair:
    """The same stack on both sides, or the two that somebody asked to compare."""

    before: Observed
    after: Observed

    @property
    def same(self) -> bool:
        return self.before.stack == self.after.stack and self.before.device == self.after.device

    @property
    def name(self) -> str:
        return self.after.stack if self.same else f"{self.before.stack} -> {self.after.stack}"

    @property
    def moved(self) -> str:
        """Which versions differ."""
        one, other = self.before.versions, self.after.versions
        return ", ".join(
            f"{name} {one.get(name, 'absent')} -> {other.get(name, 'absent')}" for name in apart(one, other)
        )


@dataclass(frozen=True)
class Difference:
    """Variants of one case that went the same way alike."""

    case: str
    way: Way
    before: str
    after: str
    #: name of the pair -> variants
    where: Mapping[str, tuple[str, ...]]


def pairs_of(before: Sequence[Observed], after: Sequence[Observed]) -> tuple[list[Pair], list[str], list[str]]:
    """By stack and device, or the two where either side has just one; and the stacks that one side alone has."""
    if len(before) == len(after) == 1:
        return [Pair(before[0], after[0])], [], []
    old = {(one.stack, one.device): one for one in before}
    new = {(one.stack, one.device): one for one in after}
    both = [Pair(old[key], new[key]) for key in old if key in new]
    return both, [stack for stack, _ in old.keys() - new.keys()], [stack for stack, _ in new.keys() - old.keys()]


def differences_of(pairs: Sequence[Pair], *, common: bool = False) -> tuple[list[Difference], Counter[str]]:
    """Worst first, then by case; and how many variants went which way, or stayed the ``same``.

    :param common: only what both sides have measured.
    """
    found: dict[tuple[str, Way, str, str], dict[str, list[str]]] = {}
    counts: Counter[str] = Counter()
    for pair in pairs:
        for case, variant, was, now in _both(pair):
            if common and (_measured(was) is None or _measured(now) is None):
                continue
            way = _way(was, now)
            counts[str(way) if way else "same"] += 1
            if way is not None and (pair.same or way not in (Way.LOST, Way.NEW)):
                key = (case, way, told(was) if was else _ABSENT, told(now) if now else _ABSENT)
                found.setdefault(key, {}).setdefault(pair.name, []).append(variant)
    order = {way: place for place, way in enumerate(Way)}
    made = [
        Difference(*key, {name: tuple(variants) for name, variants in where.items()}) for key, where in found.items()
    ]
    return sorted(made, key=lambda one: (order[one.way], one.case)), counts


def _both(pair: Pair) -> Iterator[tuple[str, str, Outcome | None, Outcome | None]]:
    old, new = pair.before.key(), pair.after.key()
    for case, variant in dict.fromkeys([*old, *new]):
        yield case, variant, old.get((case, variant)), new.get((case, variant))


def _measured(outcome: Outcome | None) -> Outcome | None:
    return outcome if outcome is not None and outcome.verdict is not Verdict.NOT_RUN else None


def _way(was: Outcome | None, now: Outcome | None) -> Way | None:
    before, after = _measured(was), _measured(now)
    if before is None or after is None:
        if before is after:
            return None
        return Way.NEW if before is None else Way.LOST
    if told(before, whole=True) == told(after, whole=True):
        return None
    if before.verdict is Verdict.TRAINS:
        return Way.WORSE
    return Way.BETTER if after.verdict is Verdict.TRAINS else Way.OTHER
