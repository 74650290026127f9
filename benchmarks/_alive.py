"""Ranks kept alive between cases: no isolation at all, and so the bound of what can be reached."""

from __future__ import annotations

import gc
import multiprocessing
import os
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks._case import WORLD
from benchmarks._design import LIMIT, DesignError, Verdicts
from benchmarks._rank import case_folder, join_over_file, perform, read_verdicts, reporting

__all__ = ["AliveDesign"]


class AliveDesign:
    """One group for all cases: DeepSpeed keeps groups in module globals and fails on a second."""

    name = "alive"
    label = "ranks kept alive (no isolation)"

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._home = scratch
        self._ranks: list[tuple[multiprocessing.process.BaseProcess, Connection]] = []

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._home = case_folder(self._scratch)
        for rank in range(WORLD):
            ours, theirs = context.Pipe()
            process = context.Process(target=_stay, args=(rank, self._home, theirs), daemon=True)
            process.start()
            theirs.close()
            self._ranks.append((process, ours))

    def run(self) -> Verdicts:
        folder = case_folder(self._scratch)
        for _, pipe in self._ranks:
            pipe.send(folder)
        for rank, (_, pipe) in enumerate(self._ranks):
            if not pipe.poll(LIMIT):
                raise DesignError(self.name, f"rank {rank} was still running after {LIMIT:g} s")
            try:
                pipe.recv()
            except EOFError:
                read_verdicts(self.name, self._home)  # says what ended it, where that is known
        return read_verdicts(self.name, folder)

    def close(self) -> None:
        for _, pipe in self._ranks:
            pipe.close()
        for process, _ in self._ranks:
            process.join(2.0)
            process.kill()
            process.join()
        self._ranks.clear()


def _stay(rank: int, home: Path, pipe: Connection) -> None:
    """Join once, then run a case for every folder that comes, until the other end closes."""
    with reporting(rank, home):
        join_over_file(rank, home)
        _serve(rank, pipe)
    os._exit(0)


def _serve(rank: int, pipe: Connection) -> None:
    frozen = False
    while True:
        try:
            folder = pipe.recv()
        except EOFError:
            return
        with reporting(rank, folder):
            perform(rank, folder)
        pipe.send("done")
        if not frozen:
            # As in the zygote: otherwise ZeRO-3 collects garbage over all libraries in every case.
            gc.collect()
            gc.freeze()
            frozen = True
