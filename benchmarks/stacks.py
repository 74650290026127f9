"""What a stack costs: its environment, its zygote, its cases.  ``python -m benchmarks.stacks NAME...``.

Run beside the environments, in one that has thawcheck and uv; each stack gets a fresh environment in a
temporary folder, twice: the first install fills uv's cache and is not counted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.control.locks import LockState, SolverFailed, find_uv, state_of
from harness.control.stacks import Matrix, MatrixError, Stack, load_matrix

__all__ = ["Cost", "main", "measure", "render"]

ROOT: Final = Path(__file__).resolve().parents[1]
#: The wanted bound on an environment whose wheels are cached.
INSTALL_SECONDS: Final = 15.0


class NoFigures(Exception):
    """A stack cannot be measured; says why."""


@dataclass(frozen=True)
class Cost:
    """Seconds of one stack."""

    stack: str
    install: float
    #: from nothing to ready: the first zygote of an environment, and one after cases have run
    first_zygote: float
    zygote: float
    #: medians of a two-rank case at stage 3, two steps and the twin included
    mlp: float
    tiny_llama: float


def measure(stack: Stack, matrix: Matrix, uv: str, repeat: int) -> Cost:
    """Raises NoFigures."""
    path = matrix.lock(stack.name)
    lock, state = state_of(stack, path)
    if lock is None or state is not LockState.FRESH or lock.unsolvable:
        raise NoFigures(f"{stack.name}: {lock.unsolvable if lock and lock.unsolvable else state.value}")
    with tempfile.TemporaryDirectory(prefix="thawcheck-bench-") as folder:
        _install(uv, stack, path, Path(folder) / "first")
        began = time.perf_counter()
        _install(uv, stack, path, Path(folder) / "env")
        install = time.perf_counter() - began
        said = _run(
            [str(Path(folder) / "env" / "bin" / "python"), "-m", "benchmarks._in_stack", str(repeat)],
            # From the checkout: installing thawcheck itself is no part of a stack.
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    return Cost(stack.name, install, **json.loads(said.splitlines()[-1]))


def _install(uv: str, stack: Stack, lock: Path, env: Path) -> None:
    """As tox does: on the first Python of the stack that is here."""
    make = [uv, "venv", "--quiet", "--python-preference", "system", "--no-python-downloads", str(env), "--python"]
    for python in stack.python[:-1]:
        with contextlib.suppress(NoFigures):
            _run([*make, python])
            break
    else:
        _run([*make, stack.python[-1]])
    _run([uv, "pip", "install", "--quiet", "--python", str(env), "-r", str(lock)])


def _run(command: list[str], env: dict[str, str] | None = None) -> str:
    """What a command printed.  Raises NoFigures."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, cwd=ROOT)
    if done.returncode:
        end = " ".join((done.stderr or done.stdout).split())[-400:]
        raise NoFigures(f"{' '.join(command[:4])} left with {done.returncode}: {end}")
    return done.stdout


def render(costs: Sequence[Cost]) -> str:
    """A line per stack, and whether the environment is made in time."""
    heads = ("stack", "install", "first zygote", "zygote", "mlp case", "tiny_llama case")
    rows = [
        (
            one.stack,
            f"{one.install:.1f}{'' if one.install <= INSTALL_SECONDS else ' !'}",
            f"{one.first_zygote:.1f}",
            f"{one.zygote:.1f}",
            f"{one.mlp:.2f}",
            f"{one.tiny_llama:.2f}",
        )
        for one in costs
    ]
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (heads, *rows)]
    return "\n".join(line.rstrip() for line in lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stacks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="stacks (default: those with the label smoke)")
    parser.add_argument("--repeat", type=int, default=9, metavar="N", help="runs of each case (default: 9)")
    args = parser.parse_args(argv)
    try:
        matrix = load_matrix(ROOT / "matrix")
        uv = find_uv()
    except (MatrixError, SolverFailed) as error:
        parser.error(str(error))
    names = args.names or matrix.labelled("smoke")
    if unknown := [name for name in names if name not in matrix.stacks]:
        parser.error(f"no stack is called {', '.join(unknown)}; see `thawcheck stacks`")
    costs = []
    failed = False
    for name in names:
        try:
            costs.append(measure(matrix.stacks[name], matrix, uv, args.repeat))
        except NoFigures as error:
            print(f"benchmarks: {error}", file=sys.stderr)
            failed = True
    print(render(costs))
    late = [one.stack for one in costs if one.install > INSTALL_SECONDS]
    if late:
        print(f"! more than {INSTALL_SECONDS:.0f} s for the environment: {', '.join(late)}")
    return 1 if failed or late else 0


if __name__ == "__main__":
    sys.exit(main())
