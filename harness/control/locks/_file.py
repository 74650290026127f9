"""matrix/locks/NAME.txt: a requirements file whose head says what it answers.

Its versions have no local part and no hashes, and what torch pins by itself is left out: a CPU build
and a CUDA build of one release answer the same lock.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packaging.specifiers import SpecifierSet

from harness.control.stacks._stack import Stack, normalize

__all__ = ["Lock", "LockState", "read_lock", "state_of", "write_lock"]

_HEAD = re.compile(r"# (?P<key>question|answer|solver|unsolvable): (?P<value>.*)")
_LINE = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;#]+)")


class LockState(enum.Enum):
    """What ``thawcheck lock --check`` can find."""

    FRESH = "answers its stack"
    MISSING = "there is no lock file"
    STALE = "the stack asks for something else now"
    EDITED = "was edited by hand after it was solved"
    BROKEN = "is no lock file of ours"


@dataclass(frozen=True)
class Lock:
    """A solution, or why there is none."""

    question: str
    solver: str
    versions: Mapping[str, str] = field(default_factory=dict)
    #: the solver's reason
    unsolvable: str = ""

    @property
    def body(self) -> str:
        return "".join(f"{name}=={version}\n" for name, version in sorted(self.versions.items()))

    @property
    def answer(self) -> str:
        """A digest of the solution: a hand edit changes it."""
        return hashlib.sha256((self.body + self.unsolvable).encode()).hexdigest()[:16]


def write_lock(path: Path, stack: Stack, lock: Lock) -> bool:
    """Write it; whether anything changed.  Raises OSError."""
    day = f", as of {stack.as_of}" if stack.as_of else ""
    head = [
        f"# The solution of the stack {stack.name}, by `thawcheck lock`: {stack.description}.",
        f"# Python {stack.python[0]}{day}; asked for: {', '.join(stack.requires)}",
        f"# question: {lock.question}",
        f"# answer: {lock.answer}",
        f"# solver: {lock.solver}",
        *([f"# unsolvable: {lock.unsolvable}"] if lock.unsolvable else []),
    ]
    text = "\n".join(head) + "\n" + lock.body
    with contextlib.suppress(FileNotFoundError, UnicodeDecodeError):  # then it is written anew
        # Another solver that finds the same changes nothing.
        if _without_solver(path.read_text(encoding="utf-8")) == _without_solver(text):
            return False
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
    return True


def _without_solver(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("# solver: ")]


def read_lock(path: Path) -> tuple[Lock | None, LockState]:
    """The lock and whether it is whole; whether it answers its stack is :func:`state_of`'s to say."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None, LockState.MISSING
    except (OSError, UnicodeDecodeError):
        return None, LockState.BROKEN
    head: dict[str, str] = {}
    versions: dict[str, str] = {}
    for line in lines:
        if found := _HEAD.fullmatch(line):
            head[found["key"]] = found["value"]
        elif line.startswith("#") or not line.strip():
            continue
        elif pin := _LINE.fullmatch(line):
            versions[normalize(pin["name"])] = pin["version"]
        else:
            return None, LockState.BROKEN
    if not {"question", "answer", "solver"} <= {*head}:
        return None, LockState.BROKEN
    lock = Lock(head["question"], head["solver"], versions, head.get("unsolvable", ""))
    return lock, LockState.FRESH if lock.answer == head["answer"] else LockState.EDITED


def state_of(stack: Stack, path: Path) -> tuple[Lock | None, LockState]:
    """The lock of a stack, and how it stands to it."""
    lock, state = read_lock(path)
    if lock is None or state is not LockState.FRESH:
        return lock, state
    if lock.question != stack.question:
        return lock, LockState.STALE
    if not lock.unsolvable and not _answers(lock, stack):
        return lock, LockState.BROKEN
    return lock, LockState.FRESH


def _answers(lock: Lock, stack: Stack) -> bool:
    """Whether the exact pins of the stack are in the lock; a guard against a fault of ours or the solver's."""
    return all(
        name in lock.versions and SpecifierSet(f"=={version}").contains(lock.versions[name], prereleases=True)
        for name, version in stack.pins.items()
    )
