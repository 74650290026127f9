"""``torch.multiprocessing.spawn``: fresh interpreters for every case."""

from __future__ import annotations

from pathlib import Path

from torch.multiprocessing.spawn import ProcessExitedException, spawn

from benchmarks._case import WORLD
from benchmarks._design import DesignError, Verdicts
from benchmarks._exchange import await_verdicts, case_folder
from benchmarks._rank import case_over_file

__all__ = ["SpawnDesign"]


def _rank(rank: int, folder: Path) -> None:
    case_over_file(rank, folder)


class SpawnDesign:
    name = "spawn"
    label = "torch.multiprocessing spawn per case"

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch

    def start(self) -> None:
        """Nothing is kept between cases."""

    def run(self) -> Verdicts:
        folder = case_folder(self._scratch)
        ranks = spawn(_rank, args=(folder,), nprocs=WORLD, join=False)  # type: ignore[no-untyped-call]
        try:
            return await_verdicts(self.name, folder, ranks.join)
        except ProcessExitedException as error:
            raise DesignError(self.name, str(error)) from error
        finally:
            for process in ranks.processes:
                process.kill()
                process.join()

    def close(self) -> None:
        """Nothing outlives a case."""
