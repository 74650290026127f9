"""Temporary folders that are gone after every outcome, a ``kill -9`` included.

Everything we write lives below ``<tmp>/thawcheck-<uid>/<pid>-<start time>``, named after the
process that owns it.  A normal end removes the folder; the next start removes what dead owners
left, together with the shared-memory segments their ranks may have leaked.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

__all__ = ["clear_shared_memory", "new_scratch", "sweep"]

_SHM = Path("/dev/shm")


def _start_time(pid: int) -> str | None:
    """Kernel start time of a live process; with the pid it names one process for ever."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The command name is in parentheses and may hold anything; fields count from behind it.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def _base() -> Path:
    return Path(tempfile.gettempdir()) / f"thawcheck-{os.getuid()}"


def new_scratch() -> Path:
    """A fresh folder owned by this process, after sweeping what dead owners left."""
    sweep()
    folder = _base() / f"{os.getpid()}-{_start_time(os.getpid())}"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def sweep() -> list[Path]:
    """Remove the folders of owners that are gone; says which."""
    removed = []
    for folder in _base().glob("*-*") if _base().is_dir() else ():
        owner, _, started = folder.name.partition("-")
        if not owner.isdigit() or _start_time(int(owner)) == started:
            continue
        # A pid may have been given to another process since; that one's segments are not ours.
        clear_shared_memory(*(pid for pid in map(int, _pids(folder)) if _start_time(pid) is None))
        shutil.rmtree(folder, ignore_errors=True)
        removed.append(folder)
    return removed


def remember_pids(folder: Path, pids: list[int]) -> None:
    """Keep the ranks' pids on disk, so that a later sweep can clear what they leaked."""
    with (folder / "pids").open("a") as file:
        file.writelines(f"{pid}\n" for pid in pids)


def _pids(folder: Path) -> list[str]:
    try:
        return [line for line in (folder / "pids").read_text().split() if line.isdigit()]
    except OSError:
        return []


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
