"""The launcher for ranks that something else started: torchrun, SLURM, the deepspeed launcher.

Every rank's process calls the same methods.  Rank 0 gathers what all ranks saw into the report
that a supervisor of forked ranks would give, and every rank gets the record made of it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path

from harness.cell.external._board import Board, BoardLost, Server
from harness.cell.external._keeper import Keeper, missing_view
from harness.cell.external._meeting import meet
from harness.cell.external._place import Place
from harness.cell.external._watch import State, Watch
from harness.cell.outcome._merge import fill
from harness.cell.outcome._record import CaseRecord
from harness.cell.ranks import _limits
from harness.cell.ranks._device import DEVICES
from harness.cell.ranks._launch import LauncherFailed, Outcome, Request, blank_record, missing_libraries, missing_text
from harness.cell.ranks._preload import Preload
from harness.cell.ranks._scratch import new_scratch
from harness.cell.ranks._wire import Message
from harness.cell.ranks._zygote import forking_is_unsafe

__all__ = ["ExternalLauncher"]


class ExternalLauncher:
    """:meth:`start` first; ``submit`` and ``result`` in the same order on every rank.

    :ivar speaks: whether it falls to this rank to show and keep the record: rank 0, or rank 1
        where rank 0 is gone.
    """

    def __init__(self, place: Place, device: str = "cpu") -> None:
        self.speaks = place.rank == 0
        #: why the rank is spawned instead of forked
        self.warnings: list[str] = []
        self._place = place
        self._serves = place.rank == 0 and not place.served
        self._device = device
        self._jobs = 0
        self._requests: dict[str, Request] = {}
        self._server: Server | None = None
        self._board: Board | None = None
        self._scratch: Path | None = None

    def start(self, fault: str = "") -> None:
        """Import the libraries and meet the other ranks.

        :param fault: why this rank cannot take part, to be known to all.
        :raises Refused: when any rank has a fault.
        :raises LauncherFailed: when ranks do not come.
        """
        DEVICES[self._device].environ(os.environ)
        self._missing = Preload(self._device).load(learned=False)
        if "torch" in self._missing:  # there is nothing to meet with, and nothing to measure
            return
        unsafe = forking_is_unsafe()
        if unsafe:
            self.warnings.append(f"ranks are spawned, not forked: {unsafe}")
        try:
            self._scratch = new_scratch()
            if self._serves and not unsafe:
                self._server = Server(self._place.port)
            self._board = Board(self._place, serve=self._serves and bool(unsafe))
            # The code under test may form groups of its own; a server for that is at the address.
            # Only now: with this set, torch does not mind that the port of its server is taken.
            os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
            os.environ.setdefault("TORCHELASTIC_RESTART_COUNT", "0")
            spare = [(self._server.pid, self._server.fileno())] if self._server else []
            self._keeper = Keeper(self._place.rank, self._scratch, spawn=bool(unsafe), spare=spare)
            self._keeper.listen()
            more: dict[str, str | bool] = {"fault": fault, "spawned": bool(unsafe)}
            self._meeting = meet(self._board, self._place, self._keeper, self._scratch, more)
        except BoardLost as error:
            raise LauncherFailed(f"cannot meet the other ranks: {error}") from None
        except OSError as error:
            raise LauncherFailed(f"cannot use the temporary folder: {error}; name another by TMPDIR") from None

    def submit(self, request: Request) -> str:
        self._jobs += 1
        self._requests[str(self._jobs)] = request
        return str(self._jobs)

    def result(self, ticket: str) -> Outcome:
        request = self._requests.pop(ticket)
        record = blank_record(request, self._place.launcher)
        if self._board is None:
            return fill(record, {"how": "not_started", "reason": missing_text(self._missing), "ranks": []}, request)
        job = _Job(int(ticket), request, record)
        try:
            self._begin(job)
            self._wait_for_end(self._board, job)
            return self._gather(self._board, job)
        except BoardLost as error:
            self._board = None
            mine = self._keeper.settle(stacks=True)
            if self._place.rank != 1 or self._place.served:
                raise LauncherFailed(f"lost the other ranks: {error}") from None
            self.speaks = True
            return fill(record, {"how": "died", "ranks": self._without_board(mine)}, request)
        finally:
            self._keeper.finish()

    def close(self) -> None:
        """Leave together: the one that serves the board last."""
        if self._board is not None:
            with contextlib.suppress(BoardLost):
                until = time.monotonic() + _limits.GATHER
                here = self._board.count("left", 1)
                while self._serves and here < self._place.world and time.monotonic() < until:
                    time.sleep(_limits.LOOK)
                    here = self._board.count("left")
        if self._server is not None:
            self._server.close()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _begin(self, job: _Job) -> None:
        """Start this rank's part of the job."""
        local_rank, local_world = self._meeting.local
        missing = {**self._missing, **missing_libraries(job.request)}
        refusal = missing_text(missing) or DEVICES[self._device].shortage(local_world)
        folder = self._meeting.folder / str(job.number)
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            refusal = refusal or f"{folder} cannot be made: {error.strerror}"
        case = job.request.case
        message = {
            "id": f"{self._place.attempt}/{job.number}",
            "world": self._place.world,
            "device": self._device,
            "module": case.module,
            "path": case.path,
            "case": case.name,
            "options": job.request.options.as_dict(),
            "seed": job.request.seed,
            "address": self._place.address,
            "port": self._place.port,
            "local": [local_rank, local_world],
            "folder": str(folder),
        }
        self._keeper.begin(message, job.number, refusal)

    def _wait_for_end(self, board: Board, job: _Job) -> None:
        """Until whoever speaks has said that the job is over, and how."""
        rank, state = self._place.rank, self._keeper.state
        deadline = job.request.deadline or job.request.case.deadline or _limits.PROGRESS
        start_deadline = _limits.SPAWN_START if self._meeting.spawned else _limits.PROGRESS
        watch = Watch(job.number, self._place.world, deadline, time.monotonic(), start_deadline)
        said = 0.0
        new = True
        while not board.count(f"{job.number}/end"):
            now = time.monotonic()
            if new or now - said >= _limits.BEAT:
                said = now
                state.beat += 1
                board.put(f"state/{rank}", vars(state))
            if rank <= 1:  # rank 1 would take over
                watch.see([State(**board.get(f"state/{one}")) for one in range(self._place.world)], now)
                self.speaks = rank == 0 or self.speaks or 0 in watch.gone(now)
                if self.speaks and (how := watch.over(now)):
                    board.publish(f"{job.number}/end", {"how": how, "reason": watch.reason})
            new = self._keeper.wait(_limits.LOOK)
        job.watch, job.gone = watch, watch.gone(time.monotonic()) if self.speaks else []

    def _gather(self, board: Board, job: _Job) -> Outcome:
        """Tell what came of the rank; the record, which the rank that speaks makes of it."""
        end = board.get(f"{job.number}/end")
        view = self._keeper.settle(stacks=end["how"] not in ("cancelled", "not_started"))
        board.publish(f"{job.number}/view/{self._place.rank}", view)
        if self.speaks:
            outcome = fill(job.record, self._report(board, job, end), job.request)
            outcome.record.notes += self._meeting.odd_versions()
            board.publish(f"{job.number}/record", {"record": outcome.record.as_dict(), "malformed": outcome.malformed})
            return outcome
        until = time.monotonic() + 2 * _limits.GATHER
        while (told := board.published(f"{job.number}/record")) is None:
            if time.monotonic() > until:
                raise LauncherFailed("was not told the verdict: rank 0 is gone")
            time.sleep(_limits.LOOK)
        return Outcome(CaseRecord.from_dict(told["record"]), [], told["malformed"])

    def _report(self, board: Board, job: _Job, end: Message) -> Message:
        """What a supervisor of all these ranks would report."""
        assert job.watch is not None
        views: dict[int, Message] = {}
        until = time.monotonic() + _limits.GATHER
        awaited = set(range(self._place.world)) - set(job.gone)
        while awaited and time.monotonic() < until:
            for rank in sorted(awaited):
                if (view := board.published(f"{job.number}/view/{rank}")) is not None:
                    views[rank] = view
            awaited -= set(views)
            time.sleep(_limits.LOOK if awaited else 0)
        now = time.monotonic()
        for rank in range(self._place.world):
            view = views.setdefault(rank, missing_view(rank, job.watch.states[rank].moment))
            if view["outcome"]:
                view["outcome"]["at"] = job.watch.reported.get(rank, now) - job.watch.now
        ranks = [views[rank] for rank in range(self._place.world)]
        # Some may have reported after the end was called.
        how = "reported" if all(view["outcome"] for view in ranks) else end["how"]
        return {"how": how, "reason": end["reason"], "seconds": now - job.watch.now, "ranks": ranks}

    def _without_board(self, mine: Message) -> list[Message]:
        """The ranks as rank 1 sees them: the board went with rank 0, which served it."""
        views = [missing_view(rank, "start") for rank in range(self._place.world)]
        for rank in range(1, self._place.world):
            views[rank]["blocked"] = True  # nothing is known of it; it did not end this
        views[1] |= {"moment": mine["moment"], "log": mine["log"], "stack": mine["stack"]}
        return views


class _Job:
    """One request under way."""

    def __init__(self, number: int, request: Request, record: CaseRecord) -> None:
        self.number = number
        self.request = request
        self.record = record
        self.watch: Watch | None = None
        #: ranks that were not heard of when the job ended
        self.gone: list[int] = []
