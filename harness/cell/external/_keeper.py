"""The keeper: the process that a launcher started, which forks the rank proper and watches it.

Two processes for one rank, so that a rank can die by any signal, or block with the interpreter
locked, and still be told of; and so that a rank here is the very process it is under a zygote.
"""

from __future__ import annotations

import contextlib
import functools
import select
import selectors
import shutil
import signal
import socket
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.cell.external._watch import State
from harness.cell.ranks import _limits
from harness.cell.ranks._processes import adopt_orphans, end_orphans
from harness.cell.ranks._scratch import clear_shared_memory, remember_pids
from harness.cell.ranks._start import RankProcess, Starter, fork_rank, spawn_rank
from harness.cell.ranks._supervisor import ask_for_stacks, end_rank, reaped, view
from harness.cell.ranks._wire import Message

__all__ = ["Keeper"]


class Keeper:
    """Keeps one rank at a time.

    :param scratch: a folder of this process alone.
    :param spawn: the rank must not be forked from this process.
    :param spare: child processes and descriptors of this process that ranks must not touch.
    """

    def __init__(self, rank: int, scratch: Path, *, spawn: bool, spare: Iterable[tuple[int, int]] = ()) -> None:
        self._number = rank
        self._scratch = scratch
        self._spare = dict(spare)
        self._start: Starter = spawn_rank if spawn else functools.partial(fork_rank, forget=self._descriptors)
        self._selector = selectors.DefaultSelector()
        self._rank: RankProcess | None = None
        self._stopped = False
        self.state = State()

    def listen(self) -> None:
        """From here on a launcher's signal to end is noted, and obeyed by whoever reads the state."""
        adopt_orphans()
        self._wake, self._woken = socket.socketpair()
        self._wake.settimeout(0.0)
        self._woken.settimeout(0.0)
        signal.set_wakeup_fd(self._woken.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only to be woken when the rank dies
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        self._selector.register(self._wake, selectors.EVENT_READ)

    def begin(self, job: Message, number: int, refusal: str = "") -> None:
        """Start the rank of the job ``number``, unless there is a ``refusal``."""
        self._rank, self._port = None, job["port"]
        self.state = State(job=number, beat=self.state.beat, stopped=self._stopped, cannot=refusal)
        if refusal:
            return
        folder = self._scratch / f"job-{number}"
        try:
            folder.mkdir()
            self._rank = self._start(job, self._number, folder)
            remember_pids(self._scratch, [self._rank.pid])
        except OSError as error:  # full disk, no processes left
            self.state.cannot = str(error)
            return
        self._selector.register(self._rank.channel, selectors.EVENT_READ)

    def wait(self, timeout: float) -> bool:
        """Wait for the rank or a signal; whether the state says something new."""
        before = vars(self.state).copy()
        for key, _ in self._selector.select(timeout):
            if key.fileobj is self._wake:
                self._wake.recv(4096)
            else:
                self._drain()
        rank = self._rank
        if rank is not None and reaped(rank):
            # What it had still sent; a process it left behind may hold its channel open.
            while not rank.channel.closed and select.select([rank.channel], [], [], 0)[0]:
                self._drain()
            self.state.dead = not rank.outcome and not self._was_stopped(rank)
        self.state.stopped = self._stopped
        return vars(self.state) != before

    def settle(self, *, stacks: bool) -> Message:
        """What is known of the rank.  If it has not reported it tells its stack and is killed.

        One that reported stays: its leaving would look like a failure to peers that other
        keepers are just asking for their stacks.
        """
        rank = self._rank
        if rank is None:
            return missing_view(self._number, self.state.moment)
        if not rank.outcome:
            if stacks and not reaped(rank):
                ask_for_stacks([rank])
                time.sleep(_limits.STACK_DUMP)
            end_rank(rank)
        return view(rank)

    def finish(self) -> None:
        """Let the rank go, and end all that it started."""
        rank, self._rank = self._rank, None
        if rank is None:
            return
        end_rank(rank)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(rank.channel)
        rank.channel.close()
        end_orphans(keep=list(self._spare))
        clear_shared_memory(rank.pid, port=self._port)
        shutil.rmtree(rank.log.parent, ignore_errors=True)

    def _drain(self) -> None:
        rank = self._rank
        assert rank is not None, "only the channel of a rank is registered"
        for message in rank.channel.drain():
            self.state.ticks += 1
            if message["t"] == "tick":
                rank.moment = self.state.moment = message["moment"]
                self.state.joined |= message.get("joined", False)
            else:
                message.pop("modules", None)  # for a zygote, which could import them beforehand
                rank.outcome = message
                self.state.kind = message["kind"]
        if rank.channel.closed:
            self._selector.unregister(rank.channel)

    def _was_stopped(self, rank: RankProcess) -> bool:
        """Some launchers send their signal to all processes; that is no death of its own."""
        return self._stopped and view(rank)["signal"] in (signal.SIGINT, signal.SIGTERM)

    def _stop(self, *_: Any) -> None:
        self._stopped = True

    def _descriptors(self) -> Iterable[int]:
        yield from self._spare.values()
        yield self._woken.fileno()
        yield from [key.fd for key in self._selector.get_map().values()]


def missing_view(rank: int, moment: str) -> Message:
    """The view of a rank that nobody can tell anything of."""
    return {
        "rank": rank,
        "moment": moment,
        "outcome": None,
        "signal": None,
        "exit": None,
        "blocked": False,
        "log": "",
        "stack": "",
    }
