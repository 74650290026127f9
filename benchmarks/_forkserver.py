"""Forkserver that has preloaded nothing, and a pool per case: how DeepSpeed's unit tests launch."""

from __future__ import annotations

import contextlib
import multiprocessing
from pathlib import Path

from benchmarks._case import WORLD
from benchmarks._design import LIMIT, DesignError, Verdicts
from benchmarks._rank import case_folder, case_over_file, read_verdicts

__all__ = ["ForkserverDesign"]


class ForkserverDesign:
    """Without the half second that DeepSpeed's launcher sleeps after every test."""

    name = "forkserver"
    label = "forkserver, no preload, a pool per case"

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch

    def start(self) -> None:
        """The first pool starts the server."""

    def run(self) -> Verdicts:
        folder = case_folder(self._scratch)
        # Closed and joined as there; terminated only when it failed.
        with contextlib.closing(multiprocessing.get_context("forkserver").Pool(WORLD)) as pool:
            answer = pool.starmap_async(case_over_file, [(rank, folder) for rank in range(WORLD)])
            try:
                answer.get(LIMIT)
            except multiprocessing.TimeoutError:
                # A worker that dies is replaced, and its answer never comes.
                pool.terminate()
                raise DesignError(self.name, f"a rank had not answered after {LIMIT:g} s") from None
        pool.join()
        return read_verdicts(self.name, folder)

    def close(self) -> None:
        """The server, a bare interpreter, ends with this process."""
