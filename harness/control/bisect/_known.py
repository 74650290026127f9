"""What matrix/observed has on places of a line: a stack that asks for the same versions was measured already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from harness.cell._case import Case
from harness.cell._options import Options
from harness.cell.outcome._observed import Observed
from harness.control.boundaries import Did
from harness.control.locks import LockState, state_of
from harness.control.stacks import Matrix, Stack

__all__ = ["known"]


def known(
    matrix: Matrix, observed: Mapping[str, Observed], stacks: Iterable[Stack], case: Case, options: Options
) -> dict[int, Did | None]:
    """By the number of a stack: what the variant did there; None where the stack is known to be of no use."""
    names = {one.question: one.name for one in matrix.stacks.values() if not one.dev}
    found: dict[int, Did | None] = {}
    for number, stack in enumerate(stacks):
        name = names.get(stack.question)
        if name is None or name not in observed:
            continue
        lock, state = state_of(matrix.stacks[name], matrix.lock(name))
        if lock is None or state is not LockState.FRESH or lock.answer != observed[name].lock:
            continue
        if observed[name].unsolvable:
            found[number] = None
        for outcome in observed[name].outcomes:
            if outcome.case == case.name and options in outcome.variants:
                found[number] = Did.of(outcome)
    return found
