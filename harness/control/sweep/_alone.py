"""One sweep at a time measures a stack in a checkout."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["NotMeasured", "alone"]

#: Seconds in which the guard of a sweep that was killed has ended what it guards.
_LAST_WORDS: Final = 15.0
_LOOK: Final = 0.1


class NotMeasured(Exception):
    """Nothing is known of a stack; the message says why, and where the log is."""


@contextlib.contextmanager
def alone(path: Path, stack: str) -> Iterator[int]:
    """While this lasts, no other sweep may measure the stack here.

    Gives the file descriptor that says so.  The guard holds it, too: a sweep that was killed is over once its
    guard has ended all that it started, and only then may another begin.

    :raises NotMeasured: when another sweep has it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        until = time.monotonic() + _LAST_WORDS
        while not _take(file.fileno()):
            owner = path.read_text(encoding="utf-8").strip()
            if Path(f"/proc/{owner or '-'}").exists() or time.monotonic() > until:
                raise NotMeasured(f"{stack}: another sweep (process {owner or 'unknown'}) is measuring it")
            time.sleep(_LOOK)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield file.fileno()


def _take(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
