"""Which stacks of a sweep are left to measure, in which order, and how much disk they take."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from harness.cell._catalog import shipped
from harness.cell.outcome._observed import Observed, ObservedError, read_observed
from harness.control._fresh import fresh_outcomes
from harness.control.locks import LockState, state_of
from harness.control.stacks import Matrix, Stack

__all__ = ["Shard", "cases_left", "is_measured", "ordered", "room_needed", "torch_of"]

_GIGABYTE = 1 << 30
#: An environment with its part of uv's cache: torch for CPU, and torch with the CUDA packages it pins.
_CPU, _CUDA = 3 * _GIGABYTE, 9 * _GIGABYTE
_MARGIN = 2 * _GIGABYTE


@dataclass(frozen=True)
class Shard:
    """Part ``number`` of ``count``: a run of neighbours, which share a torch."""

    number: int = 1
    count: int = 1

    @classmethod
    def of(cls, text: str) -> Shard:
        """Raises ValueError."""
        found = re.fullmatch(r"(\d+)/(\d+)", text)
        if found is None or not 1 <= int(found[1]) <= int(found[2]):
            raise ValueError(f"a shard is I/N, as in 2/5, found {text!r}")
        return cls(int(found[1]), int(found[2]))

    def take(self, stacks: Sequence[Stack]) -> list[Stack]:
        """Its stacks; those of all shards together are all, each once."""
        ends = [len(stacks) * number // self.count for number in (self.number - 1, self.number)]
        return list(stacks[ends[0] : ends[1]])


def ordered(matrix: Matrix, stacks: Sequence[Stack]) -> list[Stack]:
    """Those that share a torch, and a Python, next to each other: its cache is dropped after them."""
    return sorted(stacks, key=lambda stack: (torch_of(matrix, stack), stack.python[0]))


def torch_of(matrix: Matrix, stack: Stack) -> Version:
    """The torch that its lock has; 0 where it has none."""
    lock, _ = state_of(stack, matrix.lock(stack.name))
    return Version((lock and lock.versions.get("torch")) or "0")


def cases_left(matrix: Matrix, stack: Stack, into: Path | None = None) -> list[str]:
    """The cases that were not measured, or not in every variant, by the lock that the stack has now.

    :param into: look there, instead of into the matrix itself.
    """
    found = _measured(matrix, stack, into)
    if found is None:
        return [case.name for case in shipped()]
    if found.unsolvable:
        return []
    there = {(one.case, options.id) for one in fresh_outcomes(found) for options in one.variants}
    return [case.name for case in shipped() if any((case.name, one.id) not in there for one in case.variants)]


def is_measured(matrix: Matrix, stack: Stack) -> bool:
    """Whether anything was measured by the lock that the stack has now."""
    return _measured(matrix, stack) is not None


def _measured(matrix: Matrix, stack: Stack, into: Path | None = None) -> Observed | None:
    lock, state = state_of(stack, matrix.lock(stack.name))
    path = into / f"{stack.name}.jsonl" if into else matrix.observed(stack.name)
    if lock is None or state is not LockState.FRESH or not path.exists():
        return None
    try:
        found = read_observed(path)
    except ObservedError:
        return None
    return found if found.lock == lock.answer else None


def room_needed(matrix: Matrix, stacks: Sequence[Stack], jobs: int) -> int:
    """Bytes of disk: the largest environments that may stand at once, with their caches."""
    sizes = sorted((_CPU if _is_cpu_build(torch_of(matrix, stack), stack) else _CUDA for stack in stacks), reverse=True)
    return sum(sizes[:jobs]) + _MARGIN


def _is_cpu_build(torch: Version, stack: Stack) -> bool:
    """Whether installing this torch brings no CUDA packages, as far as the environment tells."""
    if os.environ.get("UV_TORCH_BACKEND") == "cpu":
        return True
    places = re.split(r"[\s,]+", os.environ.get("UV_FIND_LINKS") or os.environ.get("PIP_FIND_LINKS", ""))
    python = stack.python[0].replace(".", "")
    return any(place and [*Path(place).glob(f"torch-{torch}+cpu-cp{python}-*.whl")] for place in places)
