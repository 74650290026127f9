"""What a way to the engine costs: the same case by each driver, as times what a plain loop takes.

``python -m benchmarks.drivers``; exit status 0 when each is within the bound, 1 when one is not or could not be
measured.  Drivers take turns on one warm zygote, and only ratios within a round are compared, so that what else the
machine does hits all alike.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from harness.cases.drivers import frozen_before_any_driver
from harness.cell import Options, Verdict
from harness.cell.ranks._launch import Request, ZygoteLauncher

__all__ = ["BOUND", "VARIANTS", "main", "ratios", "render"]

#: The wanted bound: a driver's case seconds over those of a plain loop.
BOUND: Final = 2.0
#: All as people load a model at stage 3; the first is what the others are held against.
VARIANTS: Final[Mapping[str, Options]] = {
    "plain loop": Options(init="zero_init"),
    "accelerate": Options(init="zero_init", driver="accelerate"),
    "Trainer": Options(init="zero_init", driver="trainer"),
    "PEFT": Options(init="zero_init", adapters="lora"),
}
_PLAIN: Final = next(iter(VARIANTS))

Samples = Mapping[str, Sequence[float]]


class NoFigures(Exception):
    """A case did not train, so its seconds say nothing."""


def measure(rounds: int, say: Callable[[str], None]) -> dict[str, list[float]]:
    """Seconds of each, a sample a round.  Raises NoFigures."""
    launcher = ZygoteLauncher()
    try:
        for name, options in VARIANTS.items():
            say(f"first case: {name}")
            # The first teaches the zygote what to import, the second is answered once it has.
            for _ in range(2):
                _seconds(launcher, options)
        seconds: dict[str, list[float]] = {name: [] for name in VARIANTS}
        for number in range(1, rounds + 1):
            for name, options in VARIANTS.items():
                seconds[name].append(_seconds(launcher, options))
            say(f"round {number} of {rounds}")
        return seconds
    finally:
        launcher.close()


def _seconds(launcher: ZygoteLauncher, options: Options) -> float:
    began = time.perf_counter()
    record = launcher.result(launcher.submit(Request(frozen_before_any_driver, options, 2))).record
    if record.verdict is not Verdict.TRAINS:
        raise NoFigures(f"{record.id}: {record.verdict}: {record.headline}")
    return time.perf_counter() - began


def ratios(seconds: Samples) -> dict[str, float]:
    """Of each but the first: the median over rounds of how many times longer it took."""
    return {
        name: statistics.median(one / plain for one, plain in zip(samples, seconds[_PLAIN], strict=True))
        for name, samples in seconds.items()
        if name != _PLAIN
    }


def render(seconds: Samples) -> Iterator[str]:
    """A line each; those above the bound are marked."""
    times = ratios(seconds)
    width = max(map(len, seconds))
    yield f"{'driver':<{width}}  median s  times a plain loop"
    for name, samples in seconds.items():
        ratio = f"{times[name]:.2f}{' !' if times[name] > BOUND else ''}" if name in times else "1"
        yield f"{name:<{width}}  {statistics.median(samples):8.2f}  {ratio}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drivers", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="samples of each (default: 9)")
    args = parser.parse_args(argv)
    if args.rounds < 1:
        parser.error(f"--rounds must be 1 or more, found {args.rounds}")
    try:
        seconds = measure(args.rounds, lambda text: print(text, file=sys.stderr, flush=True))
    except NoFigures as error:
        print(f"benchmarks: nothing was measured: {error}", file=sys.stderr)
        return 1
    print("\n".join(render(seconds)))
    slow = [name for name, ratio in ratios(seconds).items() if ratio > BOUND]
    if slow:
        print(f"! more than {BOUND:g} times a plain loop: {', '.join(slow)}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
