"""Text from outside, made fit for where it goes: nobody's case name moves a cursor, closes a tag or names a person."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

__all__ = ["for_markdown", "for_terminal", "for_xml", "in_code"]

#: All that XML 1.0 has no way to write.
_NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def for_terminal(text: str) -> str:
    """On one line, with what is no character to look at as an escape."""
    return "".join(one if _is_shown(one) else _escaped(one) for one in " ".join(text.split()))


def _is_shown(one: str) -> bool:
    # Also marks that turn the direction of what follows.
    return unicodedata.category(one) not in ("Cc", "Cf", "Cs", "Co", "Cn")


def _escaped(one: str) -> str:
    return one.encode("unicode_escape", "surrogatepass").decode()


def for_markdown(text: str) -> str:
    """In a cell of a table or in a line: no markup, no tag, no mention."""
    entities = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;"}
    return re.sub(r"[&<>@|\\`*_{}\[\]#~]", lambda found: entities.get(found[0], f"\\{found[0]}"), for_terminal(text))


def in_code(text: str) -> str:
    """As code, in a cell of a table or in a line."""
    plain = for_terminal(text).replace("|", r"\|")
    fence = "`" * (1 + max((len(one) for one in re.findall("`+", plain)), default=0))
    pad = " " if "`" in plain else ""
    return f"{fence}{pad}{plain or ' '}{pad}{fence}"


def for_xml(text: str) -> str:
    return _NOT_XML.sub(lambda found: _escaped(found[0]), text)
