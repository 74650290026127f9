"""Ranks kept alive between cases: no isolation at all, and so the bound of what can be reached."""

from __future__ import annotations

import contextlib
import gc
import itertools
import multiprocessing
import os
from multiprocessing.connection import Connection, wait
from pathlib import Path

from benchmarks._case import WORLD
from benchmarks._design import Verdicts
from benchmarks._exchange import await_verdicts, case_folder, reporting
from benchmarks._rank import join_over_file, perform
from harness.cell.ranks._start import own_session

__all__ = ["AliveDesign"]


class AliveDesign:
    """One group for all cases: DeepSpeed keeps groups in module globals and fails on a second."""

    name = "alive"
    label = "ranks kept alive (no isolation)"

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._processes: list[multiprocessing.process.BaseProcess] = []
        self._pipes: list[Connection] = []

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        for rank in range(WORLD):
            ours, theirs = context.Pipe()
            self._pipes.append(ours)
            self._processes.append(context.Process(target=_stay, args=(rank, theirs), daemon=True))
            self._processes[-1].start()
            theirs.close()

    def run(self) -> Verdicts:
        folder = case_folder(self._scratch)
        for pipe in self._pipes:
            with contextlib.suppress(BrokenPipeError):  # a rank that died leaves no verdict
                pipe.send(folder)
        running = list(self._pipes)

        def ended(seconds: float) -> bool:
            ready = wait(running, seconds)
            for pipe in [one for one in running if one in ready]:
                running.remove(pipe)
                try:
                    pipe.recv()
                except (EOFError, ConnectionResetError):
                    return True  # it died, and its peers wait for it in a collective
            return not running

        return await_verdicts(self.name, folder, ended)

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(2.0)
            process.kill()
            process.join()
        self._pipes.clear()
        self._processes.clear()


def _stay(rank: int, pipe: Connection) -> None:
    """Run a case for every folder that comes, until the other end closes."""
    own_session()  # dies with the process that started it, also inside a collective
    for number in itertools.count():
        try:
            folder = pipe.recv()
        except EOFError:
            os._exit(0)  # interpreter shutdown with torch loaded aborts now and then
        with reporting(rank, folder):
            if number == 0:
                join_over_file(rank, folder)
            perform(rank, folder)
        pipe.send("done")
        if number == 0:
            # As in the zygote: otherwise ZeRO-3 collects garbage over all libraries in every case.
            gc.collect()
            gc.freeze()
