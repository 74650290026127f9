"""How tools read a pattern of parameter names; one pattern means five things to five of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from harness.cell._patterns import select
from harness.drivers.axolotl_config import Pattern as AxolotlPattern

__all__ = ["DIALECTS", "Dialect", "NoPattern"]


class NoPattern(ValueError):
    """It is none in this dialect."""


@dataclass(frozen=True)
class Dialect:
    """:ivar told: what it is, as it is told to people.
    :ivar matching: the names that a pattern matches, in their order; raises NoPattern.
    :ivar exact: whether a bare dot is a literal one.
    """

    name: str
    told: str
    matching: Callable[[str, Iterable[str]], list[str]]
    exact: bool = True

    def tried(self, pattern: str, names: Iterable[str]) -> list[str]:
        """As ``matching``, of what nobody wrote: none where it makes no pattern."""
        try:
            return self.matching(pattern, names)
        except NoPattern:
            return []


def _glob(pattern: str, names: Iterable[str]) -> list[str]:
    return select(names, pattern)


def _substring(pattern: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if pattern in name]


def _prefix(pattern: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(pattern)]


def _suffix(pattern: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.endswith(pattern)]


def _regex(how: Callable[[re.Pattern[str], str], object]) -> Callable[[str, Iterable[str]], list[str]]:
    def matching(pattern: str, names: Iterable[str]) -> list[str]:
        try:
            made = re.compile(pattern)
        except re.error as error:
            raise NoPattern(f"is no regular expression: {error}") from None
        return [name for name in names if how(made, name)]

    return matching


def _axolotl(pattern: str, names: Iterable[str]) -> list[str]:
    try:
        return AxolotlPattern(pattern).matching(names)
    except re.error as error:
        raise NoPattern(f"is no regular expression: {error}") from None


#: By name, in the order in which they are suggested.
DIALECTS: Final[Mapping[str, Dialect]] = {
    one.name: one
    for one in (
        Dialect("glob", "a shell pattern over the whole name", _glob),
        Dialect("substring", "a part of the name, as in `if pattern in name`", _substring),
        Dialect("prefix", "the name's beginning, as in `name.startswith(pattern)`", _prefix),
        Dialect("suffix", "the name's end, as in `name.endswith(pattern)`", _suffix),
        Dialect(
            "match", "a regular expression from the name's start, as `re.match`", _regex(re.Pattern.match), exact=False
        ),
        Dialect("search", "a regular expression anywhere, as `re.search`", _regex(re.Pattern.search), exact=False),
        Dialect("fullmatch", "a regular expression over the whole name", _regex(re.Pattern.fullmatch), exact=False),
        Dialect("axolotl", "one of Axolotl's `unfrozen_parameters`", _axolotl),
    )
}
