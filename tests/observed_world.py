"""Makes observed files and matrix folders for tests, without measuring anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import small_matrix

from harness.cell import Failure, Options, Verdict
from harness.cell.outcome._observed import Observed, Outcome
from harness.control.locks import read_lock

__all__ = ["RELEASES", "STACKS", "make_matrix", "observed", "outcome", "raises"]

STACKS: Final = """\
[base.all]
python = ["3.11"]
pins.deepspeed = "0.2"
pins.torch = "2.0"

[stack.older]
description = "the older"
labels = ["smoke"]
base = "all"
pins.deepspeed = "0.1"

[stack.newer]
description = "the newer"
labels = ["smoke"]
base = "all"

[stack.dev]
description = "tomorrow's"
labels = ["dev"]
dev = true
python = ["3.12"]
prereleases = true
requires = ["torch"]
"""

RELEASES: Final = """\
[deepspeed]
"0.1" = 2024-01-01
"0.2" = 2024-02-01
"0.3" = 2024-03-01
"0.4" = 2024-04-01

[torch]
"2.0" = 2024-01-01
"""


def outcome(
    case: str,
    verdict: Verdict,
    variants: Sequence[Options],
    parameters: Mapping[Verdict, Sequence[str]] | None = None,
    failure: tuple[str, str, str] | None = None,
) -> Outcome:
    names = {one: tuple(some) for one, some in (parameters or {}).items()}
    return Outcome(case, verdict, tuple(variants), 2, names, Failure(*failure) if failure else None)


def raises(case: str, variants: Sequence[Options], message: str, kind: str = "IndexError") -> Outcome:
    return outcome(case, Verdict.RAISES, variants, failure=("engine", kind, message))


def observed(
    stack: str,
    versions: Mapping[str, str],
    *outcomes: Outcome,
    lock: str = "",
    device: str = "cpu",
    unsolvable: str = "",
) -> Observed:
    """With a Python, which every stack has."""
    found = {"python": "3.11.7", **versions} if not unsolvable else {}
    return Observed(stack, "0.1", "2026-01-31", device, lock, found, outcomes, unsolvable)


def make_matrix(folder: Path, stacks: str = STACKS, releases: str = RELEASES) -> dict[str, str]:
    """A matrix without fault, of which nothing was observed; the answer of each lock."""
    matrix = small_matrix.make_matrix(folder.parent, stacks=stacks, releases=releases)
    small_matrix.solve(matrix)
    for name in ("observed", "expected"):
        (folder / name).mkdir()
    locks = {path.stem: read_lock(path)[0] for path in (folder / "locks").glob("*.txt")}
    return {name: lock.answer for name, lock in locks.items() if lock}
