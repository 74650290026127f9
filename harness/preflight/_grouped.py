"""Verdicts of some hundred parameters on one screen: what is alike is told once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from harness.cell.outcome._record import ParameterVerdict

__all__ = ["grouped"]

Tree = dict[str, "Tree | str"]


def grouped(verdicts: Iterable[ParameterVerdict]) -> list[str]:
    """A line for each part that is as one: ``model.layers.0-7.*  FROZEN (72)``."""
    flat = {one.name: str(one.verdict) for one in verdicts}
    tree: Tree = {}
    for name, verdict in flat.items():
        at = tree
        *parts, last = name.split(".")
        for part in parts:
            at = at.setdefault(part, {})  # type: ignore[assignment]  # a module is never a parameter too
        at[last] = verdict
    alike: dict[tuple[tuple[str, ...], str], list[tuple[int | None, int]]] = {}
    for path, verdict, count in _walk(tree, ()):
        number = next((int(part) for part in path if part.isdigit()), None)
        key = tuple("#" if part.isdigit() and int(part) == number else part for part in path)
        alike.setdefault((key, verdict), []).append((number, count))
    shown = []
    for (key, verdict), found in alike.items():
        numbers = _ranges([number for number, _ in found if number is not None])
        shown.append((".".join(numbers if part == "#" else part for part in key), verdict, sum(n for _, n in found)))
    width = max((len(name) for name, *_ in shown), default=0)
    return [f"{name:{width}}  {verdict:13}  {count}" for name, verdict, count in shown]


def _walk(tree: Tree, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str, int]]:
    """The largest parts of one verdict."""
    for name, below in tree.items():
        if isinstance(below, str):
            yield (*path, name), below, 1
            continue
        leaves = [*_leaves(below)]
        # Layers are told apart by number, so a list of them is never one part.
        if len({*leaves}) == 1 and not any(part.isdigit() for part in below):
            yield (*path, name, "*"), leaves[0], len(leaves)
        else:
            yield from _walk(below, (*path, name))


def _leaves(tree: Tree) -> Iterator[str]:
    for below in tree.values():
        if isinstance(below, str):
            yield below
        else:
            yield from _leaves(below)


def _ranges(numbers: Sequence[int]) -> str:
    """0, 1, 2, 5 as 0-2,5."""
    runs: list[list[int]] = []
    for number in sorted({*numbers}):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
