"""``torch.multiprocessing.spawn``: fresh interpreters for every case."""

from __future__ import annotations

import os
import time
from pathlib import Path

from torch.multiprocessing.spawn import ProcessExitedException, spawn

from benchmarks._case import WORLD
from benchmarks._design import LIMIT, DesignError, Verdicts
from benchmarks._rank import case_folder, case_over_file, read_verdicts

__all__ = ["SpawnDesign"]


def _rank(rank: int, folder: Path) -> None:
    case_over_file(rank, folder)
    os._exit(0)  # interpreter shutdown with torch loaded aborts now and then


class SpawnDesign:
    name = "spawn"
    label = "torch.multiprocessing spawn per case"

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch

    def start(self) -> None:
        """Nothing is kept between cases."""

    def run(self) -> Verdicts:
        folder = case_folder(self._scratch)
        until = time.monotonic() + LIMIT
        ranks = spawn(_rank, args=(folder,), nprocs=WORLD, join=False)  # type: ignore[no-untyped-call]
        try:
            while not ranks.join(timeout=max(0.0, until - time.monotonic())):
                if time.monotonic() >= until:
                    raise DesignError(self.name, f"a rank was still running after {LIMIT:g} s")
        except ProcessExitedException as error:
            raise DesignError(self.name, str(error)) from error
        finally:
            for process in ranks.processes:
                process.kill()
                process.join()
        return read_verdicts(self.name, folder)

    def close(self) -> None:
        """Nothing outlives a case."""
