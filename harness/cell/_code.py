"""The code of a case: to be shown, and to tell whether what was measured was measured by it."""

from __future__ import annotations

import ast
import hashlib
import inspect
import io
import re
import sys
import textwrap
import tokenize
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.cell._case import Case

__all__ = ["code_of", "digest_of"]


def code_of(case: Case) -> str:
    """Its function, and what that calls in its own file, without docstrings."""
    return "\n\n\n".join(map(_without_docstring, _functions(case)))


def digest_of(case: Case) -> str:
    """Changes with what the case does: its code, comments and layout apart, and the constants of its file.

    It does not follow what is imported: recipes, models and drivers have tests of their own.
    """
    told = [_bare(code_of(case)), *_constants(case), str(case.world)]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:8]


def _functions(case: Case) -> list[FunctionType]:
    """The case's function first, then its helpers as they are met."""
    module = vars(sys.modules[case.module])
    found: dict[str, FunctionType] = {}
    waiting: list[Any] = [case.function]
    while waiting:
        function = waiting.pop(0)
        if not isinstance(function, FunctionType) or function.__module__ != case.module:
            continue
        if function.__name__ not in found:
            found[function.__name__] = function
            waiting += [module.get(name) for name in _names(function)]
    return [*found.values()]


def _names(function: FunctionType) -> Iterator[str]:
    """Global names that it uses, those in lambdas and inner functions with them."""
    waiting = [function.__code__]
    while waiting:
        code = waiting.pop()
        yield from code.co_names
        waiting += [one for one in code.co_consts if isinstance(one, type(code))]


def _constants(case: Case) -> Iterator[str]:
    """Names and values of what the file says once for several cases."""
    module = vars(sys.modules[case.module])
    for name in sorted({name for function in _functions(case) for name in _names(function)}):
        value = module.get(name)
        if name in module and not callable(value) and not isinstance(value, ModuleType):
            # Where something lies in memory is no part of what it is.
            yield f"{name} = {re.sub(r' at 0x[0-9a-f]+', '', repr(value))}"


def _without_docstring(function: FunctionType) -> str:
    """From its ``def`` on."""
    lines = inspect.getsource(function).splitlines()
    (tree,) = ast.parse(textwrap.dedent("\n".join(lines))).body
    assert isinstance(tree, ast.FunctionDef)
    first = tree.body[0]
    told = ast.get_docstring(tree) is not None and len(tree.body) > 1
    docstring = range(first.lineno, (first.end_lineno or first.lineno) + 1) if told else range(0)
    kept = (line for number, line in enumerate(lines, 1) if number >= tree.lineno and number not in docstring)
    return "\n".join(kept).rstrip()


def _bare(code: str) -> str:
    """Without comments and layout: the same in every release of Python."""
    lines = code.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    # Space matters between words alone, and a comma before a bracket is where a line was broken.
    text = re.sub(r"\s*([^\w\s])\s*", r"\1", " ".join(" ".join(lines).split()))
    return re.sub(r",([)\]}])", r"\1", text)
