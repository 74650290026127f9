"""The code of a case as a page shows it: the function, and what it calls in its own file, without docstrings."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator
from types import FunctionType

from harness.cell._case import Case

__all__ = ["code_of"]


def code_of(case: Case) -> str:
    """Python, the case first."""
    module = vars(sys.modules[case.module])
    shown: dict[str, FunctionType] = {}
    waiting = [case.function]
    while waiting:
        function = waiting.pop(0)
        assert isinstance(function, FunctionType)  # the decorator takes no other callable
        if function.__name__ in shown:
            continue
        shown[function.__name__] = function
        called = [module.get(name) for name in function.__code__.co_names]
        waiting += [one for one in called if isinstance(one, FunctionType) and one.__module__ == case.module]
    return "\n\n\n".join(_without_docstring(one) for one in shown.values())


def _without_docstring(function: FunctionType) -> str:
    """From its ``def`` on."""
    lines = inspect.getsource(function).splitlines()
    (tree,) = ast.parse(textwrap.dedent("\n".join(lines))).body
    assert isinstance(tree, ast.FunctionDef)
    return "\n".join(_kept(lines, tree)).rstrip()


def _kept(lines: list[str], tree: ast.FunctionDef) -> Iterator[str]:
    first = tree.body[0]
    told = ast.get_docstring(tree) is not None and len(tree.body) > 1
    for number, line in enumerate(lines, 1):
        if number < tree.lineno or (told and first.lineno <= number <= (first.end_lineno or first.lineno)):
            continue
        yield line
