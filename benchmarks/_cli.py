"""The command line: what to measure, where figures go, and the exit status."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from benchmarks._bounds import check
from benchmarks._design import DesignError
from benchmarks._figures import Figures
from benchmarks._store import claim, store
from benchmarks._table import render

__all__ = ["main"]

_STATUS = """\
exit status: 0 every bound is met, or --no-assert was given; 1 a bound is missed, or a design could not run
the case; 2 bad usage: arguments, an output that cannot be written, libraries that are missing;
130 interrupted"""


def _measure(rounds: int, say: Callable[[str], None]) -> Figures:
    # Not above: processes that multiprocessing starts import this module before anything else, and what
    # they import is what they are timed for.
    from benchmarks._measure import measure  # noqa: PLC0415

    return measure(rounds, say)


def main(
    arguments: Sequence[str] | None = None,
    measured: Callable[[int, Callable[[str], None]], Figures] = _measure,
) -> int:
    """Measure, print, store; the exit status.

    :param measured: gives the figures for a number of rounds, and says how far it is.
    """
    options = _parser().parse_args(arguments)
    rounds = options.rounds or (2 if options.quick else 5)
    if missing := [name for name in ("torch", "deepspeed", "transformers") if find_spec(name) is None]:
        return _usage(f"{sys.executable} has no {', '.join(missing)}; use ./toxw run -e bench")
    try:
        claim(options.output)
    except OSError as error:
        return _usage(f"figures cannot be written to {options.output}: {error.strerror}; choose another --output")
    try:
        figures = measured(rounds, lambda text: print(text, file=sys.stderr, flush=True))
    except DesignError as error:
        print(f"benchmarks: nothing was measured: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("benchmarks: interrupted, nothing was stored", file=sys.stderr)
        return 130
    checks = check(figures)
    print(render(figures, checks))
    try:
        store(options.output, figures, checks)
    except OSError as error:
        return _usage(f"figures could not be written to {options.output}: {error.strerror}; they are only above")
    print(f"Samples: {options.output}")
    return 0 if options.no_assert or all(one.met for one in checks) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure one case under each way to start ranks, and what the harness occupies.",
        epilog=_STATUS,
    )
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("--quick", action="store_true", help="two rounds instead of five")
    amount.add_argument("--rounds", type=_positive, metavar="N", help="N rounds")
    parser.add_argument(
        "--output", type=Path, default=Path("results/bench.json"), metavar="FILE", help="default: %(default)s"
    )
    parser.add_argument("--no-assert", action="store_true", help="exit 0 also when a bound is missed")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1, found {text!r}")
    return int(text)


def _usage(text: str) -> int:
    print(f"benchmarks: {text}", file=sys.stderr)
    return 2
