"""What the index has and matrix/releases.toml has not, and what follows for the stacks."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from harness.control.discover._index import Release
from harness.control.stacks import Matrix, load_matrix
from harness.control.stacks._stack import normalize

__all__ = ["Consequences", "News", "consequences", "news_of"]


@dataclass(frozen=True)
class News:
    """Of one package."""

    package: str
    #: by day, then version
    new: tuple[Release, ...] = ()
    #: known releases that have since been yanked
    yanked: tuple[Release, ...] = ()
    #: known releases that the index has no files of any more
    gone: tuple[str, ...] = ()


@dataclass(frozen=True)
class Consequences:
    """What new releases do to the stacks."""

    #: new stacks by the release that a sweep moves to there, as (package, version)
    added: Mapping[tuple[str, str], tuple[str, ...]]
    #: stacks that there are no more, since a newer release takes their place
    gone: tuple[str, ...]
    #: stacks that ask for something else, so that they must be solved again
    changed: tuple[str, ...]


def news_of(package: str, known: Mapping[str, dt.date], found: Iterable[Release]) -> News:
    """No pre-releases and none below the lowest that is known: the matrix begins there."""
    by_version = {one.version: one for one in found}
    versions = {Version(one): one for one in known}
    lowest = min(versions, default=Version("0"))
    new = [
        one
        for version, one in by_version.items()
        if version not in versions and version > lowest and not version.is_prerelease and not one.yanked
    ]
    return News(
        package,
        tuple(sorted(new, key=lambda one: (one.day, one.version))),
        tuple(by_version[version] for version in versions if version in by_version and by_version[version].yanked),
        tuple(text for version, text in versions.items() if version not in by_version),
    )


def consequences(matrix: Matrix, text: str, news: Sequence[News]) -> Consequences:
    """Of putting ``text`` in the place of matrix/releases.toml.  Raises MatrixError where it is no such file."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "releases.toml").write_text(text, encoding="utf-8")
        (Path(folder) / "stacks.toml").write_bytes((matrix.folder / "stacks.toml").read_bytes())
        after = load_matrix(Path(folder)).stacks
    before = matrix.stacks
    added = {
        (one.package, str(release.version)): tuple(
            name
            for name, stack in after.items()
            if name not in before and normalize(stack.moves) == one.package and stack.at == str(release.version)
        )
        for one in news
        for release in one.new
    }
    return Consequences(
        added,
        tuple(name for name in before if name not in after),
        tuple(name for name in before if name in after and before[name].question != after[name].question),
    )
