"""A world of one rank in this very process, for a debugger."""

from __future__ import annotations

import bdb
import contextlib
import itertools
import os
import random
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cell._case import MalformedCase
from harness.cell.outcome._merge import fill
from harness.cell.ranks._device import DEVICES
from harness.cell.ranks._launch import Outcome, Request, blank_record, missing_libraries, missing_text
from harness.cell.ranks._preload import Preload
from harness.cell.ranks._scratch import keep_folder, new_scratch
from harness.cell.ranks._wire import Message

__all__ = ["InProcessLauncher"]


class InProcessLauncher:
    """Runs at once, where ``--pdb`` can stop.  The group stays for the next case: DeepSpeed keeps
    groups in module globals and would trip over a second one."""

    def __init__(self, device: str = "cpu") -> None:
        self._device = device
        self._numbers = itertools.count(1)
        self._outcomes: dict[str, Outcome] = {}
        self._environ: dict[str, str] = {}
        self._missing: dict[str, str] | None = None
        self._scratch: Path | None = None
        self._place = ""
        #: what the last case raised, for a debugger to enter
        self.error: BaseException | None = None

    def submit(self, request: Request) -> str:
        ticket = str(next(self._numbers))
        self.error = None
        with self._surroundings():
            self._outcomes[ticket] = self._run(request, ticket)
        return ticket

    def result(self, ticket: str) -> Outcome:
        return self._outcomes.pop(ticket)

    def close(self) -> None:
        if self._scratch is not None:
            import torch.distributed

            torch.distributed.destroy_process_group()
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None

    @contextlib.contextmanager
    def _surroundings(self) -> Iterator[None]:
        """What a rank finds in its environment; the rest of the session has its own back."""
        before = dict(os.environ)
        DEVICES[self._device].environ(os.environ)
        os.environ.update(self._environ)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("default")  # libraries warn when imported, which is no error of the case
                yield
        finally:
            os.environ.clear()
            os.environ.update(before)

    def _run(self, request: Request, ticket: str) -> Outcome:
        record = blank_record(request, "in process")
        if self._missing is None:
            self._missing = Preload(self._device).load(learned=False)
        missing = {**self._missing, **missing_libraries(request)}
        if refusal := missing_text(missing) or DEVICES[self._device].shortage(1):
            return fill(record, {"how": "not_started", "reason": refusal, "ranks": []}, request)
        folder = self._join() / ticket
        folder.mkdir()
        rank = {"rank": 0, "signal": None, "exit": None, "blocked": False, "log": "", "stack": ""}
        rank |= self._perform(request, folder)
        kept = str(keep_folder(folder)) if request.keep else ""
        shutil.rmtree(folder, ignore_errors=True)
        return fill(record, {"how": "reported", "ranks": [rank], "kept": kept}, request)

    def _perform(self, request: Request, folder: Path) -> Message:
        """Moment and outcome of the only rank."""
        from harness.cell._run import Run
        from harness.cell.ranks._rank import failure_outcome, perform

        case = request.case
        random.seed(request.seed)
        run = None
        try:
            run = Run(request.options, 0, 1, self._place, folder, request.seed, _ignore)
            outcome = perform({"module": case.module, "path": case.path, "case": case.name}, run)
        except (KeyboardInterrupt, bdb.BdbQuit, pytest.exit.Exception):
            raise  # who debugs has had enough
        except BaseException as error:  # noqa: BLE001  # as on a rank of its own
            outcome = failure_outcome(error, run)
            if not isinstance(error, MalformedCase):
                self.error = error
        return {"moment": run.moment if run else "start", "outcome": {**outcome, "at": 0.0}}

    def _join(self) -> Path:
        from harness.cell.ranks._rank import join_group, set_environ

        if self._scratch is None:
            scratch = new_scratch()
            before = dict(os.environ)
            set_environ(0, 1, 20000 + os.getpid() % 40000, scratch)
            self._environ = {key: value for key, value in os.environ.items() if before.get(key) != value}
            self._place = join_group({"world": 1, "device": self._device}, 0, scratch)
            self._scratch = scratch
        return self._scratch


def _ignore(_: str) -> None:
    """Nobody waits for progress: a debugger may stop for hours."""
