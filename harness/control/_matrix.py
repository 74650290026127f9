"""Which folder holds the matrix: shared by every command that works on it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.cell._patterns import nearest
from harness.control._exit import Usage
from harness.control.stacks import Matrix, MatrixError, Stack, load_matrix

__all__ = ["add_folder", "add_selection", "folder_of", "matrix_here", "matrix_of", "selected"]


def add_selection(parser: Any) -> None:
    """The options by which stacks are chosen."""
    parser.add_argument("names", metavar="NAME", nargs="*", help="stacks (default: all that are not dev stacks)")
    parser.add_argument("-m", "--label", metavar="LABEL", action="append", default=[], help="those with this label")
    add_folder(parser)


def add_folder(parser: Any) -> None:
    parser.add_argument("--matrix", type=Path, metavar="DIR", help="folder of stacks.toml (default: ./matrix)")


def folder_of(args: argparse.Namespace) -> Path:
    """Raises Usage where it is no matrix."""
    folder: Path = args.matrix or _default()
    # What is there and cannot be read, e.g. a folder, is for the reader to tell.
    if not os.path.lexists(folder / "stacks.toml"):
        raise Usage(f"there is no {folder / 'stacks.toml'}; run at the root of a checkout, or give --matrix DIR")
    return folder


def matrix_of(args: argparse.Namespace) -> Matrix:
    """Raises Usage with every fault of its files."""
    try:
        return load_matrix(folder_of(args))
    except MatrixError as error:
        raise Usage(f"the matrix has faults:\n{error}") from None


def matrix_here() -> bool:
    """Whether we stand in a checkout."""
    return os.path.lexists(_default() / "stacks.toml")


def _default() -> Path:
    here = Path.cwd()
    for folder in (here, *here.parents):
        if os.path.lexists(folder / "matrix" / "stacks.toml"):
            return folder / "matrix"
    return here / "matrix"


def selected(matrix: Matrix, names: Sequence[str], labels: Sequence[str] = ()) -> list[Stack]:
    """The stacks that are named, or that have one of the labels.  Raises Usage with every unknown one."""
    known_labels = {label for stack in matrix.stacks.values() for label in stack.labels}
    faults = [f"no stack is called {one!r}; {nearest(one, matrix.stacks)}" for one in names if one not in matrix.stacks]
    faults += [
        f"no stack has the label {one!r}; {nearest(one, sorted(known_labels))}"
        for one in labels
        if one not in known_labels
    ]
    if faults:
        raise Usage("; ".join(faults))
    if not names and not labels:
        return [stack for stack in matrix.stacks.values() if not stack.dev]
    return [stack for stack in matrix.stacks.values() if stack.name in names or {*stack.labels} & {*labels}]
