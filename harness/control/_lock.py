"""``thawcheck lock``: solve stacks, or say which solutions are stale."""

from __future__ import annotations

import argparse
import concurrent.futures
import sys
from pathlib import Path
from typing import Any

from harness.control._exit import Exit, Usage, help_texts
from harness.control._matrix import add_selection, matrix_of, selected
from harness.control.locks import Lock, LockState, SolverFailed, find_uv, solve, state_of, write_lock
from harness.control.stacks import Matrix, Stack

__all__ = ["add_to", "execute"]

_AT_ONCE = 4


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "lock",
        help="solve stacks into matrix/locks/",
        **help_texts(
            "Solve each stack with uv, once, and keep the exact versions. What is solved already and still answers "
            "its stack is left alone. A stack without a solution is kept with the solver's reason.",
            {
                Exit.OK: "every stack has its lock",
                Exit.DIFFERS: "with --check: a lock is missing or stale",
                Exit.FAILED: "a stack could not be solved, or its lock not written; the others are",
            },
        ),
    )
    add_selection(parser)
    parser.add_argument("--check", action="store_true", help="solve nothing; say which locks are stale")
    parser.add_argument("--again", action="store_true", help="solve also what is solved")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> Exit:
    matrix = matrix_of(args)
    stacks = [stack for stack in selected(matrix, args.names, args.label) if not stack.dev]
    states = {stack.name: state_of(stack, matrix.lock(stack.name))[1] for stack in stacks}
    if args.check:
        return _check(matrix, states, everything=not (args.names or args.label))
    todo = [stack for stack in stacks if args.again or states[stack.name] is not LockState.FRESH]
    if not todo:
        print(f"{len(stacks)} of {len(stacks)} locks answer their stacks")
        return Exit.OK
    return _solve_all(matrix, todo)


def _check(matrix: Matrix, states: dict[str, LockState], *, everything: bool) -> Exit:
    bad = [f"{matrix.lock(name)}: {state.value}" for name, state in states.items() if state is not LockState.FRESH]
    if everything:
        locks = sorted(matrix.lock("-").parent.glob("*.txt"))
        bad += [f"{path}: no stack is called {path.stem!r}" for path in locks if path.stem not in matrix.stacks]
    for line in bad:
        print(line)
    print(f"{sum(one is LockState.FRESH for one in states.values())} of {len(states)} are fresh")
    if {LockState.EDITED, LockState.BROKEN} & {*states.values()}:
        return Exit.USAGE  # not what time does to a lock, but what somebody did
    return Exit.DIFFERS if bad else Exit.OK


def _solve_all(matrix: Matrix, todo: list[Stack]) -> Exit:
    try:
        uv = find_uv()
    except SolverFailed as error:
        raise Usage(str(error)) from None
    failed = 0
    root = matrix.folder.resolve().parent
    with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
        asked = {pool.submit(solve, stack, root, uv): stack for stack in todo}
        try:
            for number, one in enumerate(concurrent.futures.as_completed(asked), 1):
                stack = asked[one]
                try:
                    said = _keep(matrix.lock(stack.name), stack, one.result())
                except SolverFailed as error:
                    print(f"thawcheck: {error}", file=sys.stderr)
                    failed += 1
                    continue
                print(f"[{number}/{len(todo)}] {stack.name}: {said}", flush=True)
        except BaseException:
            pool.shutdown(cancel_futures=True)  # else all that are left would be solved first
            raise
    return Exit.FAILED if failed else Exit.OK


def _keep(path: Path, stack: Stack, lock: Lock) -> str:
    """Write a lock; in words, what it is.  Raises SolverFailed where that cannot or must not be."""
    if lock.unsolvable:
        before, state = state_of(stack, path)
        if before is not None and state is LockState.FRESH and not before.unsolvable:
            raise SolverFailed(
                f"{stack.name}: {path} solves the same question, and now there is no solution: {lock.unsolvable}; "
                "the lock is kept, remove it if it is wrong"
            )
    try:
        changed = write_lock(path, stack, lock)
    except OSError as error:
        raise SolverFailed(f"{stack.name}: {path} cannot be written: {error.strerror}") from None
    what = f"has no solution: {lock.unsolvable}" if lock.unsolvable else f"{len(lock.versions)} packages"
    return what if changed else f"{what}, as before"
