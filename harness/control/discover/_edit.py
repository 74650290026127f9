"""Put releases into the text of matrix/releases.toml, each at its place; comments and order stay as they are."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.version import InvalidVersion, Version

from harness.cell._toml_lines import lines_of
from harness.control.discover._index import Release

__all__ = ["with_releases"]


def with_releases(text: str, package: str, releases: Iterable[Release]) -> str:
    """The text with more lines in the table of ``package``.  Raises ValueError where it is not written as one."""
    for release in sorted(releases, key=lambda one: one.version):
        text = _with(text, package, release)
    return text


def _with(text: str, package: str, release: Release) -> str:
    lines = text.splitlines(keepends=True)
    number = _place(text, package, release.version)
    end = "\r\n" if lines[number - 1].endswith("\r\n") else "\n"
    if not lines[number - 1].endswith(end):  # the last line of the file, left open
        lines[number - 1] += end
    lines.insert(number, f'"{release.version}" = {release.day}{end}')
    return "".join(lines)


def _place(text: str, package: str, version: Version) -> int:
    """The number of the line after which a release goes: that of the nearest lower one, or the table's head."""
    best, place = None, 0
    for parts, number in lines_of(text).items():
        if parts == (package,) and text.splitlines()[number - 1].lstrip().startswith("["):
            place = place or number
        elif len(parts) == 2 and parts[0] == package:
            there = _version(str(parts[1]))
            if there is not None and there < version and (best is None or there > best):
                best, place = there, number
    if not place:
        raise ValueError(f"{package} must be a table with the head [{package}], a line for each release")
    return place


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None
