"""From the names of faulty parameters to a few patterns that select them and no other."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from harness.cell._patterns import select

__all__ = ["patterns_for"]

_Name = tuple[str, ...]


def patterns_for(wanted: Collection[str], known: Collection[str]) -> tuple[str, ...]:
    """Patterns that select ``wanted`` out of ``known``."""
    parts = {tuple(name.split(".")) for name in wanted}
    found = _within(parts, {tuple(name.split(".")) for name in known} | parts)
    # A name that holds what patterns are made of cannot be told by them.
    return tuple(found) if select(sorted(known), found) == sorted(wanted) else tuple(sorted(wanted))


def _within(wanted: set[_Name], known: set[_Name]) -> list[str]:
    """The patterns for one level of modules; ``known`` has ``wanted`` in it."""
    found: dict[str, list[str]] = {}
    for head in sorted({name[0] for name in wanted}):
        mine, there = ({name[1:] for name in names if name[0] == head} for names in (wanted, known))
        found[head] = _below(mine, there)
    return [f"{head}{rest}" for heads, rests in _alike(found) for head in heads for rest in rests]


def _below(wanted: set[_Name], known: set[_Name]) -> list[str]:
    if len(wanted) == 1:
        # Its own name: of its module we may not have seen all.
        return ["".join(f".{part}" for part in next(iter(wanted)))]
    if wanted == known:
        shared = _shared(sorted(known))
        return ["".join(f".{part}" for part in shared) + ".*"]
    return [f".{one}" for one in _within({name for name in wanted if name}, {name for name in known if name})]


def _shared(names: Sequence[_Name]) -> _Name:
    """What all of sorted names begin with."""
    first, last = names[0], names[-1]
    length = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return first[:length]


def _alike(found: dict[str, list[str]]) -> list[tuple[list[str], list[str]]]:
    """Heads and what follows each; layers of one digit that are alike share a head such as ``[0-3]``."""
    layers: dict[tuple[str, ...], list[str]] = {}
    result: list[tuple[list[str], list[str]]] = []
    for head, rests in found.items():
        if len(head) == 1 and head.isdigit():
            layers.setdefault(tuple(rests), []).append(head)
        else:
            result.append(([head], rests))
    return [*(([_digits(heads)], list(rests)) for rests, heads in layers.items()), *result]


def _digits(heads: Sequence[str]) -> str:
    if len(heads) == 1:
        return heads[0]
    first, last = heads[0], heads[-1]
    unbroken = int(last) - int(first) == len(heads) - 1 > 1
    return f"[{first}-{last}]" if unbroken else f"[{''.join(heads)}]"
