"""Forkserver that has preloaded nothing, and a pool per case: how DeepSpeed's unit tests launch."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

from benchmarks._case import WORLD
from benchmarks._design import Verdicts
from benchmarks._exchange import await_verdicts, case_folder
from benchmarks._rank import case_over_file

__all__ = ["ForkserverDesign"]


class ForkserverDesign:
    """With the half second that DeepSpeed's launcher sleeps after every test (tests/unit/common.py)."""

    name = "forkserver"
    label = "forkserver, no preload, a pool per case, 0.5 s sleep"

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch

    def start(self) -> None:
        """The first pool starts the server."""

    def run(self) -> Verdicts:
        folder = case_folder(self._scratch)
        with multiprocessing.get_context("forkserver").Pool(WORLD) as pool:
            answer = pool.starmap_async(case_over_file, [(rank, folder) for rank in range(WORLD)])

            def ended(seconds: float) -> bool:
                answer.wait(seconds)
                return answer.ready()

            verdicts = await_verdicts(self.name, folder, ended)
            # Not terminated, as it is when this block is left by an exception: so it is ended there.
            pool.close()
            pool.join()
        time.sleep(0.5)
        return verdicts

    def close(self) -> None:
        """The server, a bare interpreter, ends with this process."""
