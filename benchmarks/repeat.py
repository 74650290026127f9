"""Do verdicts repeat?  Run the core cases over and over and compare every table with the first.

``python -m benchmarks.repeat --runs 100``; exit status 0 when all are equal, 1 when one differs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from harness.cases import core
from harness.cell import Case, Options
from harness.cell.ranks._ahead import Ahead
from harness.cell.ranks._launch import Request, ZygoteLauncher

if TYPE_CHECKING:
    from harness.cell import CaseRecord

__all__ = ["differing", "main", "seen"]

#: What is compared of one variant: everything but what a clock or a pointer may change.
Seen = tuple[object, ...]


def variants() -> list[tuple[str, Request]]:
    """Every variant of every core case, in the order of the file."""
    cases = [one for one in vars(core).values() if isinstance(one, Case)]
    return [(f"{case.name}[{options.id}]", _request(case, options)) for case in cases for options in case.variants]


def _request(case: Case, options: Options) -> Request:
    return Request(case, options, case.world)


def seen(record: CaseRecord) -> Seen:
    """The verdict, how it failed, and each parameter's verdict and movement, bit for bit."""
    failure = record.failure and (record.failure.moment, record.failure.type, tuple(record.failure.ranks))
    parameters = tuple((one.name, one.verdict, one.moment, one.moved) for one in record.parameters)
    return record.verdict, failure, parameters


def one_run(ahead: Ahead, wanted: Sequence[tuple[str, Request]]) -> Iterator[tuple[str, Seen]]:
    """Each variant once, several under way at a time."""
    for number, (key, request) in enumerate(wanted):
        yield key, seen(ahead.result(key, request, wanted[number + 1 : number + 33]).record)


def differing(first: dict[str, Seen], other: dict[str, Seen]) -> list[str]:
    """The variants of which two runs say different things."""
    return [key for key in first if first[key] != other.get(key)]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.repeat", description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100, metavar="N", help="how many runs (default: 100)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="cases under way at once (default: 2)")
    args = parser.parse_args(argv)
    if args.runs < 2:
        parser.error(f"--runs must be 2 or more, to have something to compare; found {args.runs}")
    wanted = variants()
    launcher = ZygoteLauncher()
    ahead = Ahead(launcher, args.jobs)
    began = time.monotonic()
    first: dict[str, Seen] = {}
    unequal = 0
    try:
        for number in range(1, args.runs + 1):
            run = dict(one_run(ahead, wanted))
            first = first or run
            different = differing(first, run)
            unequal += bool(different)
            for key in different:
                print(f"run {number}: {key} gave {run[key][:2]}, in run 1 {first[key][:2]}", flush=True)
            print(f"run {number} of {args.runs}: {time.monotonic() - began:.0f} s, {unequal} unequal", flush=True)
    finally:
        launcher.close()
    print(f"{args.runs} runs of {len(wanted)} variants: {args.runs - unequal} equal, {unequal} not")
    return 1 if unequal else 0


if __name__ == "__main__":
    sys.exit(main())
