"""Runs one case at one place: solves its versions, makes its environment through tox, runs it some times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from harness.cell._case import Case
from harness.cell.outcome._record import CaseRecord
from harness.control.bisect._line import Line, Place
from harness.control.bisect._memory import Memory, Seen, Sight
from harness.control.bisect._stacks import companions_on, moved, scratch_matrix
from harness.control.boundaries import Did
from harness.control.locks import Lock, LockState, find_uv, solve, state_of, write_lock
from harness.control.stacks import Matrix, Stack
from harness.control.sweep import Measurer, NotMeasured

__all__ = ["Prober"]

#: So many environments that cannot be made, and none that can: it is not the releases that are at fault.
_IN_VAIN: Final = 4


class Prober:
    """Of one bisection.  Keeps what it saw, and makes no environment for what it has seen."""

    def __init__(
        self,
        matrix: Matrix,
        base: Stack,
        line: Line,
        case: Case,
        *,
        of_its_day: Sequence[str] = (),
        folder: Path,
        say: Callable[[str], None],
    ) -> None:
        """:param folder: of this bisection alone.

        :raises OSError: where nothing can be written there.
        """
        self.line = line
        self.made = 0
        self._matrix = matrix
        self._case = case
        self._say = say
        self._memory = Memory(folder / "seen.jsonl")
        self._stacks = [
            # Two bisections may be under way in one checkout; a letter first, or tox reads a Python version.
            moved(base, line, place, companions_on(matrix, of_its_day, place), f"k{folder.name}-{place.short}")
            for place in line.places
        ]
        self._scratch = scratch_matrix(matrix, self._stacks, folder / "matrix")
        self._root = matrix.folder.resolve().parent
        self._measurer = Measurer(self._scratch, folder, root=self._root)
        self._ready = False
        #: environments that could not be made, until one could
        self._in_vain: int | None = 0

    def stack(self, number: int) -> Stack:
        """What is installed at a place."""
        return self._stacks[number]

    def look(self, number: int, times: int) -> Sight:
        """At least so many runs of every variant at a place, or why there can be none.

        :raises NotMeasured: where thawcheck itself cannot be built, or no environment at all can be made.
        :raises SolverFailed: where nothing can be said of the versions.
        :raises OSError: where what was seen cannot be kept.
        """
        place = self.line.places[number]
        known = self._memory.at(place.at)
        have = len(known.runs) if known else 0
        if known is not None and (known.unusable or have >= times):
            return known
        sight, lasting = self._seen(number, place, times - have)
        self._memory.add(sight, lasting=lasting)
        found = self._memory.at(place.at)
        assert found is not None  # it was just added
        return found

    def close(self) -> None:
        self._measurer.drop_caches()
        self._measurer.close()

    def _seen(self, number: int, place: Place, times: int) -> tuple[Sight, bool]:
        """And whether that holds tomorrow: an environment may be makeable then."""
        stack = self._scratch.stacks[self._stacks[number].name]
        lock = self._locked(stack)
        if lock.unsolvable:
            return Sight(place.at, unusable=f"cannot be installed: {lock.unsolvable}"), True
        if not self._ready:
            self._measurer.prepare()
            self._ready = True
        self.made += 1
        self._say(f"  {place.short}: environment {self.made} ...")
        first = ""
        if self.line.clone is not None:
            source = f"{self.line.package} @ git+file://{self.line.clone}@{place.at}"
            first = f"{find_uv()} pip install --quiet --no-deps --no-build-isolation '{source}'"
        try:
            runs = self._measurer.runs(stack, [self._case.name], times, first=first)
        except NotMeasured as error:
            if self._in_vain is not None:
                self._in_vain += 1
                if self._in_vain == _IN_VAIN:
                    raise
            reason = str(error).splitlines()
            return Sight(place.at, unusable=f"cannot be installed: {reason[-1].strip()}"), False
        self._in_vain = None
        if reason_not := _not_run(runs):
            return Sight(place.at, unusable=reason_not), True
        versions = runs[0][0].versions
        return Sight(place.at, tuple(map(_by_variant, runs)), versions=versions), True

    def _locked(self, stack: Stack) -> Lock:
        path = self._scratch.lock(stack.name)
        lock, state = state_of(stack, path)
        if lock is not None and state is LockState.FRESH:
            return lock
        # A stack of the matrix that asks the same has the answer.
        for other in self._matrix.stacks.values():
            if not other.dev and other.question == stack.question:
                lock, state = state_of(other, self._matrix.lock(other.name))
                if lock is not None and state is LockState.FRESH:
                    break
        else:
            lock = solve(stack, self._root, find_uv())
        write_lock(path, stack, lock)
        return lock


def _by_variant(records: Iterable[CaseRecord]) -> dict[str, Seen]:
    return {one.id.partition("[")[2].removesuffix("]"): Seen.of(one) for one in records}


def _not_run(runs: Sequence[Sequence[CaseRecord]]) -> str:
    """Why nothing ran at all; empty where something did."""
    every = [one for records in runs for one in records]
    if any(Did.of(one) is not None for one in every):
        return ""
    return every[0].headline if every else "no variant"
