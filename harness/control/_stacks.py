"""``thawcheck stacks``: which stacks there are, and why each is what it is."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from typing import Any

from harness.control._exit import Exit, Usage, help_texts
from harness.control._matrix import add_selection, matrix_of, selected
from harness.control.locks import Lock, LockState, state_of
from harness.control.stacks import Matrix, Stack
from harness.control.stacks._stack import TOOLS, normalize
from harness.control.sweep import Shard, is_measured, ordered

__all__ = ["add_to", "execute"]


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "stacks",
        help="list the stacks, or say why one is what it is",
        **help_texts(
            "List the stacks of matrix/stacks.toml, dev stacks too, unless names, labels or a shard choose some.",
            {Exit.OK: "they are listed", Exit.DIFFERS: ""},
        ),
    )
    add_selection(parser)
    parser.add_argument("--shard", metavar="I/N", help="what `thawcheck sweep --shard I/N` takes, in its order")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="as JSON, e.g. for the matrix of a CI job")
    how.add_argument("--explain", metavar="STACK", help="why each of its versions is what it is")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> Exit:
    if args.explain is not None and (args.names or args.label or args.shard):
        raise Usage(f"--explain tells of one stack, {args.explain}; leave out names, --label and --shard")
    matrix = matrix_of(args)
    if args.explain is not None:
        (stack,) = selected(matrix, [args.explain])
        print("\n".join(_explained(matrix, stack)))
        return Exit.OK
    stacks = _chosen(matrix, args)
    if args.json:
        print(json.dumps([_plain(matrix, stack) for stack in stacks], indent=2))
    else:
        rows = [(stack.name, ", ".join(stack.labels), stack.python[0], stack.description) for stack in stacks]
        print("".join(f"{line}\n" for line in _columns(rows)), end="")
    return Exit.OK


def _chosen(matrix: Matrix, args: argparse.Namespace) -> list[Stack]:
    if args.shard is None:
        everything = not args.names and not args.label
        return list(matrix.stacks.values()) if everything else selected(matrix, args.names, args.label)
    try:
        shard = Shard.of(args.shard)
    except ValueError as error:
        raise Usage(f"--shard: {error}") from None
    stacks = selected(matrix, args.names, args.label)
    if dev := [stack.name for stack in stacks if stack.dev]:
        raise Usage(f"{', '.join(dev)}: a dev stack is measured by no sweep, so it is in no shard")
    return shard.take(ordered(matrix, stacks))


def _plain(matrix: Matrix, stack: Stack) -> dict[str, Any]:
    plain = stack.as_dict()
    if stack.dev:
        return plain | {"lock": None, "unsolvable": None, "torch": None, "observed": False}
    lock, state = state_of(stack, matrix.lock(stack.name))
    return plain | {
        "lock": state.name.lower(),
        "unsolvable": (lock and lock.unsolvable) or None,
        "torch": lock and lock.versions.get("torch"),
        "observed": is_measured(matrix, stack),
    }


# -- why -------------------------------------------------------------------------------------


def _explained(matrix: Matrix, stack: Stack) -> list[str]:
    lines = [
        f"{stack.name}: {stack.description}",
        f"labels: {', '.join(stack.labels) or 'none'}",
        f"run: tox run -e {stack.name}",
    ]
    if stack.dev:
        also = ", pre-releases too" if stack.prereleases else ""
        lines += [f"lock: none; a dev stack takes what is newest on the day{also}", ""]
        rows = [("python", stack.python[0], _of_python(stack))]
        rows += [(one, "", "the suite needs it" if one in TOOLS else "required") for one in stack.requires]
        return lines + _columns(rows)
    path = matrix.lock(stack.name)
    lock, state = state_of(stack, path)
    lines.append(f"lock: {path}: {state.value}" + (f" (by {lock.solver})" if lock else ""))
    if state is not LockState.FRESH:
        lines.append(f"solve it: thawcheck lock {stack.name}")
    if lock and lock.unsolvable:
        lines.append(f"it has no solution: {lock.unsolvable}")
    lines += ["", *_columns(_rows(stack, lock))]
    left = [one for one in matrix.excluded if stack.sweep and one.sweep == stack.sweep]
    if left:
        lines += ["", f"left out of [sweep.{stack.sweep}]:", *_columns([(one.name, one.reason) for one in left])]
    return lines


def _rows(stack: Stack, lock: Lock | None) -> list[tuple[str, str, str]]:
    """Package, version and reason: what the stack says first, then what follows from it."""
    versions = {**stack.pins, **(lock.versions if lock else {})}
    rows = [("python", stack.python[0], _of_python(stack))]
    if "as_of" in stack.why:
        rows.append(("as of", str(stack.as_of), stack.why["as_of"]))
    asked = [package for package in map(_name_of, stack.requires) if package in stack.why]
    said = [*asked, *sorted({*stack.why} - {*asked, "python", "as_of"})]
    rows += [(package, versions.get(package, "-"), stack.why[package]) for package in said]
    solved = f"chosen by the solver, {f'as of {stack.as_of}' if stack.as_of else 'the newest'}"
    rows += [(tool, versions.get(tool, "-"), f"the suite needs it; {solved}") for tool in TOOLS]
    rest = sorted({*versions} - {*said, *TOOLS})
    return rows + [(package, versions[package], solved) for package in rest]


def _of_python(stack: Stack) -> str:
    others = f"; where it is missing: {', '.join(stack.python[1:])}" if stack.python[1:] else ""
    return f"{stack.why.get('python', 'the first that the stack names')}{others}"


def _name_of(requirement: str) -> str:
    return normalize(re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0])


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """All but the last as wide as their widest cell."""
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    return ["  ".join([*map(str.ljust, row, widths), row[-1]]) for row in rows]
