"""Find cases: those shipped in :mod:`harness.cases`, and those in files of one's own."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from functools import cache
from pathlib import Path

from harness.cell._case import Case, MalformedCase
from harness.cell._patterns import nearest

__all__ = ["UnknownCase", "find", "shipped"]


class UnknownCase(LookupError):
    """No case has the name asked for."""


@cache
def shipped() -> tuple[Case, ...]:
    """Every case of the catalogue, in the order of the files and of each file."""
    import harness.cases

    found = []
    for info in pkgutil.iter_modules(harness.cases.__path__, "harness.cases."):
        module = importlib.import_module(info.name)
        found += [one for one in vars(module).values() if isinstance(one, Case) and one.module == info.name]
    return tuple(found)


def find(name: str) -> Case:
    """The case called ``name``, or ``path/to/file.py::name``.

    :raises UnknownCase: with near names.
    :raises MalformedCase: when a case in the file asked for is malformed.
    """
    path, _, short = name.rpartition("::")
    if path:
        return _from_file(path, short)
    if name.endswith(".py"):
        raise UnknownCase(f"{name!r} is a file; name a case in it, too: {name}::CASE")
    by_name = {one.name: one for one in shipped()}
    if name not in by_name:
        raise UnknownCase(f"no case is called {name!r}; {nearest(name, by_name)}; `thawcheck cases` lists all")
    return by_name[name]


def _from_file(path: str, name: str) -> Case:
    from harness.cell.ranks._rank import find_case

    file = Path(path).resolve()
    if not file.is_file():
        raise UnknownCase(f"there is no file {path!r} to look for case {name!r} in")
    if str(file.parent) not in sys.path:
        # As with `python FILE`: it may import what lies beside it, here and on the ranks.
        sys.path.insert(0, str(file.parent))
    try:
        return find_case(file.stem, str(file), name)
    except MalformedCase:
        raise
    except Exception as error:
        raise UnknownCase(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
