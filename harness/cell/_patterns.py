"""Parameter-name patterns: shell-style globs over full dotted names, several per intent."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable, Sequence

__all__ = ["as_patterns", "matches", "nearest", "select"]

Patterns = str | Sequence[str]


def as_patterns(patterns: Patterns) -> tuple[str, ...]:
    """One pattern or several, as a tuple."""
    return (patterns,) if isinstance(patterns, str) else tuple(patterns)


def matches(name: str, patterns: Patterns) -> bool:
    """Whether the whole of ``name`` matches any of the globs (case matters; ``.`` is literal)."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in as_patterns(patterns))


def select(names: Iterable[str], patterns: Patterns) -> list[str]:
    """The names that match, in their own order."""
    return [name for name in names if matches(name, patterns)]


def nearest(word: str, choices: Iterable[str], count: int = 3) -> str:
    """A clause that suggests what ``word`` may have meant, or lists what there is."""
    known = sorted(set(choices))
    core = word.strip("*.^$").lower()
    # Who types the beginning of a name means one that begins so: `ds-0.13` is no misspelt `ds-0.19.3`.
    close = [name for name in known if core and name.lower().startswith(core)]
    close += [one for one in difflib.get_close_matches(word, known, n=count, cutoff=0.5) if one not in close]
    # A glob or a fragment is far from every full name by edit distance: try containment too.
    close += [name for name in known if core and core in name.lower() and name not in close]
    if close:
        return "did you mean " + " or ".join(repr(name) for name in close[:count]) + "?"
    shown = ", ".join(known[:8]) + (f" and {len(known) - 8} more" if len(known) > 8 else "")
    return f"there is: {shown}" if shown else "there is none"
