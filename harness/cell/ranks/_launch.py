"""Launchers: run one variant of a case on N ranks and give the record, however ranks come about."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import IO, Protocol

from harness import __version__
from harness.cell._case import Case
from harness.cell._options import Options
from harness.cell.outcome._merge import fill
from harness.cell.outcome._record import CaseRecord
from harness.cell.outcome._verdict import Verdict
from harness.cell.ranks import _limits
from harness.cell.ranks._device import DEVICES, environment
from harness.cell.ranks._programs import import_path, program
from harness.cell.ranks._scratch import MARK, sweep
from harness.cell.ranks._stack import installed_versions
from harness.cell.ranks._wire import Channel, Message

__all__ = [
    "Launcher",
    "LauncherFailed",
    "Outcome",
    "Request",
    "ZygoteLauncher",
    "blank_record",
    "missing_libraries",
    "missing_text",
    "run_on",
]


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


def run_on(launcher: Launcher, request: Request) -> Outcome:
    """One request, from start to end, on ranks of whatever kind."""
    return launcher.result(launcher.submit(request))


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
        code=request.case.code,
        started=dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
    )


#: Of all launchers of this process, so that a ticket names one job.
_NUMBERS = itertools.count(1)


class ZygoteLauncher:
    """Owns one zygote process, started at first use; any number of jobs may be under way."""

    def __init__(self, device: str = "cpu", *, spawn: bool = False) -> None:
        """:param spawn: never fork, as where forking is unsafe."""
        self._device = device
        self._spawn = spawn
        self._requests: dict[str, tuple[Request, CaseRecord]] = {}
        self._done: dict[str, Message] = {}
        self._idle: set[str] = set()
        self._ports: dict[str, socket.socket] = {}
        #: what became of the last zygote that died
        self._fate = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._log: IO[bytes] | None = None
        self.ready: Message = {}
        #: told to people once: why ranks are spawned instead of forked
        self.warnings: list[str] = []

    def start(self) -> Message:
        """Start the zygote unless it runs; its ``ready`` message.  Raises LauncherFailed."""
        if self._process is not None:
            if self._process.poll() is None:
                return self.ready
            with contextlib.suppress(LauncherFailed):
                while True:
                    self.pump()  # what it had answered before it died
        try:
            self.ready = self._start()
        except BaseException:
            self._end_process()
            raise
        if self.ready["mode"] == "spawn":
            self.warnings.append(f"ranks are spawned, not forked: {self.ready['why']}")
        return self.ready

    def _start(self) -> Message:
        ours, theirs = socket.socketpair()
        self._channel = Channel(ours)
        with theirs:
            try:
                self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
                self._process = subprocess.Popen(
                    program("harness.cell.ranks._zygote", str(theirs.fileno())),
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=self._log,
                    stderr=self._log,
                    env=environment(self._device) | import_path() | {MARK: secrets.token_hex(8)},
                )
            except OSError as error:
                raise LauncherFailed(f"the process that imports the libraries cannot be started: {error}") from error
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
            raise LauncherFailed(f"the process that imports the libraries did not start: {said}")
        return ready

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def submit(self, request: Request) -> str:
        ready = self.start()
        ticket = f"{os.getpid()}-{next(_NUMBERS)}"
        record = blank_record(request, ready["mode"])
        self._requests[ticket] = request, record
        missing = {**ready["missing"], **missing_libraries(request)}
        shortage = DEVICES[request.device].shortage(request.world, ready["gpus"])
        if refusal := missing_text(missing) or shortage:
            self._done[ticket] = {"how": "not_started", "reason": refusal, "ranks": []}
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
                "port": self._reserve_port(ticket),
                "keep": request.keep,
            }
        )
        return ticket

    def result(self, ticket: str) -> Outcome:
        """Wait for a job.  An interrupt or time-out while waiting ends its ranks."""
        if ticket not in self._requests:
            raise LauncherFailed(self._fate or f"job {ticket} is not under way: it was cancelled or answered")
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

    @property
    def in_flight(self) -> int:
        """All jobs under way."""
        return len(set(self._requests) - set(self._done))

    def pump(self) -> None:
        """Wait for one message of the zygote and take it in.  Raises LauncherFailed."""
        self._take(self._channel.receive() if self._channel else None)

    def cancel(self, ticket: str) -> None:
        self._requests.pop(ticket, None)
        self._done.pop(ticket, None)
        if self._channel is not None:
            self._channel.send({"op": "cancel", "id": ticket})

    def close(self) -> None:
        """Stop the zygote and with it every rank; waits until all are gone."""
        self._end_process()
        self._requests.clear()
        self._done.clear()

    def _end_process(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            self._process.terminate()
            try:
                status = self._process.wait(_limits.EXIT * 2)
            except subprocess.TimeoutExpired:
                self._process.kill()
                status = self._process.wait()
            self._process = None
            if status != 0:
                with contextlib.suppress(OSError):
                    sweep()  # it could not clear up itself
        if self._log is not None:
            self._log.close()
            self._log = None
        for port in self._ports.values():
            port.close()
        self._ports.clear()
        self._idle.clear()

    def _reserve_port(self, ticket: str) -> int:
        """A port that no other job on this machine has, until this one has ended.

        Nothing listens on it unless a library under test insists, which the reservation allows:
        bound, not listening, and open to reuse.  DeepSpeed names its shared memory after it.
        """
        port = self._ports[ticket] = socket.socket()
        port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port.bind(("127.0.0.1", 0))
        number: int = port.getsockname()[1]
        return number

    def _take(self, message: Message | None) -> None:
        if message is None:
            self._fate = f"the process that forks the ranks died: {self._last_words()}"
            self._end_process()
            self._requests = {ticket: one for ticket, one in self._requests.items() if ticket in self._done}
            raise LauncherFailed(self._fate)
        if message["op"] == "done":
            self._idle.discard(message["id"])
            self._ports.pop(message["id"]).close()
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


def missing_libraries(request: Request) -> dict[str, str]:
    """What this variant needs beyond the common libraries and is not installed."""
    from harness.cell.models import MODELS

    model = MODELS.get(request.options.model)
    names = {*request.case.needs, *request.options.needs, *(model.needs if model else ())}
    return {name: "not installed" for name in sorted(names) if not _is_there(name)}


def _is_there(name: str) -> bool:
    """Whether a module can be found.  Imports nothing, not even the package that it is in."""
    from importlib.machinery import PathFinder
    from importlib.util import find_spec

    if sys.modules.get(name) is not None:
        return True
    path, *below = name.split(".")
    spec = find_spec(path)
    for part in below:
        path = f"{path}.{part}"
        folders = spec.submodule_search_locations if spec else None
        spec = PathFinder.find_spec(path, folders) if folders else None
    return spec is not None


def missing_text(missing: dict[str, str]) -> str:
    return "; ".join(f"{name} cannot be imported: {why}" for name, why in missing.items())
