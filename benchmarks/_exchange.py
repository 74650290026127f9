"""What ranks leave for the process that started them: files in a folder of the case."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from benchmarks._case import WORLD
from benchmarks._design import DesignError, Verdicts

__all__ = ["LIMIT", "await_verdicts", "case_folder", "reporting", "write_verdicts"]

#: Seconds after which a case counts as stuck; far beyond the slowest design on a busy machine.
LIMIT: Final = 300.0
#: Seconds between two looks for a rank that raised; an end is noticed at once.
_LOOK: Final = 0.5


def case_folder(scratch: Path) -> Path:
    """A fresh folder for one case: its rendezvous, and what its ranks leave."""
    return Path(tempfile.mkdtemp(dir=scratch))


@contextlib.contextmanager
def reporting(rank: int, folder: Path) -> Iterator[None]:
    """On a rank: send what is printed to a log in ``folder``, and an exception to a file beside it."""
    with (folder / f"rank{rank}.log").open("ab", buffering=0) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    try:
        yield
    except Exception:  # noqa: BLE001  # whatever it was, the process that reads the folder tells it
        _write(folder / f"rank{rank}.error", traceback.format_exc())


def write_verdicts(rank: int, folder: Path, verdicts: Verdicts) -> None:
    """On a rank: leave what it found."""
    _write(folder / f"rank{rank}.json", json.dumps(verdicts))


def await_verdicts(design: str, folder: Path, ended: Callable[[float], bool], limit: float = LIMIT) -> Verdicts:
    """Wait for the ranks to end; what all of them found.  Raises :exc:`DesignError`.

    :param ended: waits some seconds at most; whether all ranks have ended.
    """
    until = time.monotonic() + limit
    while not ended(_LOOK):
        # Its peers wait for it in a collective and would not end.
        _raise_error_of_rank(design, folder)
        if time.monotonic() > until:
            raise DesignError(design, f"its ranks had not ended after {limit:g} s; {_log_tail(folder)}")
    _raise_error_of_rank(design, folder)
    found = [_verdicts_of(rank, design, folder) for rank in range(WORLD)]
    if any(one != found[0] for one in found):
        raise DesignError(design, f"its ranks differ in their verdicts: {found}")
    return found[0]


def _write(path: Path, text: str) -> None:
    """Whole or not at all, since the reader looks at any time."""
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_text(text)
    unfinished.replace(path)


def _raise_error_of_rank(design: str, folder: Path) -> None:
    for error in sorted(folder.glob("rank*.error")):
        raise DesignError(design, f"{error.stem} raised:\n{error.read_text()}")


def _verdicts_of(rank: int, design: str, folder: Path) -> Verdicts:
    try:
        verdicts: Verdicts = json.loads((folder / f"rank{rank}.json").read_text())
    except FileNotFoundError:
        raise DesignError(design, f"rank{rank} ended without a verdict; {_log_tail(folder)}") from None
    return verdicts


def _log_tail(folder: Path) -> str:
    texts = [log.read_text(errors="replace") for log in sorted(folder.glob("*.log"))]
    lines = "\n".join(texts).splitlines()[-20:]
    return "\n".join(["it had printed:", *lines]) if lines else "it had printed nothing"
