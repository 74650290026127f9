"""Whether another package matters, too: the same releases on either side of a boundary, on other stacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from packaging.version import Version

from harness.cell._case import Case
from harness.cell._options import Options
from harness.cell.outcome._observed import Observed
from harness.control.boundaries import Did

__all__ = ["Grid", "grid_of"]

#: In this order: who draws a line most often.
_OTHERS = ("torch", "transformers", "accelerate", "peft", "axolotl", "deepspeed", "python")


@dataclass(frozen=True)
class Grid:
    """What was observed of two releases of one package beside releases of another."""

    package: str
    #: release of the other package -> what the two sides do beside it; None where that was not observed
    rows: Mapping[str, tuple[Did | None, Did | None]]


def grid_of(
    observed: Mapping[str, Observed], case: Case, options: Options, package: str, last: str, first: str
) -> Grid | None:
    """The first other package whose release alone decides what a side does; None where none does."""
    sides = (last, first)
    points = [
        (_plain(one.versions), sides.index(_plain(one.versions)[package]), did)
        for one in observed.values()
        if not one.unsolvable and _plain(one.versions).get(package) in sides
        for outcome in one.outcomes
        if outcome.case == case.name and options in outcome.variants and (did := Did.of(outcome)) is not None
    ]
    if all(len({did for _, side, did in points if side == here}) < 2 for here in (0, 1)):
        return None
    for other in _OTHERS:
        if other == package:
            continue
        rows: dict[str, list[set[Did]]] = {}
        for versions, side, did in points:
            rows.setdefault(versions.get(other, "absent"), [set(), set()])[side].add(did)
        if all(len(cell) < 2 for row in rows.values() for cell in row):
            order = sorted(rows, key=lambda one: (one != "absent", Version(one) if one != "absent" else Version("0")))
            return Grid(other, {at: (_only(rows[at][0]), _only(rows[at][1])) for at in order})
    return None


def _only(cell: set[Did]) -> Did | None:
    return next(iter(cell), None)


def _plain(versions: Mapping[str, str]) -> dict[str, str]:
    """Without what tells builds of one release apart."""
    return {package: Version(one).public for package, one in versions.items()}
