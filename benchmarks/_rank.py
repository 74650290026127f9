"""What a rank does in the designs that are compared with the zygote: in all of them the same.

They get every advantage that is not part of how they start ranks: one thread each, and no build of
DeepSpeed's shared-memory op, which would take 30 to 80 s of the first case.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import torch.distributed as dist

from benchmarks._case import VARIANT, WORLD, exclusion
from benchmarks._design import DesignError, Verdicts
from harness.cell._rank import adopt_group, set_environ
from harness.cell._run import Run

__all__ = ["case_folder", "case_over_file", "join_over_file", "perform", "read_verdicts", "reporting"]

_SEED: Final = 1234


def case_folder(scratch: Path) -> Path:
    """A fresh folder for one case: its rendezvous, logs and verdicts."""
    return Path(tempfile.mkdtemp(dir=scratch))


@contextlib.contextmanager
def reporting(rank: int, folder: Path) -> Iterator[None]:
    """Send what is printed to a log in ``folder``, and an exception to a file beside it."""
    with (folder / f"rank{rank}.log").open("ab", buffering=0) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    try:
        yield
    except Exception:  # noqa: BLE001  # whatever it was, the process that reads the folder tells it
        (folder / f"rank{rank}.error").write_text(traceback.format_exc())


def join_over_file(rank: int, folder: Path) -> None:
    """Form the group over a file in ``folder``, as the zygote's ranks do."""
    # Nothing listens on the port; DeepSpeed only insists that there is one.
    set_environ(rank, WORLD, 29500, folder)
    meeting_point = (folder / "rendezvous").as_uri()
    dist.init_process_group("gloo", init_method=meeting_point, rank=rank, world_size=WORLD)
    adopt_group("gloo")


def perform(rank: int, folder: Path) -> None:
    """Run and judge the case on a rank that has joined; its verdicts become a file in ``folder``."""
    random.seed(_SEED)
    run = Run(VARIANT, rank, WORLD, "cpu", folder, _SEED, tick=lambda _: None)
    exclusion.function(run)
    verdicts = {one["name"]: one["verdict"] for one in run.finish()["parameters"]}
    (folder / f"rank{rank}.json").write_text(json.dumps(verdicts))


def case_over_file(rank: int, folder: Path) -> None:
    """One case from nothing, for a process that was started for it."""
    with reporting(rank, folder):
        join_over_file(rank, folder)
        perform(rank, folder)
        dist.destroy_process_group()


def read_verdicts(design: str, folder: Path) -> Verdicts:
    """What all ranks of a case found.  Raises :exc:`DesignError`."""
    for rank in range(WORLD):
        error = folder / f"rank{rank}.error"
        if error.exists():
            raise DesignError(design, f"rank {rank} raised:\n{error.read_text()}")
    found: list[Verdicts] = []
    for rank in range(WORLD):
        verdicts = folder / f"rank{rank}.json"
        if not verdicts.exists():
            raise DesignError(design, f"rank {rank} ended without a verdict; {_log_tail(folder)}")
        found.append(json.loads(verdicts.read_text()))
    if any(one != found[0] for one in found):
        raise DesignError(design, f"its ranks differ in their verdicts: {found}")
    return found[0]


def _log_tail(folder: Path) -> str:
    texts = [log.read_text(errors="replace") for log in sorted(folder.glob("*.log"))]
    lines = "\n".join(texts).splitlines()[-20:]
    return "\n".join(["it had printed:", *lines]) if lines else "it had printed nothing"
