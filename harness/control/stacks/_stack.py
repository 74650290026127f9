"""One stack: a set of versions that is solved, installed and measured together."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from packaging.utils import canonicalize_name

__all__ = ["TOOLS", "Stack", "normalize"]

#: In every stack, since the suite needs them; solved with it, so that they are of its day.
TOOLS = ("pytest", "pytest-timeout", "pytest-xdist")


def normalize(name: str) -> str:
    """A project name as indexes compare it."""
    return canonicalize_name(name)


@dataclass(frozen=True)
class Stack:
    """One entry, expanded."""

    name: str
    description: str
    labels: tuple[str, ...]
    #: versions that will do, the preferred one first; the lock is solved for that one
    python: tuple[str, ...]
    #: what the lock is solved from: pins, ranges and bare names
    requires: tuple[str, ...]
    #: nothing that came out later is taken, except what is pinned exactly; None takes the newest
    as_of: dt.date | None
    #: per package, and for ``python``: why it is what it is
    why: Mapping[str, str] = field(default_factory=dict)
    #: newest pre-releases or main branches: never locked, never gating
    dev: bool = False
    prereleases: bool = False
    #: packages that bring their own dependencies, though pyproject.toml leaves those out everywhere else
    whole: tuple[str, ...] = ()
    #: the sweep that it is of, the axis that moves there, and where it stands; empty for a stack by itself
    sweep: str = ""
    moves: str = ""
    at: str = ""

    @property
    def pins(self) -> dict[str, str]:
        """Packages at exact versions."""
        split = (requirement.partition("==") for requirement in self.requires)
        return {normalize(name): version for name, equals, version in split if equals}

    @property
    def question(self) -> str:
        """A digest of all that decides the solution: a lock that answers another one is stale."""
        asked: list[Any] = [self.python[0], sorted(self.requires), str(self.as_of)]
        if self.whole:
            asked.append(sorted(self.whole))
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]

    def as_dict(self) -> dict[str, Any]:
        """For ``thawcheck stacks --json``."""
        return {
            "name": self.name,
            "description": self.description,
            "labels": list(self.labels),
            "python": list(self.python),
            "requires": list(self.requires),
            "as_of": self.as_of and str(self.as_of),
            "dev": self.dev,
        }
