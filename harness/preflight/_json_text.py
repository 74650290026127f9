"""JSON as people write it: comments and trailing commas are told, with their lines, and read over."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Json", "read_json"]

#: A string, so that what looks like a comment inside one is none; a comment of each kind; a comma before a bracket.
_TOKEN = re.compile(
    r'(?P<string>"(?:[^"\\\n]|\\.)*")|(?P<comment>//[^\n]*|\#[^\n]*|/\*.*?\*/)|(?P<comma>,)(?=\s*[}\]])', re.DOTALL
)


@dataclass
class Json:
    """:ivar value: what is in it; None where it cannot be read.
    :ivar broken: why it cannot be read.
    :ivar lax: what strict readers refuse, each with its line.
    :ivar twice: keys given twice in one block, each with the line of the last.
    """

    value: Any = None
    broken: str = ""
    lax: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)


def read_json(text: str) -> Json:
    """Never raises: every fault is in what it gives."""
    read = Json()
    # Comments first: one may stand between a comma and its bracket.
    plain = _blank(text, "comment", "a comment", read.lax)
    plain = _blank(plain, "comma", "a comma before a closing bracket", read.lax)

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        for key in dict.fromkeys(keys):
            if keys.count(key) > 1:
                last = [value for name, value in pairs if name == key][-1]
                read.twice.append(f"{key!r} is given twice in one block, and the last, {_short(last)}, counts")
        return dict(pairs)

    try:
        read.value = json.loads(plain, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        read.broken = f"line {error.lineno}, column {error.colno}: {error.msg}"
    except RecursionError:
        read.broken = "it is nested too deeply"
    return read


def _blank(text: str, kind: str, called: str, told: list[str]) -> str:
    """``text`` with spaces for each token of a kind, so that lines and columns stay."""
    pieces = []
    at = 0
    for found in _found(text, kind):
        told.append(f"line {text.count(chr(10), 0, found.start()) + 1}: {called}")
        pieces += [text[at : found.start()], re.sub(r"[^\n]", " ", found[kind])]
        at = found.start() + len(found[kind])
    return "".join([*pieces, text[at:]])


def _found(text: str, kind: str) -> Iterator[re.Match[str]]:
    return (one for one in _TOKEN.finditer(text) if one[kind] is not None)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."  # a block may be long
