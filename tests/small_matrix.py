"""A small matrix of made-up releases, solved without a solver, and what might be observed on its stacks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from harness.cell import Options, Verdict
from harness.cell.outcome._observed import Observed, Outcome
from harness.cell.outcome._record import Failure
from harness.control.locks import Lock, write_lock
from harness.control.stacks import Matrix, load_matrix

__all__ = ["RELEASES", "STACKS", "make_matrix", "observed", "outcome", "solve"]

STACKS: Final = """\
undated = ["numpy"]
[base.newest]
python = ["3.11", "3.12"]
as_of = 2026-11-29
floats = ["numpy"]
pins.torch = "2.13.0"
pins.deepspeed = "0.19.0"

[stack.latest]
description = "the newest"
labels = ["smoke"]
base = "newest"

[sweep.deepspeed]
description = "DeepSpeed {version}"
name = "ds-{version}"
label = "deepspeed"
base = "newest"
moves = "deepspeed"
range = ">=0.17"
take = "every"

[sweep.torch]
description = "torch {version}"
name = "torch-{version}"
label = "torch"
base = "newest"
moves = "torch"
range = ">=2.2"
take = "last-of-minor"
of_its_day = ["accelerate"]

[[exclude]]
where = {deepspeed = "==0.18.0"}
reason = "its wheel is empty"

[stack.dev-main]
description = "main branches"
labels = ["dev"]
dev = true
python = ["3.12"]
requires = ["torch", "deepspeed @ git+https://example.org/deepspeed.git"]
"""

RELEASES: Final = """\
# Made up.
[torch]
"2.2.0" = 2024-01-30
"2.2.1" = 2024-02-22  # the last of its minor
"2.13.0" = 2026-07-08

[deepspeed]
"0.17.0" = 2025-06-02
"0.18.0" = 2025-10-07
"0.19.0" = 2026-05-06
# none after it yet

[accelerate]
"0.25.0" = 2023-12-01
"1.15.0" = 2026-07-01
"""


def make_matrix(root: Path, *, stacks: str = STACKS, releases: str = RELEASES) -> Matrix:
    """The folder ``matrix`` of a checkout at ``root``; nothing is solved."""
    folder = root / "matrix"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stacks.toml").write_text(stacks, encoding="utf-8")
    (folder / "releases.toml").write_text(releases, encoding="utf-8")
    return load_matrix(folder)


def solve(matrix: Matrix, *, unsolvable: Mapping[str, str] | None = None) -> None:
    """A lock for every stack: its pins, and some packages that the solver chose."""
    for stack in matrix.stacks.values():
        if stack.dev:
            continue
        if reason := (unsolvable or {}).get(stack.name, ""):
            lock = Lock(stack.question, "uv 1.0", unsolvable=reason)
        else:
            chosen = {"numpy": "2.5.5", "pytest": "9.2.0", "pytest-timeout": "2.4.0", "pytest-xdist": "3.8.0"}
            lock = Lock(stack.question, "uv 1.0", {**chosen, "sympy": "1.14.0", **stack.pins})
        write_lock(matrix.lock(stack.name), stack, lock)


def outcome(
    case: str, verdict: Verdict, *stages: int, failure: Failure | None = None, parameters: tuple[str, ...] = ()
) -> Outcome:
    variants = tuple(Options(model="mlp", stage=stage) for stage in stages or (1,))
    return Outcome(case, verdict, variants, 2, {verdict: parameters} if parameters else {}, failure)


def observed(stack: str, *outcomes: Outcome, day: str = "2026-11-30", **fields: object) -> Observed:
    """What was seen on a stack; ``fields`` change the rest of its head."""
    head: dict[str, object] = {
        "harness": "1.0",
        "device": "cpu",
        "lock": "0123456789abcdef",
        "versions": {"torch": "2.13.0+cpu", "deepspeed": "0.19.0", "python": "3.11.7"},
    }
    return Observed(stack=stack, measured=day, outcomes=outcomes, **{**head, **fields})  # type: ignore[arg-type]
