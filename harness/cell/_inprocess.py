"""A world of one rank in this very process, for a debugger."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from harness.cell._case import MalformedCase
from harness.cell._launch import Outcome, Request, blank_record
from harness.cell._merge import fill
from harness.cell._scratch import new_scratch

__all__ = ["InProcessLauncher"]


class InProcessLauncher:
    """Runs at once, where ``--pdb`` can stop.  The group stays for the next case: DeepSpeed keeps
    groups in module globals and would trip over a second one."""

    def __init__(self, device: str = "cpu") -> None:
        self._device = device
        self._outcomes: dict[str, Outcome] = {}
        self._scratch: Path | None = None
        self._place = ""
        #: what the last case raised, for a debugger to enter
        self.error: BaseException | None = None

    def submit(self, request: Request) -> str:
        ticket = f"{request.case.name}-{request.options.id}"
        self._outcomes[ticket] = self._run(request)
        return ticket

    def result(self, ticket: str) -> Outcome:
        return self._outcomes.pop(ticket)

    def close(self) -> None:
        if self._scratch is not None:
            import torch.distributed

            torch.distributed.destroy_process_group()
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None

    def _run(self, request: Request) -> Outcome:
        from harness.cell._rank import failure_outcome, perform
        from harness.cell._run import Run

        job = {
            "world": 1,
            "device": self._device,
            "port": 20000 + os.getpid() % 40000,
            "module": request.case.module,
            "path": request.case.path,
            "case": request.case.name,
        }
        folder = self._join(job)
        run = Run(request.options, 0, 1, self._place, folder, request.seed, lambda moment: None)
        self.error = None
        try:
            outcome = perform(job, run)
        except MalformedCase as error:
            outcome = failure_outcome(error, run)
        except Exception as error:
            self.error = error
            outcome = failure_outcome(error, run)
        rank = {"rank": 0, "moment": run.moment, "outcome": {**outcome, "at": 0.0}, "signal": None, "exit": None}
        rank |= {"blocked": False, "log": "", "stack": ""}
        record = blank_record(request, "in process")
        record.world = 1
        return fill(record, {"how": "reported", "ranks": [rank]}, request)

    def _join(self, job: dict[str, object]) -> Path:
        from harness.cell._device import DEVICES
        from harness.cell._rank import join_group, set_environ

        if self._scratch is None:
            DEVICES[self._device].environ(os.environ)
            self._scratch = new_scratch()
            set_environ(0, 1, int(str(job["port"])), self._scratch)
            self._place = join_group(job, 0, self._scratch)
        return self._scratch
