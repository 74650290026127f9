"""Markdown cut to what GitHub takes, at the end of a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["LIMITS", "fitted"]

#: What GitHub takes: characters of a comment, bytes of the summary of a step.
LIMITS: Final[Mapping[str, int]] = {"comment": 65_536, "summary": 1_048_576}


def fitted(lines: Sequence[str], limit: str, rest: str) -> str:
    """As many whole lines as the limit takes, and a word about those that it does not.

    :param rest: the command that has all of it.
    """
    text = "\n".join([*lines, ""])
    if _size(text, limit) <= LIMITS[limit]:
        return text
    room = LIMITS[limit] - 200
    kept: list[str] = []
    open_ = 0
    for line in lines:
        room -= _size(line, limit) + 1
        if room < 0:
            break
        kept.append(line)
        open_ += line.count("<details>") - line.count("</details>")
    count = len(lines) - len(kept)
    left_out = f"{count:,} more lines are left out, since GitHub takes no more: `{rest}` has all of it."
    return "\n".join([*kept, "", *["</details>"] * open_, "", left_out, ""])


def _size(text: str, limit: str) -> int:
    # A summary is measured in bytes.
    return len(text) if limit == "comment" else len(text.encode("utf-8", "surrogatepass"))
