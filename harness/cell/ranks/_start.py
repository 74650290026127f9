"""Start one rank as a process: by fork from a warm zygote, or by spawn where that is unsafe."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from harness.cell.ranks._processes import adopt_orphans
from harness.cell.ranks._programs import import_path, program
from harness.cell.ranks._wire import Channel, Message

__all__ = ["RankProcess", "Starter", "fork_rank", "own_session", "spawn_rank"]

_PR_SET_PDEATHSIG = 1


@dataclass
class RankProcess:
    """The supervisor's view of one rank."""

    rank: int
    pid: int
    channel: Channel
    log: Path
    stack: Path
    moment: str = "start"
    #: it has imported the libraries and is in the group
    joined: bool = False
    outcome: Message | None = None
    #: wait status once reaped; None while it runs
    status: int | None = None
    #: it had not reported when its stack was asked for
    blocked: bool = False


Starter = Callable[[Message, int, Path], RankProcess]


def own_session(farewell: signal.Signals = signal.SIGKILL) -> None:
    """Set this process apart: what it starts belongs to it, and it hears when its parent dies.

    Its session keeps the terminal's signals, and those that the code under test sends to "its
    group", from reaching others.  What it starts stays below it even when daemonised, so that one
    job can be ended with all that it started while another runs.

    :param farewell: sent to us when the thread that started us ends, by a ``kill -9`` too.
    """
    os.setsid()
    adopt_orphans()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, farewell, 0, 0, 0)


def _files(folder: Path, rank: int) -> tuple[Path, Path]:
    return folder / f"rank{rank}.log", folder / f"rank{rank}.stack"


def fork_rank(job: Message, rank: int, folder: Path, forget: Callable[[], Iterable[int]] = tuple) -> RankProcess:
    """Fork a rank from this process, which must be single-threaded and hold no CUDA context.

    :param forget: gives the file descriptors of this process that the rank must not keep open.
    """
    files = _files(folder, rank)
    ours, theirs = socket.socketpair()
    parent = os.getpid()
    # Else every rank would print what the libraries said when they were imported.
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        theirs.close()
        return RankProcess(rank, pid, Channel(ours), *files)
    try:
        signal.set_wakeup_fd(-1)
        ours.close()
        for number in forget():
            os.close(number)
        _become_rank(job, rank, parent, Channel(theirs), files)
    except BaseException:  # noqa: BLE001  # nothing may unwind into the frames of the zygote
        traceback.print_exc()
    finally:
        os._exit(70)  # a rank leaves by itself; only a fault of ours comes here


def _become_rank(job: Message, rank: int, parent: int, channel: Channel, files: tuple[Path, Path]) -> NoReturn:
    """The child's side of a fork."""
    own_session()
    if os.getppid() != parent:  # the parent died before the death signal was set
        os._exit(1)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    log, stack = files
    with log.open("ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    from harness.cell.ranks._rank import rank_main

    rank_main(job, rank, channel, stack)


def spawn_rank(job: Message, rank: int, folder: Path) -> RankProcess:
    """Start a rank as a fresh interpreter: slow, always safe."""
    log, stack = _files(folder, rank)
    ours, theirs = socket.socketpair()
    with log.open("ab", buffering=0) as file:
        process = subprocess.Popen(
            program("harness.cell.ranks._rank", str(theirs.fileno()), str(rank), str(stack)),
            stdout=file,
            stderr=file,
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env={**os.environ, **import_path()},
        )
    theirs.close()
    # The supervisor reaps by pid; Popen must not race it with a wait of its own at collection.
    process.returncode = 0
    ours.sendall(json.dumps(job).encode() + b"\n")
    return RankProcess(rank, process.pid, Channel(ours), log, stack)
