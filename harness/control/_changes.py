"""``thawcheck changes``: verdicts that are not what they were."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.cell.outcome._expect import ExpectationError, Expectations
from harness.cell.outcome._observed import Observed, ObservedError, load_all
from harness.control._exit import Exit, Usage, help_texts
from harness.control._matrix import add_folder, matrix_of
from harness.control.changes import IssuesFailed, Item, Tracker, as_body, as_text, compare, title_of
from harness.control.changes._show import command

__all__ = ["add_to", "execute"]


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "changes",
        help="say which verdicts changed, and which package moved",
        **help_texts(
            "Compare observed stacks with those of matrix/observed/, and those that are new there with the nearest. "
            "Says for each case and package that moved what changed, whether that is expected, and how to see it.",
            {Exit.OK: "nothing changed", Exit.DIFFERS: "something changed"},
        ),
    )
    parser.add_argument("new", metavar="DIR", type=Path, help="folder of observed stacks, e.g. by `thawcheck merge`")
    parser.add_argument("--against", metavar="DIR", type=Path, help="the older ones (default: matrix/observed)")
    parser.add_argument("--expected", metavar="DIR", type=Path, help="folder of expectations (default: in the matrix)")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--issues", action="store_true", help="open or update an issue for each, through `gh`")
    add_folder(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> Exit:
    matrix = matrix_of(args)
    against: Path = args.against or matrix.folder / "observed"
    expected: Path = args.expected or matrix.folder / "expected"
    missing = [folder for folder in (args.new, args.against, args.expected) if folder and not folder.is_dir()]
    if missing:
        raise Usage("; ".join(f"there is no folder {folder}" for folder in missing))
    faults: list[str] = []
    new: dict[str, Observed] = {}
    old: dict[str, Observed] = {}
    for folder, into in ((args.new, new), (against, old)):
        try:
            into.update(load_all(folder))
        except ObservedError as error:
            faults += error.faults
    if faults:
        raise Usage("nothing is compared:\n" + "\n".join(faults))
    if not new:
        raise Usage(f"there is no observed stack in {args.new}")
    try:
        items = compare(new, old, matrix.stacks, Expectations.load(expected))
    except ExpectationError as error:
        raise Usage(str(error)) from None
    if args.json:
        print(json.dumps([_plain(item) for item in items], indent=2))
    else:
        print("\n".join(map(as_text, items)) or f"{len(new)} stacks, nothing changed")
    if args.issues and items and not _put(items):
        return Exit.FAILED
    return Exit.DIFFERS if items else Exit.OK


def _put(items: Sequence[Item]) -> bool:
    """Whether each item has its issue."""
    try:
        tracker = Tracker()
    except IssuesFailed as error:
        raise Usage(str(error)) from None
    failed = 0
    for item in items:
        try:
            print(tracker.put(title_of(item), as_body(item)), file=sys.stderr)
        except IssuesFailed as error:
            print(f"thawcheck: {title_of(item)!r}: {error}", file=sys.stderr)
            failed += 1
    return not failed


def _plain(item: Item) -> dict[str, Any]:
    plain = dataclasses.asdict(item)
    for change, told in zip(item.changes, plain["changes"], strict=True):
        told["reproduce"] = command(item, change)
    return {"title": title_of(item), **plain}
