"""Run a command so that nothing of it outlives the sweep that wants it, not even one that is killed.

The sweep holds the other end of the guard's standard input: when that ends, so does all that the command started.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harness.cell.ranks._processes import adopt_orphans, end_orphans

__all__ = ["guarded", "main"]

#: Seconds in which tox, the suite and its ranks may end by themselves.
_GRACE: Final = 5.0
_LOOK: Final = 0.1


def guarded(command: Sequence[str]) -> list[str]:
    """What to start instead of ``command``, with a pipe for standard input."""
    here = str(Path(__file__).resolve().parents[3])
    # By the folder of this very thawcheck: the command may run where there is another.
    code = f"import sys; sys.path.insert(0, {here!r}); from {__name__} import main; sys.exit(main(sys.argv[1:]))"
    return [sys.executable, "-c", code, *command]


def main(command: Sequence[str]) -> int:
    """The command's own status, once nothing of it is left."""
    adopt_orphans()
    with contextlib.suppress(ProcessLookupError):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        if _sweep_is_gone_before(process):
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE)
    end_orphans()
    return process.returncode if process.returncode is not None else -signal.SIGKILL


def _sweep_is_gone_before(process: subprocess.Popen[bytes]) -> bool:
    """Wait for the command or for the end of standard input; whether that came first."""
    while process.poll() is None:
        if select.select([sys.stdin], [], [], _LOOK)[0]:
            return True
    return False
