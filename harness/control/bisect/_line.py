"""What is walked along: the releases of a package, or the commits of a clone, oldest first."""

from __future__ import annotations

import datetime as dt
import re
import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from packaging.version import InvalidVersion, Version

from harness.cell._patterns import nearest
from harness.control.stacks import Matrix
from harness.control.stacks._stack import normalize

__all__ = ["REPOSITORIES", "Line", "LineError", "Place", "commits", "releases"]

#: Whose releases and commits can be compared on a page, and how a release is tagged there.
REPOSITORIES: Final = {
    "accelerate": ("huggingface/accelerate", "v{}"),
    "axolotl": ("axolotl-ai-cloud/axolotl", "v{}"),
    "deepspeed": ("deepspeedai/DeepSpeed", "v{}"),
    "peft": ("huggingface/peft", "v{}"),
    "torch": ("pytorch/pytorch", "v{}"),
    "transformers": ("huggingface/transformers", "v{}"),
}
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")


class LineError(Exception):
    """What was asked names no line; says what there is."""


@dataclass(frozen=True)
class Place:
    """A release, or a commit."""

    at: str
    day: dt.date | None = None
    #: of a commit: its subject
    subject: str = ""

    @property
    def short(self) -> str:
        return self.at[:10] if _COMMIT.fullmatch(self.at) else self.at


@dataclass(frozen=True)
class Line:
    """Places of one package, oldest first; the ends are those that were asked for."""

    package: str
    places: tuple[Place, ...]
    #: where the commits are; None for releases
    clone: Path | None = None

    def compare_page(self, last: Place, first: Place) -> str:
        """Where a reader sees what changed; empty where there is no such page."""
        repository, tag = REPOSITORIES.get(self.package, ("", "{}"))
        if not repository:
            return ""
        one, other = (place.at if self.clone else tag.format(place.at) for place in (last, first))
        return f"https://github.com/{repository}/compare/{one}...{other}"


def releases(matrix: Matrix, package: str, one_end: str, other_end: str, left_out: Collection[str] = ()) -> Line:
    """All releases that the matrix knows from one end to the other, in whichever order the ends are given.

    :param left_out: releases that are not wanted.
    :raises LineError: where it does not know the package or an end.
    """
    package = normalize(package)
    known = matrix.releases.get(package)
    if known is None:
        raise LineError(f"--package: {package!r} has no releases in releases.toml; {nearest(package, matrix.releases)}")
    faults = [
        f"--{name}: {package} {end!r} is no release that releases.toml knows; {nearest(end, known)}"
        for name, end in (("good", one_end), ("bad", other_end))
        if end not in known
    ]
    if one_end == other_end:
        faults.append(f"--good and --bad are both {one_end}: there is nothing between them")
    if faults:
        raise LineError("\n".join(faults))
    low, high = sorted((one_end, other_end), key=_version)
    wanted = [one for one in known if _version(low) <= _version(one) <= _version(high) and one not in left_out]
    return Line(package, tuple(Place(one, known[one]) for one in sorted(wanted, key=_version)))


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:  # a release that the matrix knows has a version
        raise LineError(f"{text!r} is no version") from None


def commits(clone: Path, package: str, one_end: str, other_end: str) -> Line:
    """The commits of a clone from one end to the other along first parents; the ends are any names that git knows.

    :raises LineError: where git does not know them, or neither comes from the other.
    """
    if not (clone / ".git").exists() and not (clone / "HEAD").exists():
        raise LineError(f"--clone: {clone} is no clone of a repository")
    ends = {name: _resolved(clone, name, end) for name, end in (("good", one_end), ("bad", other_end))}
    if ends["good"] == ends["bad"]:
        raise LineError(f"--good and --bad are both {ends['good'][:10]}: there is nothing between them")
    low, high = ends["good"], ends["bad"]
    if not _is_ancestor(clone, low, high):
        low, high = high, low
        if not _is_ancestor(clone, low, high):
            raise LineError(f"--good {one_end} and --bad {other_end}: neither comes from the other in {clone}")
    told = _git(clone, "log", "--first-parent", "--reverse", "--format=%H %cs %s", f"{low}..{high}")
    first = _git(clone, "log", "-1", "--format=%H %cs %s", low)
    return Line(normalize(package), tuple(map(_place, [*first.splitlines(), *told.splitlines()])), clone.resolve())


def _place(line: str) -> Place:
    commit, day, subject = (*line.split(" ", 2), "")[:3]
    return Place(commit, dt.date.fromisoformat(day), subject)


def _resolved(clone: Path, name: str, end: str) -> str:
    try:
        return _git(clone, "rev-parse", "--verify", "--end-of-options", f"{end}^{{commit}}").strip()
    except LineError:
        raise LineError(f"--{name}: git knows no commit {end!r} in {clone}") from None


def _is_ancestor(clone: Path, one: str, other: str) -> bool:
    command = ["git", "-C", str(clone), "merge-base", "--is-ancestor", one, other]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _git(clone: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(clone), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise LineError("--clone: there is no git here") from None
    if done.returncode:
        raise LineError(f"--clone: git cannot read {clone}: {' '.join(done.stderr.split())}")
    return done.stdout
