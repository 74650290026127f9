"""matrix/releases.toml: the releases that are known, and when each came out.

A file of data, so that the stacks are the same for everybody and on every day; ``thawcheck discover``
says what has come out since.
"""

from __future__ import annotations

import datetime as dt
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from harness.control.stacks._faults import Faults, MatrixError
from harness.control.stacks._stack import normalize

if sys.version_info >= (3, 11):
    import tomllib
else:  # tox and pytest depend on tomli there
    import tomli as tomllib

__all__ = ["TAKES", "Releases", "load_releases", "read_toml"]

_AT_LINE: Final = re.compile(r"at line (\d+)")
#: What the files of the matrix have is 4 levels deep.
_DEEPEST: Final = 20
_TOO_DEEP: Final = "{}: tables or arrays are nested too deeply"

#: package -> release -> the day it came out; oldest first
Releases = Mapping[str, Mapping[str, dt.date]]


def read_toml(path: Path) -> tuple[dict[str, Any], Faults]:
    """A TOML file, and where to put what is wrong with it.  Raises MatrixError where it is no TOML."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise MatrixError([f"{path}: cannot be read: {error.strerror or error}"]) from None
    except UnicodeDecodeError as error:
        raise MatrixError([f"{path}: is not valid TOML: {error}"]) from None
    try:
        plain = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _AT_LINE.search(str(error))
        line = found[1] if found else max(1, len(text.splitlines()))  # else it says "at end of document"
        raise MatrixError([f"{path}:{line}: is not valid TOML: {error}"]) from None
    except RecursionError:
        raise MatrixError([_TOO_DEEP.format(path)]) from None
    if _is_deeper(plain, _DEEPEST):
        raise MatrixError([_TOO_DEEP.format(path)])
    return plain, Faults(path, text)


def _is_deeper(plain: object, limit: int) -> bool:
    """Whether tables and arrays are nested so deeply that showing them may fail."""
    level = [plain]
    for _ in range(limit):
        inner = [list(one.values()) if isinstance(one, dict) else one for one in level if isinstance(one, (dict, list))]
        level = [one for several in inner for one in several]
    return bool(level)


def load_releases(path: Path) -> Releases:
    """Raises MatrixError with every fault."""
    plain, faults = read_toml(path)
    found: dict[str, dict[str, dt.date]] = {}
    if not plain:
        faults.add((), "names no package: write a table [PACKAGE] of releases and dates")
    for package, table in plain.items():
        if not isinstance(table, dict):  # an empty one is for `thawcheck discover` to fill
            faults.add((package,), f"must be a table of releases and dates, found {table!r}")
            continue
        if package != normalize(package):
            faults.add((package,), f"must be written as indexes do: {normalize(package)}")
        checked: dict[Version, tuple[str, dt.date]] = {}
        for release, day in table.items():
            try:
                version = Version(release)
            except InvalidVersion:
                faults.add((package, release), "is no version")
                continue
            if type(day) is not dt.date:  # a date with a time is a subclass
                faults.add((package, release), f"must be the day it came out, such as 2024-03-31, found {day!r}")
                continue
            if version in checked:
                faults.add((package, release), f"is the same release as {checked[version][0]}")
            checked[version] = (release, day)
        found[package] = {release: day for _, (release, day) in sorted(checked.items())}
    faults.finish()
    return found


def _every(versions: list[str]) -> list[str]:
    return versions


def _minors(versions: Iterable[str]) -> list[list[str]]:
    """Grouped by major and minor version, in order."""
    groups: dict[tuple[int, int], list[str]] = {}
    for one in versions:
        version = Version(one)
        groups.setdefault((version.major, version.minor), []).append(one)
    return list(groups.values())


def _last_of_minor(versions: list[str]) -> list[str]:
    return [group[-1] for group in _minors(versions)]


def _ends_of_minor(versions: list[str]) -> list[str]:
    return [one for group in _minors(versions) for one in dict.fromkeys((group[0], group[-1]))]


#: Which releases of its range a sweep takes.
TAKES: Final[Mapping[str, Callable[[list[str]], list[str]]]] = {
    "every": _every,
    "last-of-minor": _last_of_minor,
    "first-and-last-of-minor": _ends_of_minor,
}


def taken(releases: Mapping[str, dt.date], wanted: SpecifierSet, take: str) -> list[str]:
    """The releases of a sweep, oldest first."""
    return TAKES[take]([one for one in releases if wanted.contains(one, prereleases=True)])
