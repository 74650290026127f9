"""A message without what differs from one run of the same thing to the next."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["steady"]

_LONGEST: Final = 240
_VARIES: Final = (
    (re.compile(r"0x[0-9a-fA-F]{6,}"), "0x..."),
    (re.compile(r"(?<![\w.])/(?:[\w.+-]+/)+"), ".../"),
)


def steady(message: str) -> str:
    """Its beginning, on one line, without addresses and folders."""
    text = " ".join(message.split())
    for pattern, replaced in _VARIES:
        text = pattern.sub(replaced, text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
