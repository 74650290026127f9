"""The data set of libraries that hand out micro-batches themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from harness.cell._run import Run
    from harness.cell.models import Batch

__all__ = ["batches_of_all_ranks", "only"]


def batches_of_all_ranks(run: Run, steps: int, batch: Callable[[torch.Generator], Batch] | None) -> list[Batch]:
    """The micro-batches of all ranks, in the same order everywhere; the library hands them out."""
    import torch.distributed as dist

    mine = [run.draw(batch) for _ in range(steps * run.options.accumulation)]
    theirs: list[Any] = [None] * run.world
    dist.all_gather_object(theirs, mine)
    return [one for ranks in theirs for one in ranks]


def only(items: list[Batch]) -> Batch:
    """A collate function: a micro-batch is one item of the data set."""
    return items[0]
