"""Measure one stack: make its environment through tox, run the suite, keep what was seen, remove the environment."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
import re
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness import __version__
from harness.cell._catalog import shipped
from harness.cell.outcome._observed import Observed, ObservedError, read_observed
from harness.cell.outcome._record import CaseRecord
from harness.cell.outcome._results import read_results
from harness.control._fresh import fresh_outcomes
from harness.control.locks import LockState, find_uv, state_of
from harness.control.stacks import Matrix, Stack
from harness.control.sweep._alone import NotMeasured, alone
from harness.control.sweep._condense import condense, in_order
from harness.control.sweep._guard import guarded

__all__ = ["Measured", "Measurer", "NotMeasured"]

#: Seconds after which a stack is given up: the slowest took a tenth of it.
_PATIENCE: Final = 1800
_TAIL: Final = 15


@dataclass(frozen=True)
class Measured:
    """What measuring a stack gave and took."""

    observed: Observed
    #: the cases that were run this time
    cases: Sequence[str]
    seconds: float

    @property
    def summary(self) -> str:
        if self.observed.unsolvable:
            return f"UNSOLVABLE: {self.observed.unsolvable}"
        counts: Counter[str] = Counter()
        for outcome in self.observed.outcomes:
            if outcome.case not in self.cases:
                continue
            counts[str(outcome.verdict)] += len(outcome.variants)
        return ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())


class Measurer:
    """Shared by all stacks of one sweep."""

    def __init__(self, matrix: Matrix, into: Path, *, keep: bool = False, root: Path | None = None) -> None:
        """:param root: the checkout, where the matrix is not that of one."""
        self._matrix = matrix
        self._root = root or matrix.folder.resolve().parent
        self._into = into
        self._keep = keep
        self._wheel: Path | None = None
        self._work = self._root / ".tox" / "sweep"
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False
        #: packages of torch's build that were installed, to be dropped from uv's cache
        self._heavy: set[str] = set()

    def prepare(self) -> None:
        """Build thawcheck once for all.  Raises NotMeasured."""
        self._work.mkdir(parents=True, exist_ok=True)
        for left in self._work.glob("wheel-*"):  # by a sweep that was killed
            if not Path(f"/proc/{left.name.partition('-')[2]}").exists():
                shutil.rmtree(left, ignore_errors=True)
        out = self._work / f"wheel-{os.getpid()}"
        shutil.rmtree(out, ignore_errors=True)
        done = subprocess.run(
            [find_uv(), "build", "--wheel", "--out-dir", str(out), str(self._root)],
            capture_output=True,
            text=True,
            check=False,
        )
        wheels = list(out.glob("*.whl"))
        if done.returncode or not wheels:
            said = "\n  ".join(done.stderr.splitlines()[-_TAIL:])
            raise NotMeasured(f"thawcheck's own wheel cannot be built; the end of what uv said:\n  {said}")
        self._wheel = wheels[0]

    def close(self) -> None:
        if self._wheel is not None:
            shutil.rmtree(self._wheel.parent, ignore_errors=True)

    def stop(self) -> None:
        """End what is under way; from any thread."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                _end(process)

    def measure(self, stack: Stack, cases: Sequence[str]) -> Measured:
        """Run some of the shipped cases, and keep what is known of the others.  Raises NotMeasured."""
        started = time.monotonic()
        lock, state = state_of(stack, self._matrix.lock(stack.name))
        if lock is None or state is not LockState.FRESH:
            raise NotMeasured(f"{self._matrix.lock(stack.name)}: {state.value}; thawcheck lock {stack.name}")
        try:
            if lock.unsolvable:
                today = dt.datetime.now(dt.timezone.utc).date().isoformat()
                observed = Observed(stack.name, __version__, today, "cpu", lock.answer, {}, (), lock.unsolvable)
                self._write(observed)
            else:
                with alone(self._work / f"{stack.name}.lock", stack.name) as mine:
                    observed = self._run(stack, lock.answer, mine, cases)
        except OSError as error:
            raise NotMeasured(f"{stack.name}: {error.filename or 'the disk'}: {error.strerror}") from None
        return Measured(observed, cases, time.monotonic() - started)

    def runs(self, stack: Stack, cases: Sequence[str], times: int, *, first: str = "") -> list[list[CaseRecord]]:
        """Run some cases so often in one fresh environment, and keep nothing; what each time gave.

        :param first: a command to run in the environment before.
        :raises NotMeasured: also for a stack without a solution.
        """
        lock, state = state_of(stack, self._matrix.lock(stack.name))
        if lock is None or state is not LockState.FRESH or lock.unsolvable:
            raise NotMeasured(f"{stack.name}: {lock.unsolvable if lock and lock.unsolvable else state.value}")
        folder = self._work / stack.name
        files = [folder / f"results-{number}.jsonl" for number in range(times)]
        try:
            with alone(self._work / f"{stack.name}.lock", stack.name) as mine:
                try:
                    return self._suites(stack, cases, files, mine, first)
                finally:
                    if not self._keep:
                        shutil.rmtree(folder, ignore_errors=True)
        except OSError as error:
            raise NotMeasured(f"{stack.name}: {error.filename or 'the disk'}: {error.strerror}") from None

    def drop_caches(self) -> None:
        """Have uv forget the large packages that environments since the last call were made of."""
        with self._lock:
            heavy, self._heavy = self._heavy, set()
        if heavy and not self._keep:
            subprocess.run([find_uv(), "cache", "clean", "--quiet", *sorted(heavy)], capture_output=True, check=False)

    def _run(self, stack: Stack, lock: str, mine: int, cases: Sequence[str]) -> Observed:
        folder = self._work / stack.name
        results = folder / "results.jsonl"
        try:
            (records,) = self._suites(stack, cases, [results], mine)
            observed = self._with_known(_condensed(stack, records, lock))
            self._write(observed, results, self._log(stack).with_suffix(".jsonl"))
        finally:
            if not self._keep:
                shutil.rmtree(folder, ignore_errors=True)
        return observed

    def _log(self, stack: Stack) -> Path:
        return self._root / "results" / "sweep" / f"{stack.name}.log"

    def _suites(
        self, stack: Stack, cases: Sequence[str], results: Sequence[Path], mine: int, first: str = ""
    ) -> list[list[CaseRecord]]:
        """The suite once for each results file, in one fresh environment.  Raises NotMeasured."""
        folder, log = self._work / stack.name, self._log(stack)
        log.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)  # left by one that was killed
        # The suite alone, whose verdicts are kept; and not where people keep their own results.
        some = "".join(f" --case {name}" for name in cases) if len(cases) < len(shipped()) else ""
        # Verdicts that are not expected end no suite but the last: those that follow are wanted, too.
        suites = [f"thawcheck suite --stack {stack.name} --results {one}{some} -- --tb=no -q" for one in results]
        commands = "\n".join([*([first] if first else []), *(f"- {one}" for one in suites[:-1]), suites[-1]])
        command = ["sh", str(self._root / "toxw"), "run", "-e", stack.name, "--workdir", str(folder)]
        command += ["--installpkg", str(self._wheel), "--colored", "no", "-x", f"testenv.commands={commands}"]
        if first:
            command += ["-x", f"testenv.allowlist_externals={first.split(maxsplit=1)[0]}"]
        with log.open("wb") as file:
            status = self._watch(stack, command, file.fileno(), mine)
        self._note_heavy(folder)
        if self._stopped:
            raise NotMeasured(f"{stack.name}: stopped")
        found = []
        for path in results:
            if not path.exists():
                raise NotMeasured(f"{stack.name}: no results, tox left with {status}; {_end_of(log)}")
            found.append(_records(stack, path))
            self._check_whole(stack, cases, found[-1], status, log)
        return found

    def _write(self, observed: Observed, results: Path | None = None, refuge: Path | None = None) -> None:
        """Where that cannot be, the results stay in a refuge, on the disk where they are."""
        path = self._into / f"{observed.stack}.jsonl"
        try:
            observed.write(path)
        except OSError as error:
            kept = ""
            if results is not None and refuge is not None:
                results.replace(refuge)
                kept = f"; its results are in {refuge}"
            raise NotMeasured(f"{observed.stack}: cannot be written to {path}: {error.strerror}{kept}") from None

    def _with_known(self, fresh: Observed) -> Observed:
        """With what was measured before of other shipped cases, by the same lock."""
        try:
            known = read_observed(self._into / f"{fresh.stack}.jsonl")
        except ObservedError:  # not there, most often
            return fresh
        if (known.lock, known.versions, known.device) != (fresh.lock, fresh.versions, fresh.device):
            return fresh
        measured = {one.case for one in fresh.outcomes}
        wanted = {(case.name, options) for case in shipped() for options in case.variants}
        kept = [
            dataclasses.replace(one, variants=variants)
            for one in fresh_outcomes(known)
            if one.case not in measured
            and (variants := tuple(each for each in one.variants if (one.case, each) in wanted))
        ]
        return dataclasses.replace(fresh, outcomes=in_order([*fresh.outcomes, *kept]))

    def _check_whole(
        self, stack: Stack, cases: Sequence[str], records: list[CaseRecord], status: int, log: Path
    ) -> None:
        """Raises NotMeasured where a variant is missing: a hole would look like a verdict that went away."""
        wanted = {f"{case.name}[{options.id}]" for case in shipped() if case.name in cases for options in case.variants}
        missing = sorted(wanted - {record.id for record in records})
        if missing:
            few = ", ".join(missing[:3])
            raise NotMeasured(
                f"{stack.name}: {len(missing)} of {len(wanted)} variants have no result ({few} ...), "
                f"tox left with {status}; {_end_of(log)}"
            )

    def _watch(self, stack: Stack, command: list[str], output: int, mine: int) -> int:
        with self._lock:
            if self._stopped:
                raise NotMeasured(f"{stack.name}: stopped")
            process = subprocess.Popen(
                guarded(command),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                cwd=self._root,
                env={
                    **os.environ,
                    "TOX_SKIP_MISSING_INTERPRETERS": "false",
                    "THAWCHECK_MATRIX": str(self._matrix.folder.resolve()),
                },
                start_new_session=True,
                pass_fds=(mine,),
            )
            self._running.add(process)
        try:
            return process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            raise NotMeasured(f"{stack.name}: not done after {_PATIENCE} s") from None
        finally:
            _end(process)
            process.wait()
            with self._lock:
                self._running.discard(process)

    def _note_heavy(self, folder: Path) -> None:
        names = {path.name.partition("-")[0] for path in folder.glob("*/lib/python*/site-packages/*.dist-info")}
        heavy = {name.replace("_", "-") for name in names if re.match(r"torch$|triton$|nvidia_|cuda_", name)}
        # A build for CPU is small, and all its stacks share it.
        if "triton" in heavy:
            with self._lock:
                self._heavy |= heavy


def _end(process: subprocess.Popen[bytes]) -> None:
    """Have a guard end what it guards."""
    assert process.stdin is not None  # it was started with a pipe
    process.stdin.close()


def _records(stack: Stack, results: Path) -> list[CaseRecord]:
    """The last of each variant.  Raises NotMeasured."""
    try:
        found = [CaseRecord.from_dict(one) for one in read_results(results)]
    except (ValueError, KeyError, TypeError) as error:
        raise NotMeasured(f"{stack.name}: its results cannot be read: {type(error).__name__}: {error}") from None
    return list({one.id: one for one in found}.values())


def _condensed(stack: Stack, records: list[CaseRecord], lock: str) -> Observed:
    try:
        return condense(records, stack=stack.name, lock=lock)
    except ValueError as error:
        raise NotMeasured(str(error)) from None


def _end_of(log: Path) -> str:
    text = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL:]
    return "\n  ".join([f"the end of {log}:", *text])
