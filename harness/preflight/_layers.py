"""How many layers a tiny model needs for patterns to mean there what they mean in the real one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from harness.preflight._matched import Matched

__all__ = ["layers_of", "layers_to_keep"]

#: Enough for a number that begins another's, such as 1 and 10.
_FEWEST: Final = 12


def layers_to_keep(matched: Iterable[Matched], names: Sequence[str]) -> int:
    """So many that each pattern which matches in a layer still does, and spares a layer if it spares one."""
    keep = _FEWEST
    for one in matched:
        chosen = set(one.names)
        inside = {number for name in chosen for number in layers_of(name)}
        spared = {number for name in names if name not in chosen for number in layers_of(name)}
        keep = max(keep, *(min(found) + 1 for found in (inside, spared) if found), 1)
        # What stands outside of layers, as a head does, is always kept.
    return keep


def layers_of(name: str) -> list[int]:
    """The numbers in a name: of layers, and of what else is numbered."""
    return [int(part) for part in name.split(".") if part.isdigit()]
