"""``thawcheck lint``: every file of the matrix, checked at once and against the others."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.cell._catalog import shipped
from harness.cell._patterns import nearest
from harness.cell.outcome._expect import Expectation, read_entries
from harness.cell.outcome._observed import Observed, ObservedError, read_observed
from harness.control._exit import Exit, Usage, help_texts
from harness.control._fresh import fresh, stale_cases
from harness.control._matrix import add_folder, folder_of
from harness.control.expect import can_compare, entry_faults, few, gaps, gather, read_causes, unexplained
from harness.control.locks import Lock, LockState, state_of
from harness.control.stacks import Matrix, MatrixError, load_matrix

__all__ = ["add_to", "execute"]


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "lint",
        help="check all files of the matrix",
        **help_texts(
            "Check stacks, releases, locks, observations and expectations, each file by itself and against the others, "
            "and tell every fault with file and line. Whether verdicts are the expected ones, `thawcheck expect` says.",
            {Exit.OK: "no fault", Exit.DIFFERS: ""},
        ),
    )
    add_folder(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> Exit:
    lint = _Lint(folder_of(args))
    lint.all()
    for note in lint.notes:
        print(f"note: {note}")
    if lint.faults:
        count = "1 fault" if len(lint.faults) == 1 else f"{len(lint.faults)} faults"
        raise Usage("\n".join([f"the matrix has {count}:", *lint.faults]))
    print(
        f"{len(lint.stacks)} stacks, {len(lint.locks)} locks, {len(lint.observed)} observed, "
        f"{len({one.source for one in lint.entries})} entries: no fault"
    )
    return Exit.OK


class _Lint:
    """Goes through the files, and gathers what is wrong with them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.faults: list[str] = []
        #: what a reader may want to know, and is no fault
        self.notes: list[str] = []
        self._matrix: Matrix | None = None
        self.stacks: list[str] = []
        self.locks: dict[str, Lock] = {}
        self.observed: dict[str, Observed] = {}
        self.entries: list[Expectation] = []

    def all(self) -> None:
        try:
            self._matrix = load_matrix(self._folder)
        except MatrixError as error:
            self.faults += error.faults
        else:
            self.stacks = [*self._matrix.stacks]
            self.faults += self._lock_faults(self._matrix)
        self.faults += self._observed_faults()
        self._expected()

    def _lock_faults(self, matrix: Matrix) -> Iterator[str]:
        for stack in matrix.stacks.values():
            if stack.dev:
                continue
            path = matrix.lock(stack.name)
            lock, state = state_of(stack, path)
            if lock is not None:
                self.locks[stack.name] = lock
            if state is not LockState.FRESH:
                yield f"{path}:1: {state.value}; solve it: thawcheck lock {stack.name}"
        for path in sorted((self._folder / "locks").glob("*.txt")):
            if path.stem not in matrix.stacks:
                yield f"{path}:1: no stack is called {path.stem!r}; {nearest(path.stem, matrix.stacks)}"
        unsolvable = [name for name, lock in self.locks.items() if lock.unsolvable]
        if unsolvable:
            self.notes.append(f"without a solution, as their locks say: {', '.join(unsolvable)}")

    def _observed_faults(self) -> Iterator[str]:
        stale: dict[str, list[str]] = {}
        for path in sorted((self._folder / "observed").glob("*.jsonl")):
            try:
                found = read_observed(path)
            except ObservedError as error:
                yield from error.faults
                continue
            self.observed[found.stack] = fresh(found)
            for case in stale_cases(found):
                stale.setdefault(case, []).append(found.stack)
            yield from self._stack_faults(path, found)
            yield from (f"{path}:{line}: {fault}" for line, fault in _outcome_faults(found))
        if stale:
            stacks = [*dict.fromkeys(stack for some in stale.values() for stack in some)]
            self.notes.append(
                f"measured by other code than they have now, and so not at all: {few([*stale])}, on {few(stacks)}; "
                "thawcheck sweep measures them again"
            )
        missing = [name for name in self.locks if name not in self.observed]
        if missing:
            self.notes.append(f"not measured yet: {few(missing)}")
        self.notes += self._holes()

    def _stack_faults(self, path: Path, found: Observed) -> Iterator[str]:
        if self._matrix is None:  # nothing is known of stacks then
            return
        if found.stack not in self._matrix.stacks:
            yield f"{path}:1: no stack is called {found.stack!r}; {nearest(found.stack, self._matrix.stacks)}"
        elif (lock := self.locks.get(found.stack)) and lock.answer != found.lock:
            yield (
                f"{path}:1: measured by another lock ({found.lock}) than the present one ({lock.answer}); measure the "
                f"stack again: thawcheck sweep {found.stack}"
            )

    def _holes(self) -> Iterator[str]:
        """Cases that came after a stack was measured."""
        wanted = {f"{case.name}[{options.id}]": case.name for case in shipped() for options in case.variants}
        behind: dict[str, list[str]] = {}
        for found in self.observed.values():
            if not found.unsolvable:
                there = {f"{case}[{variant}]" for case, variant in found.key()}
                for case in dict.fromkeys(case for one, case in wanted.items() if one not in there):
                    behind.setdefault(case, []).append(found.stack)
        alike: dict[tuple[str, ...], list[str]] = {}
        for case, stacks in behind.items():
            alike.setdefault(tuple(stacks), []).append(case)
        for names, cases in alike.items():
            are = "is" if len(cases) == 1 else "are"
            yield f"{few(cases)} {are} not measured, or not in every variant, on {few(names)}"

    def _expected(self) -> None:
        folder = self._folder / "expected"
        self.entries, faults = read_entries(folder)
        self.faults += faults
        known: Mapping[str, Mapping[str, Any]] = self._matrix.releases if self._matrix else {}
        releases = {package: [*found] for package, found in known.items()}
        self.faults += (f"{folder}/{fault}" for fault in entry_faults(self.entries, shipped(), releases))
        self.faults += read_causes(self._folder / "causes.toml")[1]
        self.notes += unexplained(self.entries, shipped())
        self.notes += gaps(self.entries, shipped(), releases, gather(self.observed.values(), shipped()))
        if not can_compare():
            self.notes.append("packaging is older than 26.3: overlaps were looked for among known releases only")


def _outcome_faults(found: Observed) -> Iterator[tuple[int, str]]:
    """A line, and what is wrong there: the head is line 1, and each outcome has a line."""
    cases = {case.name: case for case in shipped()}
    for line, outcome in enumerate(found.outcomes, 2):
        case = cases.get(outcome.case)
        if case is None:
            yield line, f"no case is called {outcome.case!r}; {nearest(outcome.case, cases)}"
            continue
        ids = [options.id for options in case.variants]
        for variant in (options.id for options in outcome.variants):
            if variant not in ids:
                yield line, f"{case.name} has no variant {variant!r}; {nearest(variant, ids)}"
