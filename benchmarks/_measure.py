"""Run the designs in turn and collect the figures."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Sequence

from benchmarks._alive import AliveDesign
from benchmarks._design import Design, DesignError, Verdicts
from benchmarks._figures import Figures
from benchmarks._forkserver import ForkserverDesign
from benchmarks._spawn import SpawnDesign
from benchmarks._torchrun import TorchrunDesign
from benchmarks._zygote import ZygoteDesign
from harness.cell import Verdict
from harness.cell.outcome._verdict import headline
from harness.cell.ranks._device import DEVICES
from harness.cell.ranks._scratch import new_scratch

__all__ = ["measure"]


def measure(rounds: int, say: Callable[[str], None]) -> Figures:
    """Measure every design ``rounds`` times.  Raises :exc:`DesignError`."""
    # For all processes of all designs alike.
    DEVICES["cpu"].environ(os.environ)
    scratch = new_scratch()
    zygote = ZygoteDesign()
    fast: list[Design] = [zygote, AliveDesign(scratch)]
    slow: list[Design] = [SpawnDesign(scratch), ForkserverDesign(scratch), TorchrunDesign(scratch)]
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        for design in (*fast, *slow):
            stack.callback(design.close)
        _warm_up((*fast, *slow), say)
        seconds = _rounds(rounds, slow, fast, say)
        memory = zygote.weigh()
    labels = {design.name: design.label for design in (*fast, *slow)}
    return Figures(seconds, labels, zygote.start_seconds, memory)


def _warm_up(designs: Sequence[Design], say: Callable[[str], None]) -> None:
    """One case each: reads the libraries from disk, and shows that all run the same case."""
    first: Verdicts = {}
    for design in designs:
        say(f"first case: {design.label}")
        design.start()
        verdicts = design.run()
        overall = headline(Verdict(one) for one in verdicts.values())
        if overall is not Verdict.TRAINS:
            raise DesignError(design.name, f"the case must give TRAINS, found {overall}: {verdicts}")
        first = first or verdicts
        if verdicts != first:
            raise DesignError(design.name, f"its verdicts {verdicts} are not those of the others, {first}")


def _rounds(
    rounds: int, slow: Sequence[Design], fast: Sequence[Design], say: Callable[[str], None]
) -> dict[str, list[list[float]]]:
    """Slow and fast designs in turn, so that what else the machine does hits all alike."""
    seconds: dict[str, list[list[float]]] = {design.name: [] for design in (*fast, *slow)}
    for number in range(1, rounds + 1):
        for samples in seconds.values():
            samples.append([])
        for design in slow:
            for one in (design, *fast, *fast):
                began = time.perf_counter()
                one.run()
                seconds[one.name][-1].append(time.perf_counter() - began)
            say(f"round {number} of {rounds}: {design.label}: {seconds[design.name][-1][0]:.1f} s")
    return seconds
