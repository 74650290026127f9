"""What a process occupies, as the kernel counts it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Memory", "private_bytes", "resident_bytes", "thread_count"]


@dataclass(frozen=True)
class Memory:
    """What the zygote's side costs, in bytes."""

    zygote_resident: int
    zygote_threads: int
    #: by rank
    ranks_private: Sequence[int]


def resident_bytes(pid: int) -> int:
    """All memory the process has in use, shared or not."""
    return _rollup(str(pid))["Rss"]


def private_bytes() -> int:
    """Memory of this process that no other one maps: what one more like it costs the machine.

    Pages that a forked rank still shares with its zygote are not in it.
    """
    sizes = _rollup("self")
    return sizes["Private_Clean"] + sizes["Private_Dirty"]


def thread_count(pid: int) -> int:
    """Threads of the process, those of extension modules included."""
    return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())


def _rollup(process: str) -> dict[str, int]:
    """Totals over all mappings, in bytes; what the kernel calls ``kB`` are 1,024 bytes."""
    sizes = {}
    for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, size = line.partition(":")
        sizes[name] = int(size.split()[0]) * 1024
    return sizes
