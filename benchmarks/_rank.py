"""What a rank does in the designs that are compared with the zygote: in all of them the same.

They get every advantage that is not part of how they start ranks: one thread each, and no build of
DeepSpeed's shared-memory op, which would take 30 to 80 s of the first case.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

import torch.distributed as dist

from benchmarks._case import VARIANT, WORLD, exclusion
from benchmarks._exchange import reporting, write_verdicts
from harness.cell._run import Run
from harness.cell.ranks._rank import adopt_group, set_environ

__all__ = ["case_over_file", "join_over_file", "perform"]

_SEED: Final = 1234


def join_over_file(rank: int, folder: Path) -> None:
    """Form the group over a file in ``folder``, as the zygote's ranks do."""
    # Nothing listens on the port; DeepSpeed only insists that there is one.
    set_environ(rank, WORLD, 29500, folder)
    meeting_point = (folder / "rendezvous").as_uri()
    dist.init_process_group("gloo", init_method=meeting_point, rank=rank, world_size=WORLD)
    adopt_group("gloo")


def perform(rank: int, folder: Path) -> None:
    """Run and judge the case on a rank that has joined, and leave its verdicts in ``folder``."""
    random.seed(_SEED)
    run = Run(VARIANT, rank, WORLD, "cpu", folder, _SEED, tick=lambda _: None)
    exclusion.function(run)
    write_verdicts(rank, folder, {one["name"]: one["verdict"] for one in run.finish()["parameters"]})


def case_over_file(rank: int, folder: Path) -> None:
    """One case from nothing, for a process that was started for it."""
    with reporting(rank, folder):
        join_over_file(rank, folder)
        perform(rank, folder)
        dist.destroy_process_group()
