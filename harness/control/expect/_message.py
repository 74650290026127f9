"""A pattern for the messages of one failure: short, and without what varies."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["beginning", "pattern_of"]

#: Messages that share so many characters are one message, of which a part varies.
_SHARED: Final = 10
#: A pattern need not repeat more of a message than tells it from others.
_LONGEST: Final = 80
_SPECIAL = re.compile(r"[\\.^$*+?{}\[\]|()]")


def beginning(message: str) -> str:
    """Equal for messages that are one."""
    return message[:_SHARED]


def pattern_of(messages: Iterable[str]) -> str:
    """A regular expression for messages that begin alike."""
    ends = sorted(messages)
    first, last = ends[0], ends[-1]
    length = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    shared = first[:length]
    if not shared:
        return "^$"
    if len(shared) > _LONGEST:
        whole_words = shared[: _LONGEST + 1].rpartition(" ")[0]
        shared = whole_words if len(whole_words) > _LONGEST // 2 else shared[:_LONGEST]
    # re.escape would also escape blanks and dashes, which is hard to read.
    return "^" + _SPECIAL.sub(lambda found: f"\\{found[0]}", shared)
