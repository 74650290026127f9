"""Watch the ranks of running jobs: progress, deaths, deadlines; end what must end; report once.

The supervisor is the ranks' parent.  It decides only how a *process* ended (all reported, one
raised, one died, none progresses); what the ranks measured passes through unread.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import selectors
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.cell.ranks import _limits
from harness.cell.ranks._processes import end_orphans, spent
from harness.cell.ranks._scratch import clear_shared_memory, keep_folder, remember_pids, reserve_space
from harness.cell.ranks._start import RankProcess, Starter
from harness.cell.ranks._wire import Message

__all__ = ["Supervisor", "ask_for_stacks", "end_rank", "reaped", "view"]

_LOG_TAIL = 64 * 1024


@dataclass
class _Job:
    message: Message
    folder: Path
    ranks: list[RankProcess]
    started: float
    #: seconds without a tick that make a HANG; the longer one holds until all have joined
    deadline: float
    start_deadline: float
    silent_since: float
    #: when the job is to be ended, once something told it must be
    end_at: float | None = None
    #: why it is being ended: "raised", "died", "hang", "cancelled"
    why: str = ""
    dumped: bool = False
    #: its owner was told that the ranks stand still
    idle: bool = False
    #: processor time that the ranks had used when last looked at, and when to look again
    spent: int = 0
    look_at: float = 0.0


class Supervisor:
    """Runs any number of jobs at once on one selector; the owner calls :meth:`poll` in a loop."""

    def __init__(
        self,
        start: Starter,
        start_deadline: float,
        scratch: Path,
        selector: selectors.BaseSelector,
        report: Callable[[Message], None],
    ) -> None:
        self._start = start
        self._start_deadline = start_deadline
        self._scratch = scratch
        self._selector = selector
        self._report = report
        self._jobs: dict[str, _Job] = {}

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    def start_with(self, start: Starter, start_deadline: float) -> None:
        """Start the ranks of coming jobs by other means."""
        self._start, self._start_deadline = start, start_deadline

    def run(self, message: Message) -> None:
        """Start the ranks of one job: ``id``, ``world``, ``deadline`` and what the ranks need."""
        folder = self._scratch / f"job-{message['id']}"
        now = time.monotonic()
        ranks: list[RankProcess] = []
        deadline = message.get("deadline") or _limits.PROGRESS
        job = _Job(message, folder, ranks, now, deadline, self._start_deadline, silent_since=now)
        try:
            folder.mkdir(parents=True)
            reserve_space(folder)
            for number in range(message["world"]):
                rank = self._start({**message, "folder": str(folder)}, number, folder)
                ranks.append(rank)
                # At once: what is registered is what the next rank must not inherit.
                self._selector.register(rank.channel, selectors.EVENT_READ, (job, rank))
            remember_pids(self._scratch, [rank.pid for rank in ranks], message["port"])
        except OSError as error:  # full disk, no processes left
            self._end(job)
            shutil.rmtree(folder, ignore_errors=True)
            reason = _not_started(self._scratch, error)
            self._report({"op": "done", "id": message["id"], "how": "not_started", "reason": reason, "ranks": []})
            return
        self._jobs[message["id"]] = job

    def cancel(self, job_id: str) -> None:
        """End a job whose answer nobody waits for."""
        if job := self._jobs.get(job_id):
            job.why, job.end_at = "cancelled", time.monotonic()

    def cancel_all(self) -> None:
        for job_id in list(self._jobs):
            self.cancel(job_id)
        self.poll()

    def readable(self, data: tuple[_Job, RankProcess]) -> None:
        """A rank's channel has something to read."""
        job, rank = data
        now = time.monotonic()
        for message in rank.channel.drain():
            job.silent_since = now
            if message["t"] == "tick":
                rank.moment = message["moment"]
                rank.joined |= message.get("joined", False)
            else:
                rank.outcome = {**message, "at": now - job.started}
                if message["kind"] != "done" and job.end_at is None:
                    job.why, job.end_at = "raised", now + _limits.PEER_GRACE
        if rank.channel.closed:
            self._selector.unregister(rank.channel)

    def poll(self) -> float | None:
        """Advance every job; seconds until something is due, None when nothing runs."""
        # Once for all: ending one job may take seconds, in which ticks of the others go unread.
        now = time.monotonic()
        for job in list(self._jobs.values()):
            for rank in job.ranks:
                if reaped(rank) and not rank.outcome:
                    self._last_words(job, rank)
            self._advance(job, now)
        due = [self._due(job) for job in self._jobs.values()]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _due(self, job: _Job) -> float:
        """When to look at the job again, though nothing was heard of it."""
        times = [self._deadline_of(job)]
        if job.end_at is not None:
            times.append(job.end_at)
        if not job.idle:
            times.append(job.look_at)
        return min(times)

    def _notice_idle(self, job: _Job, now: float) -> None:
        """Tell the owner of a job whose ranks all wait: silent, and not for want of a processor.

        Silence alone would not do: on a busy machine every job is silent for a while, and
        starting more of them would make it worse.
        """
        if job.idle or now < job.look_at:
            return
        ticks, wanting = spent(rank.pid for rank in job.ranks if rank.status is None)
        silent = now >= job.silent_since + _limits.IDLE
        if silent and not wanting and ticks <= job.spent + 1:
            job.idle = True
            self._report({"op": "idle", "id": job.message["id"], "ranks": []})
        job.spent, job.look_at = ticks, now + _limits.IDLE

    def _last_words(self, job: _Job, rank: RankProcess) -> None:
        """Read what a rank that just died had still sent."""
        while not rank.channel.closed and select.select([rank.channel], [], [], 0)[0]:
            self.readable((job, rank))

    def _deadline_of(self, job: _Job) -> float:
        joined = all(rank.joined or rank.outcome for rank in job.ranks)
        return job.silent_since + (job.deadline if joined else max(job.deadline, job.start_deadline))

    def _advance(self, job: _Job, now: float) -> None:
        if all(rank.outcome for rank in job.ranks):
            self._finish(job, job.why or "reported")
            return
        dead = [rank for rank in job.ranks if rank.status is not None and not rank.outcome]
        if dead and job.why in ("", "raised"):
            # Peers of a dead rank fail on the broken connection in their own time; their errors
            # would be echoes, so they are not waited for.
            job.why, job.end_at = "died", now
        self._notice_idle(job, now)
        if job.end_at is None and now >= self._deadline_of(job):
            job.why, job.end_at = "hang", now
        if job.end_at is None or now < job.end_at:
            return
        if job.dumped or job.why == "cancelled":
            self._finish(job, job.why)
        else:
            ask_for_stacks(job.ranks)
            job.dumped, job.end_at = True, now + _limits.STACK_DUMP

    def _finish(self, job: _Job, how: str) -> None:
        del self._jobs[job.message["id"]]
        self._end(job)
        clear_shared_memory(*(rank.pid for rank in job.ranks), port=job.message.get("port"))
        ranks = [view(rank) for rank in job.ranks]
        kept = str(keep_folder(job.folder)) if job.message.get("keep") else ""
        shutil.rmtree(job.folder, ignore_errors=True)
        seconds = time.monotonic() - job.started
        done = {"op": "done", "id": job.message["id"], "how": how, "seconds": seconds, "ranks": ranks, "kept": kept}
        self._report(done)

    def _end(self, job: _Job) -> None:
        """End the ranks, and all that they started."""
        # All at once, lest those still there complain into their logs that others are gone.
        for rank in job.ranks:
            _dismiss(rank)
        for rank in job.ranks:
            end_rank(rank)
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(rank.channel)
            rank.channel.close()
        end_orphans(keep=[rank.pid for other in self._jobs.values() for rank in other.ranks])


def _not_started(folder: Path, error: OSError) -> str:
    reason = f"the ranks could not be started in {folder}: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        reason += "; free some space there, or name another folder by TMPDIR"
    return reason


def end_rank(rank: RankProcess) -> None:
    """Release a rank that reported, kill one that did not; reap it.  What it started is left to
    :func:`end_orphans`."""
    _dismiss(rank)
    until = time.monotonic() + _limits.EXIT
    while not reaped(rank):
        if time.monotonic() > until:
            os.kill(rank.pid, signal.SIGKILL)
        time.sleep(0.001)


def _dismiss(rank: RankProcess) -> None:
    if rank.outcome:
        rank.channel.send({"op": "leave"})
    elif not reaped(rank):
        os.kill(rank.pid, signal.SIGKILL)


def ask_for_stacks(ranks: Iterable[RankProcess]) -> None:
    """Have those that have not reported write their Python stacks; marks them blocked."""
    for rank in ranks:
        if rank.status is None and not rank.outcome:
            rank.blocked = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank.pid, signal.SIGUSR1)


def reaped(rank: RankProcess) -> bool:
    """Whether the process has ended; its wait status is then kept."""
    if rank.status is None:
        pid, status = os.waitpid(rank.pid, os.WNOHANG)
        if pid:
            rank.status = status
    return rank.status is not None


def view(rank: RankProcess) -> Message:
    """One rank as the report shows it."""
    status = rank.status or 0
    return {
        "rank": rank.rank,
        "moment": rank.moment,
        "outcome": rank.outcome,
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) and not rank.outcome else None,
        "exit": os.WEXITSTATUS(status) if os.WIFEXITED(status) and not rank.outcome else None,
        "blocked": rank.blocked,
        "log": _tail(rank.log),
        "stack": _tail(rank.stack),
    }


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _LOG_TAIL))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
