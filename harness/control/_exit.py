"""Exit statuses of every command: the one place that says what each means."""

from __future__ import annotations

import argparse
import enum
import textwrap
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["EXITS", "Exit", "Usage", "help_texts"]


class Exit(enum.IntEnum):
    OK = 0
    DIFFERS = 1
    USAGE = 2
    FAILED = 3
    INTERRUPTED = 130


EXITS: Final = {
    Exit.OK: "every verdict is the expected one",
    Exit.DIFFERS: "a verdict differs from the expected one, or a test fails",
    Exit.USAGE: "bad usage or input, or results cannot be written; none is lost",
    Exit.FAILED: "the harness itself failed",
    Exit.INTERRUPTED: "interrupted; nothing that it started is left running",
}


class Usage(Exception):
    """Bad usage or input; the message is all that is shown."""


def help_texts(description: str, meanings: Mapping[Exit, str] | None = None) -> dict[str, Any]:
    """What a parser is made with whose help says what the exit status means.

    :param meanings: what a status means for a command that judges no verdicts; empty for one that it never gives.
    """
    texts = {**EXITS, **(meanings or {})}
    codes = "\n".join(f"  {code.value:<4}{meaning}" for code, meaning in texts.items() if meaning)
    return {
        # The formatter that keeps the lines of the table does not wrap.
        "description": textwrap.fill(description, 79),
        "epilog": f"exit status:\n{codes}",
        "formatter_class": argparse.RawDescriptionHelpFormatter,
    }
