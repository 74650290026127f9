"""Temporary folders that are gone after every outcome, a ``kill -9`` included.

Everything we write lives below ``<tmp>/thawcheck-<uid>/<pid>-<start time>-<host>``, named after the
process that owns it.  A normal end removes the folder; the next start removes what dead owners
left, together with the processes and shared-memory segments that their ranks may have left.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Final

from harness.cell.ranks._processes import end_marked, start_time

__all__ = ["MARK", "clear_shared_memory", "keep_folder", "new_scratch", "remember_pids", "reserve_space", "sweep"]

#: Environment variable that marks what an owner starts; its value is in the owner's folder.
MARK: Final = "THAWCHECK_MARK"

_SHM = Path("/dev/shm")  # noqa: S108  # where the kernel keeps POSIX shared memory

#: What the logs, the rendezvous and the stacks of a job may take; less is a full disk.
_NEEDED: Final = 1 << 20


def _base() -> Path:
    """The folder of this user.  Raises OSError where it cannot be ours."""
    base = Path(tempfile.gettempdir()) / f"thawcheck-{os.getuid()}"
    base.mkdir(mode=0o700, exist_ok=True)
    # Anyone may make a folder of this name in a shared /tmp, and then swap what we write.
    if base.is_symlink() or base.stat().st_uid != os.getuid():
        raise PermissionError(errno.EPERM, "this is no folder of ours", str(base))
    return base


def new_scratch() -> Path:
    """A fresh folder owned by this process, after sweeping what dead owners left.

    :raises OSError: where none can be made.
    """
    sweep()
    me = os.getpid()
    folder = _base() / f"{me}-{start_time(me)}-{socket.gethostname()}"
    folder.mkdir(exist_ok=True, mode=0o700)
    if mark := os.environ.get(MARK):
        (folder / "mark").write_text(mark)
    return folder


def sweep() -> None:
    """Remove what owners that are gone have left.  Raises OSError where nothing can be ours."""
    for folder in _base().iterdir():
        owner, _, rest = folder.name.partition("-")
        started, _, host = rest.partition("-")
        # A temporary folder may be shared by machines or containers that cannot see our processes.
        if not owner.isdigit() or host != socket.gethostname() or start_time(int(owner)) == started:
            continue
        for mark in _words(folder / "mark"):
            end_marked(f"{MARK}={mark}", folder.resolve())
        # A pid may have been given to another process since; that one's segments are not ours.
        clear_shared_memory(*(pid for pid in _numbers(folder / "pids") if start_time(pid) is None))
        for port in _numbers(folder / "ports"):
            clear_shared_memory(port=port)
        shutil.rmtree(folder, ignore_errors=True)


def keep_folder(folder: Path) -> Path:
    """Move a job's folder to where nothing removes it; where that is."""
    kept = Path(tempfile.mkdtemp(prefix=f"kept-{folder.name}-", dir=_base()))
    return folder.rename(kept)  # in the place of the empty one


def reserve_space(folder: Path) -> None:
    """Make sure that a job can write its logs.  Raises OSError where the disk is full."""
    probe = folder / "space"
    try:
        with probe.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, _NEEDED)
    finally:
        probe.unlink(missing_ok=True)


def remember_pids(folder: Path, pids: list[int], port: int | None = None) -> None:
    """Keep the ranks' pids and port on disk, so that a later sweep can clear what they leaked."""
    with (folder / "pids").open("a") as file:
        file.writelines(f"{pid}\n" for pid in pids)
    if port is not None:
        with (folder / "ports").open("a") as file:
            file.write(f"{port}\n")


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _numbers(path: Path) -> list[int]:
    return [int(word) for word in _words(path) if word.isdigit()]


def clear_shared_memory(*pids: int, port: int | None = None) -> list[str]:
    """Unlink the /dev/shm segments that these dead ranks, or this rendezvous, left behind.

    Only names that carry our pid or port are touched: torch's ``torch_<pid>_...`` (DataLoader
    workers, tensor sharing) and the buffers of DeepSpeed's CPU shared-memory op, which nothing
    in DeepSpeed unlinks (``csrc/cpu/comm/shm.cpp``, read at 0.19.8).
    """
    wanted = [re.compile(rf"torch_{pid}_") for pid in pids]
    if port is not None:
        wanted.append(re.compile(rf"deepspeed_allreduce_buffer_{os.getuid()}_.*_{port}(_|$)"))
    gone = []
    for path in _SHM.iterdir() if _SHM.is_dir() else ():
        if any(pattern.match(path.name) for pattern in wanted):
            path.unlink(missing_ok=True)
            gone.append(path.name)
    return gone
