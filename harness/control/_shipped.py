"""Shipped cases by name, as commands are given them."""

from __future__ import annotations

from collections.abc import Sequence

from harness.cell._case import Case
from harness.cell._catalog import shipped
from harness.cell._patterns import nearest
from harness.control._exit import Usage

__all__ = ["select_cases"]


def select_cases(names: Sequence[str] | None) -> list[Case]:
    """Those that ``--case`` named, all if it was not given.  Raises Usage with every unknown one."""
    known = {case.name: case for case in shipped()}
    if unknown := [name for name in names or () if name not in known]:
        raise Usage("\n".join(f"--case: no case is called {name!r}; {nearest(name, known)}" for name in unknown))
    return [case for name, case in known.items() if not names or name in names]
