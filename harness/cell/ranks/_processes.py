"""What the kernel tells of other processes, and how to end a whole family of them.

Read from /proc alone: ``/proc/PID/task/TID/children`` is missing from many kernels.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from harness.cell.ranks import _limits

__all__ = ["adopt_orphans", "end_marked", "end_orphans", "spent", "start_time"]

_PR_SET_CHILD_SUBREAPER: Final = 36

#: They unlink the shared memory that those who are gone left behind, and then end by themselves.
#: Killed along with the rest they could not.
_JANITORS: Final = (b"multiprocessing.resource_tracker", b"torch_shm_manager")


class _Process(NamedTuple):
    pid: int
    parent: int
    dead: bool
    #: kernel start time; with the pid it names one process for ever
    started: str
    #: it runs, or would if a processor were free
    runnable: bool
    #: processor time spent so far, in clock ticks of 10 ms
    spent: int


def start_time(pid: int) -> str | None:
    """Kernel start time of a live process, None for one that is gone."""
    process = _look_up(pid)
    return None if process is None or process.dead else process.started


def spent(pids: Iterable[int]) -> tuple[int, bool]:
    """Processor time of all together, in clock ticks of 10 ms, and whether any wants more now."""
    found = [one for pid in pids if (one := _look_up(pid)) is not None]
    return sum(one.spent for one in found), any(one.runnable for one in found)


def adopt_orphans() -> None:
    """Have descendants whose parents end become children of this process, not of init."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans(keep: Collection[int] = ()) -> None:
    """Kill and reap every child of this process but ``keep``, with all that they started.

    By descent, not by session: a daemon makes a session of its own.  Needs
    :func:`adopt_orphans`, for those whose parents have ended.
    """
    me = os.getpid()

    def strays() -> set[int]:
        everyone = _everyone()
        found = {one.pid for one in everyone if one.parent == me and one.pid not in keep}
        while more := {one.pid for one in everyone if one.parent in found} - found:
            found |= more
        return found

    _end(strays)


def end_marked(mark: str, folder: Path) -> None:
    """Kill all that was started with ``mark`` in its environment, as ``NAME=value``, and all that
    works in ``folder`` or prints to a file there: a daemon may have shed its environment."""
    wanted = mark.encode()

    def marked() -> set[int]:
        found = {one.pid for one in _everyone() if wanted in _read(one.pid, "environ").split(b"\0")}
        found |= {one.pid for one in _everyone() if _uses(one.pid, folder)}
        return found - {os.getpid()}

    _end(marked)


def _end(find: Callable[[], set[int]]) -> None:
    """Kill what ``find`` gives until it gives nothing: the killed may have been forking."""
    patient_until = time.monotonic() + _limits.EXIT / 2
    until = time.monotonic() + _limits.EXIT
    while (found := find()) and time.monotonic() < until:
        patient = time.monotonic() < patient_until
        for pid in found:
            if not (patient and _is_janitor(pid)):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        for pid in found:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.002)


def _uses(pid: int, folder: Path) -> bool:
    for link in ("cwd", "fd/1", "fd/2"):
        with contextlib.suppress(OSError):
            if folder in Path(f"/proc/{pid}/{link}").readlink().parents:
                return True
    return False


def _is_janitor(pid: int) -> bool:
    command = _read(pid, "cmdline")
    return any(name in command for name in _JANITORS)


def _everyone() -> list[_Process]:
    found = (_look_up(int(path.name)) for path in Path("/proc").iterdir() if path.name.isdigit())
    return [one for one in found if one is not None]


def _look_up(pid: int) -> _Process | None:
    # The command's name is in parentheses and may hold anything; fields count from behind it.
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    if not fields:
        return None
    return _Process(
        pid,
        parent=int(fields[1]),
        dead=fields[0] in b"ZX",
        started=fields[19].decode(),
        runnable=fields[0] == b"R",
        spent=int(fields[11]) + int(fields[12]),
    )


def _read(pid: int, name: str) -> bytes:
    """Empty for a process that is gone, or not ours to look into."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
