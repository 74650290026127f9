"""How long does the whole catalogue take, and which variants most?  Run every case of this stack once.

``python -m benchmarks.suite``; exit status 1 when it takes longer than wanted.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks._columns import columns
from harness.cell._catalog import shipped
from harness.cell.ranks._ahead import Ahead
from harness.cell.ranks._launch import Request, ZygoteLauncher

if TYPE_CHECKING:
    from harness.cell import CaseRecord

__all__ = ["WANTED_SECONDS", "Took", "main", "render", "run"]

#: All cases on a stack that is made, on two cores.
WANTED_SECONDS: Final = 180.0
_SLOWEST: Final = 10
#: So many variants are known to the launcher ahead of the one that is awaited.
_LOOK_AHEAD: Final = 32


@dataclass(frozen=True)
class Took:
    """Seconds of one variant, from the fork of its ranks to their end."""

    id: str
    verdict: str
    seconds: float

    @classmethod
    def of(cls, record: CaseRecord) -> Took:
        return cls(record.id, record.verdict.value, record.seconds.get("total", 0.0))


def run(jobs: int) -> list[Took]:
    """Every variant of every case, once, ``jobs`` under way at a time."""
    wanted = [
        (f"{case.name}[{options.id}]", Request(case, options, case.world))
        for case in shipped()
        for options in case.variants
    ]
    launcher = ZygoteLauncher()
    ahead = Ahead(launcher, jobs)
    try:
        return [
            Took.of(ahead.result(key, request, wanted[number + 1 : number + 1 + _LOOK_AHEAD]).record)
            for number, (key, request) in enumerate(wanted)
        ]
    finally:
        launcher.close()


def render(took: Iterable[Took], wall: float) -> str:
    """The slowest, slowest first, and all together against what is wanted."""
    found = sorted(took, key=lambda one: -one.seconds)
    rows = [(one.id, one.verdict, f"{one.seconds:.1f}") for one in found[:_SLOWEST]]
    share = sum(one.seconds for one in found[:_SLOWEST]) / (sum(one.seconds for one in found) or 1.0)
    return "\n".join(
        [
            *columns(("slowest", "verdict", "seconds"), rows),
            "",
            f"They take {share:.0%} of all ranks' time.",
            f"{len(found)} variants in {wall:.0f} s, wanted {WANTED_SECONDS:.0f}: "
            + ("met" if wall <= WANTED_SECONDS else "MISSED"),
        ]
    )


def main(argv: Sequence[str] | None = None, measure: Callable[[int], list[Took]] = run) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.suite", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="cases under way at once (default: 2)")
    parser.add_argument("--no-assert", action="store_true", help="exit 0 however long it takes")
    args = parser.parse_args(argv)
    if args.jobs < 1:
        parser.error(f"--jobs must be 1 or more, found {args.jobs}")
    began = time.monotonic()
    took = measure(args.jobs)
    wall = time.monotonic() - began
    print(render(took, wall))
    return 0 if wall <= WANTED_SECONDS or args.no_assert else 1


if __name__ == "__main__":
    sys.exit(main())
