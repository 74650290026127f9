"""``thawcheck explore``: combinations of settings that no case has, against the twin."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import harness.explore
from harness.control import _suite
from harness.control._exit import Exit, Usage, help_texts
from harness.explore.names import ASKED, parse
from harness.explore.space import AXES, choose

__all__ = ["add_to", "execute"]

_FOLDER: Final = Path(harness.explore.__file__).parent
_MOST: Final = 3


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "explore",
        help="run combinations of settings that no case has",
        **help_texts(
            "Choose combinations of recipe, moment, optimizer and every setting of a variant, run each against the "
            "twin, and tell which verdicts nothing explains. What follows `--` goes to pytest.",
            {Exit.OK: "every verdict that is not TRAINS is explained", Exit.DIFFERS: "one is not"},
        ),
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="which choice (default: 1)")
    parser.add_argument(
        "--strength", type=int, default=2, metavar="N", help="every pair of values (2, the default), or triple (3)"
    )
    parser.add_argument("--only", action="append", metavar="NAME", help="this combination alone; may be given again")
    parser.add_argument("--list", action="store_true", help="only say which there are")
    parser.add_argument("--results", metavar="FILE", type=Path, help="keep a JSON line per combination")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> Exit:
    if not 1 <= args.strength <= _MOST:
        raise Usage(f"--strength must be 1 to {_MOST}, found {args.strength}")
    faults = []
    for name in args.only or ():
        try:
            parse(name)
        except ValueError as error:
            faults.append(f"--only: {error}")
    if faults:
        raise Usage("\n".join(faults))
    chosen = args.only or choose(strength=args.strength, seed=args.seed)
    if args.list:
        print("\n".join(chosen))
        return Exit.OK
    with tempfile.TemporaryDirectory(prefix="thawcheck-") as folder:
        results = args.results or Path(folder) / "results.jsonl"
        status = _run(chosen, results, args.pytest_arguments)
        if not results.exists():
            print("thawcheck: no combination was run", file=sys.stderr)
            return Exit.FAILED
        _tell([json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()], len(chosen))
    return status


def _run(chosen: Sequence[str], results: Path, pytest_arguments: Sequence[str]) -> Exit:
    parser = argparse.ArgumentParser()
    _suite.add_to(parser.add_subparsers())
    expected = _FOLDER / "known"
    args = parser.parse_args(
        ["suite", str(_FOLDER / "combinations.py"), f"--expected={expected}", f"--results={results}"]
    )
    args.pytest_arguments = pytest_arguments
    os.environ[ASKED] = " ".join(chosen)
    return _suite.execute(args)


def _tell(records: Sequence[Mapping[str, Any]], asked: int) -> None:
    """How many did what, and what explains it."""
    print(f"{len(records)} of {asked} combinations of {len(AXES)} axes were run:")
    for verdict, count in Counter(one["verdict"] for one in records).most_common():
        print(f"  {count:4} {verdict}")
    unexplained = [one for one in records if not one.get("as_expected")]
    print(f"unexplained: {len(unexplained)}")
    for one in unexplained:
        print(f"  {one['id']}: {one['verdict']}: {one['headline']}")
