"""torchrun per case.  Also the program that it starts: ``python -m benchmarks._torchrun FOLDER``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist

from benchmarks._case import WORLD
from benchmarks._design import Verdicts
from benchmarks._exchange import await_verdicts, case_folder, reporting
from benchmarks._rank import perform
from harness.cell.ranks._programs import import_path
from harness.cell.ranks._rank import adopt_group

__all__ = ["TorchrunDesign"]

#: torchrun gives its ranks 30 s to end before it kills them.
_GRACE: Final = 35.0


class TorchrunDesign:
    name = "torchrun"
    label = "torchrun per case"

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch

    def start(self) -> None:
        """Nothing is kept between cases."""

    def run(self) -> Verdicts:
        folder = case_folder(self._scratch)
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={WORLD}"]
        with (folder / "torchrun.log").open("wb") as log:
            agent = subprocess.Popen(
                [*launch, "-m", "benchmarks._torchrun", str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **import_path()},
            )
            try:
                return await_verdicts(self.name, folder, lambda seconds: _ended(agent, seconds))
            finally:
                _end(agent)

    def close(self) -> None:
        """Nothing outlives a case."""


def _ended(agent: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        agent.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _end(agent: subprocess.Popen[bytes]) -> None:
    """Have the agent end its ranks, which are in sessions of their own; then be sure of the agent."""
    agent.terminate()
    if not _ended(agent, _GRACE):
        agent.kill()
        agent.wait()


def _rank(folder: Path) -> None:
    rank = int(os.environ["RANK"])
    with reporting(rank, folder):
        # As for all other ranks: DeepSpeed's shared-memory op stays off unless this equals the world.
        os.environ["LOCAL_SIZE"] = str(WORLD + 1)
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        adopt_group("gloo")
        perform(rank, folder)
        dist.destroy_process_group()


if __name__ == "__main__":
    _rank(Path(sys.argv[1]))
