"""Exit statuses of every command: the one place that says what each means."""

from __future__ import annotations

import enum
from typing import Final

__all__ = ["EXITS", "Exit", "Usage"]


class Exit(enum.IntEnum):
    OK = 0
    DIFFERS = 1
    USAGE = 2
    FAILED = 3
    INTERRUPTED = 130


EXITS: Final = {
    Exit.OK: "every verdict is the expected one",
    Exit.DIFFERS: "a verdict differs from the expected one",
    Exit.USAGE: "bad usage or input, or results that cannot be written; nothing measured is lost",
    Exit.FAILED: "the harness itself failed",
    Exit.INTERRUPTED: "interrupted",
}


class Usage(Exception):
    """Bad usage or input; the message is all that is shown."""
