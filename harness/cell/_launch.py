"""Launchers: run one variant of a case on N ranks and give the record, however ranks come about."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import IO, Protocol

from harness import __version__
from harness.cell import _limits
from harness.cell._case import Case
from harness.cell._device import environment
from harness.cell._merge import fill
from harness.cell._options import Options
from harness.cell._ranks import import_path
from harness.cell._record import CaseRecord
from harness.cell._stack import installed_versions
from harness.cell._verdict import Verdict
from harness.cell._wire import Channel, Message

__all__ = ["Launcher", "LauncherFailed", "Outcome", "Request", "ZygoteLauncher", "blank_record"]


class LauncherFailed(Exception):
    """The harness itself, not the code under test, could not run ranks."""


@dataclass(frozen=True)
class Request:
    """One variant to run."""

    case: Case
    options: Options
    world: int
    device: str = "cpu"
    deadline: float | None = None
    seed: int = 1234
    #: leave the ranks' folder for inspection
    keep: bool = False


@dataclass
class Outcome:
    """The record, and what only a reader at the terminal wants."""

    record: CaseRecord
    #: one text per rank: what it printed
    logs: list[str]
    #: why the case itself is malformed; then the record says NOT_RUN
    malformed: str = ""


class Launcher(Protocol):
    """What gives ranks.  ``submit`` may return before they have run, ``result`` waits."""

    def submit(self, request: Request) -> str: ...

    def result(self, ticket: str) -> Outcome: ...

    def close(self) -> None: ...


def blank_record(request: Request, launcher: str) -> CaseRecord:
    """The record of a case about to run; says NOT_RUN until it is filled in."""
    return CaseRecord(
        case=request.case.name,
        kind=request.case.kind,
        options=request.options.as_dict(),
        id=f"{request.case.name}[{request.options.id}]",
        verdict=Verdict.NOT_RUN,
        headline="",
        world=request.world,
        device=request.device,
        launcher=launcher,
        versions=installed_versions(),
        harness=__version__,
        started=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    )


class ZygoteLauncher:
    """Owns one zygote process, started at first use; any number of jobs may be under way."""

    def __init__(self, device: str = "cpu", *, spawn: bool = False) -> None:
        """:param spawn: never fork, as where forking is unsafe."""
        self._device = device
        self._spawn = spawn
        self._numbers = itertools.count(1)
        self._requests: dict[str, tuple[Request, CaseRecord]] = {}
        self._done: dict[str, Message] = {}
        self._idle: set[str] = set()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._log: IO[bytes] | None = None
        self.ready: Message = {}
        #: told to people once: why ranks are spawned instead of forked
        self.warnings: list[str] = []

    def start(self) -> Message:
        """Start the zygote unless it runs; its ``ready`` message.  Raises LauncherFailed."""
        if self._channel is not None and not self._channel.closed:
            return self.ready
        self.close()
        ours, theirs = socket.socketpair()
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "harness.cell._zygote", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=environment(self._device) | import_path(),
        )
        theirs.close()
        self._channel = Channel(ours)
        config = {"sys_path": sys.path, "device": self._device}
        if self._spawn:
            config["force_spawn"] = "spawning was asked for"
        self._channel.send(config)
        try:
            ready = self._channel.receive(_limits.ZYGOTE_START)
        except TimeoutError:
            ready = None
        if ready is None:
            said = self._last_words()
            self.close()
            raise LauncherFailed(f"the process that imports the libraries did not start: {said}")
        self.ready = ready
        if ready["mode"] == "spawn":
            self.warnings.append(f"ranks are spawned, not forked: {ready['why']}")
        return ready

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def submit(self, request: Request) -> str:
        ready = self.start()
        ticket = f"{os.getpid()}-{next(self._numbers)}"
        record = blank_record(request, ready["mode"])
        self._requests[ticket] = request, record
        missing = {**ready["missing"], **_missing(request)}
        if missing:
            self._done[ticket] = {"how": "not_started", "reason": _missing_text(missing), "ranks": []}
            return ticket
        assert self._channel is not None
        self._channel.send(
            {
                "op": "run",
                "id": ticket,
                "world": request.world,
                "device": request.device,
                "deadline": request.deadline or request.case.deadline,
                "module": request.case.module,
                "path": request.case.path,
                "case": request.case.name,
                "options": request.options.as_dict(),
                "seed": request.seed,
                # Nothing listens on it unless a library under test insists; distinct for every
                # job of every worker, since DeepSpeed names its shared memory after it.
                "port": 20000 + (os.getpid() * 97 + int(ticket.rpartition("-")[2])) % 40000,
                "keep": request.keep,
            }
        )
        return ticket

    def result(self, ticket: str) -> Outcome:
        """Wait for a job.  An interrupt or time-out while waiting ends its ranks."""
        try:
            while not self.done(ticket):
                self.pump()
        except BaseException:
            self.cancel(ticket)
            raise
        request, record = self._requests.pop(ticket)
        return fill(record, self._done.pop(ticket), request)

    def done(self, ticket: str) -> bool:
        """Whether :meth:`result` would return at once."""
        return ticket in self._done

    @property
    def running(self) -> int:
        """Jobs under way, without those whose ranks all stand still."""
        return len(set(self._requests) - set(self._done) - self._idle)

    def pump(self) -> None:
        """Wait for one message of the zygote and take it in.  Raises LauncherFailed."""
        self._take(self._channel.receive() if self._channel else None)

    def cancel(self, ticket: str) -> None:
        self._requests.pop(ticket, None)
        if self._channel is not None:
            self._channel.send({"op": "cancel", "id": ticket})

    def close(self) -> None:
        """Stop the zygote and with it every rank; waits until all are gone."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            try:
                self._process.wait(_limits.EXIT * 2)
            except subprocess.TimeoutExpired:
                self._process.send_signal(signal.SIGKILL)
                self._process.wait()
            self._process = None
        if self._log is not None:
            self._log.close()
            self._log = None
        self._requests.clear()
        self._done.clear()
        self._idle.clear()

    def _take(self, message: Message | None) -> None:
        if message is None:
            said = self._last_words()
            self.close()
            raise LauncherFailed(f"the process that forks the ranks died: {said}")
        if message["op"] == "done":
            self._idle.discard(message["id"])
            if message["id"] in self._requests:  # else it was cancelled
                self._done[message["id"]] = message
        elif message["op"] == "idle":
            self._idle.add(message["id"])
        elif message["op"] == "spawning":
            self.warnings.append(f"ranks are spawned from here on, not forked: {message['why']}")

    def _last_words(self) -> str:
        status = ""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(1.0)
                status = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        if self._log is None:
            return status
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return "; ".join(filter(None, [status, *lines[-3:]])) or "it said nothing"


def _missing(request: Request) -> dict[str, str]:
    """What this variant needs beyond the common libraries and is not installed."""
    from importlib.util import find_spec

    from harness.cell.models import MODELS

    model = MODELS.get(request.options.model)
    names = {*request.case.needs, *(model.needs if model else ())}
    return {name: "not installed" for name in sorted(names) if find_spec(name) is None}


def _missing_text(missing: dict[str, str]) -> str:
    return "; ".join(f"{name} cannot be imported: {why}" for name, why in missing.items())
