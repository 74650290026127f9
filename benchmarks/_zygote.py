"""The design of the harness: ranks forked for every case from one process that has all imported."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from benchmarks._case import MEMORY_NOTE, VARIANT, WORLD, exclusion, weighed
from benchmarks._design import DesignError, Verdicts
from benchmarks._memory import Memory, resident_bytes, thread_count
from harness.cell.ranks._launch import LauncherFailed, Request, ZygoteLauncher

if TYPE_CHECKING:
    from harness.cell import Case, CaseRecord

__all__ = ["ZygoteDesign"]


class ZygoteDesign:
    name = "zygote"
    label = "zygote, ranks forked per case"

    def __init__(self) -> None:
        self._launcher = ZygoteLauncher("cpu")
        #: from nothing to ready, in an environment where a case has run before
        self.start_seconds = 0.0

    def start(self) -> None:
        # The first case ever in an environment teaches its zygote what to import, and a second one
        # is answered only when that is done; all zygotes after this one start as users know it.
        self.run()
        self.run()
        self._launcher.close()
        began = time.perf_counter()
        self._launcher.start()
        self.start_seconds = time.perf_counter() - began

    def run(self) -> Verdicts:
        return {one.name: str(one.verdict) for one in self._record(exclusion).parameters}

    def weigh(self) -> Memory:
        """What the zygote and the ranks of one case occupy; the ranks look at themselves."""
        record = self._record(weighed)
        ranks: dict[str, int] = {}
        for note in record.notes:
            if note.startswith(MEMORY_NOTE):
                ranks |= json.loads(note.removeprefix(MEMORY_NOTE))
        if len(ranks) != WORLD or self._launcher.pid is None:
            raise DesignError(self.name, f"{WORLD} ranks were to note their memory; their notes: {record.notes}")
        pid = self._launcher.pid
        return Memory(resident_bytes(pid), thread_count(pid), [ranks[rank] for rank in sorted(ranks)])

    def close(self) -> None:
        self._launcher.close()

    def _record(self, case: Case) -> CaseRecord:
        try:
            record = self._launcher.result(self._launcher.submit(Request(case, VARIANT, WORLD))).record
        except LauncherFailed as error:
            raise DesignError(self.name, str(error)) from error
        if record.launcher != self.name:
            raise DesignError(self.name, f"ranks were started by {record.launcher}: {self._launcher.warnings}")
        if not record.parameters:
            raise DesignError(self.name, f"{record.verdict}: {record.headline}")
        return record
