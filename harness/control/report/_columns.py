"""The columns of an atlas: each a stack as it was measured once, beside others that differ from it in one thing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from packaging.version import InvalidVersion, Version

from harness.cell.outcome._observed import Observed
from harness.control.report._sources import Extra
from harness.control.stacks import Stack

__all__ = ["NAMED", "Column", "columns_of"]

#: The group of stacks that are of no sweep.
NAMED: Final = "Named"

_TITLES: Final = {
    "deepspeed": "DeepSpeed",
    "transformers": "transformers",
    "axolotl": "Axolotl",
    "torch": "torch",
    "python": "Python",
    "as_of": "Eras",
}


@dataclass(frozen=True)
class Column:
    #: unique in the report: the stack, and its day or device where there are several of it
    key: str
    #: short, under the head of the group
    label: str
    group: str
    observed: Observed
    extra: Extra
    description: str = ""
    #: the axis along which the group moves; empty where none does
    moves: str = ""
    #: whether it is in the matrix, so that tox has an environment of it
    known: bool = True

    @property
    def versions(self) -> dict[str, str]:
        """Without how each was built."""
        return {name: version.partition("+")[0] for name, version in self.observed.versions.items()}


def columns_of(observed: Sequence[Observed], extras: Sequence[Extra], stacks: Mapping[str, Stack]) -> list[Column]:
    """Groups in the order of stacks.toml, each by version; what is not in the matrix stands first, with the named."""
    made = [
        _column(one, extra, key, stacks.get(one.stack))
        for one, extra, key in zip(observed, extras, _keys(observed), strict=True)
    ]
    place = {name: number for number, name in enumerate(stacks)}
    made.sort(key=lambda one: (place.get(one.observed.stack, -1), one.key))
    groups: dict[str, list[Column]] = {NAMED: []}
    for column in made:
        groups.setdefault(column.group, []).append(column)
    for group, some in groups.items():
        if group != NAMED:
            some.sort(key=lambda one: (_sortable(one.label), one.key))
    return [column for some in groups.values() for column in some]


def _keys(observed: Sequence[Observed]) -> list[str]:
    names = Counter(one.stack for one in observed)
    days = Counter((one.stack, one.measured) for one in observed)
    devices = Counter((one.stack, one.measured, one.device) for one in observed)
    keys: list[str] = []
    for one in observed:
        key = one.stack
        if names[one.stack] > 1 and len({each.measured for each in observed if each.stack == one.stack}) > 1:
            key += f"@{one.measured}"
        if days[one.stack, one.measured] > devices[one.stack, one.measured, one.device]:
            key += f"@{one.device}"
        fresh, number = key, 1
        while fresh in keys:
            number += 1
            fresh = f"{key}#{number}"
        keys.append(fresh)
    return keys


def _column(one: Observed, extra: Extra, key: str, stack: Stack | None) -> Column:
    if stack is None or not stack.moves:
        return Column(key, key, NAMED, one, extra, stack.description if stack else "", known=stack is not None)
    template = stack.name.replace(stack.at, "*")
    tail = template.partition("*")[2]
    title = _TITLES.get(stack.moves, stack.moves)
    held = re.fullmatch(r"-([a-z]+)-(.+)", tail)
    group = f"{title} on {held[1]} {held[2]}" if held else f"{title} ({template})" if tail else title
    label = stack.at + key.removeprefix(one.stack)
    return Column(key, label, group, one, extra, stack.description, stack.moves)


def _sortable(label: str) -> tuple[Version, str]:
    text = label.partition("@")[0].partition("#")[0].replace("q", ".")
    try:
        return Version(text), label
    except InvalidVersion:
        return Version("0"), label
