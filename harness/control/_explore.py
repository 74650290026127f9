"""``thawcheck explore``: combinations of settings that no case has, against the twin."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from harness.cell._case import MalformedCase
from harness.cell.outcome._record import CaseRecord
from harness.cell.outcome._results import ResultsError, ResultsFile
from harness.cell.outcome._verdict import Verdict
from harness.cell.plug._session import Session, Settings
from harness.cell.ranks._launch import LauncherFailed
from harness.control._exit import Exit, Usage, help_texts
from harness.explore.combinations import cases_of
from harness.explore.explained import explain
from harness.explore.names import parse
from harness.explore.space import AXES, choose

__all__ = ["add_to", "execute"]

_MOST: Final = 3
#: How many may be started before the one whose answer is awaited.
_WINDOW: Final = 16


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "explore",
        help="run combinations of settings that no case has",
        **help_texts(
            "Choose combinations of recipe, moment, optimizer and every setting of a variant, run each against the "
            "twin, and tell which faults no case explains. What explains them was measured on the stack `latest`.",
            {Exit.OK: "every fault is explained", Exit.DIFFERS: "one is not"},
        ),
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="which choice (default: 1)")
    parser.add_argument(
        "--strength", type=int, default=2, metavar="N", help="every pair of values (2, the default), or triple (3)"
    )
    parser.add_argument("--only", action="append", metavar="NAME", help="this combination alone; may be given again")
    parser.add_argument("--list", action="store_true", help="only say which there are")
    parser.add_argument("--results", metavar="FILE", type=Path, help="write a JSON line per combination, as they come")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> Exit:
    if not 1 <= args.strength <= _MOST:
        raise Usage(f"--strength must be 1 to {_MOST}, found {args.strength}")
    faults = [*_faults(args.only or ())]
    if faults:
        raise Usage("\n".join(faults))
    chosen = args.only or choose(strength=args.strength, seed=args.seed)
    if args.list:
        print("\n".join(chosen))
        return Exit.OK
    records = []
    try:
        with contextlib.ExitStack() as stack:
            results = stack.enter_context(contextlib.closing(ResultsFile(args.results))) if args.results else None
            for record in _run(chosen):
                records.append(record)
                if results is not None:
                    results.write(record.as_dict())
                print(f"[{len(records)}/{len(chosen)}] {record.id}: {record.verdict}{_why(record)}", flush=True)
    except ResultsError as error:
        raise Usage(str(error)) from None
    except (LauncherFailed, MalformedCase) as error:
        print(f"thawcheck: {error}", file=sys.stderr)
        return Exit.FAILED
    return _conclude(records)


def _faults(names: Sequence[str]) -> Iterator[str]:
    for name in names:
        try:
            parse(name)
        except ValueError as error:
            yield f"--only: {error}"


def _run(chosen: Sequence[str]) -> Iterator[CaseRecord]:
    """Each as it is done, in their order."""
    todo = [*cases_of(chosen)]
    session = Session(Settings(expected=None))
    try:
        for number, (case, options) in enumerate(todo):
            outcome, _ = session.run(case, options, todo[number + 1 : number + _WINDOW])
            if outcome.malformed:
                raise MalformedCase(f"combination {case.name}", outcome.malformed)
            yield outcome.record
    finally:
        session.close()


def _why(record: CaseRecord) -> str:
    by, unexplained = explain(record)
    if unexplained:
        return f" (not explained: {', '.join(map(str, unexplained))})"
    return f" ({', '.join(dict.fromkeys(by))})" if by else ""


def _conclude(records: Sequence[CaseRecord]) -> Exit:
    """How many did what, what explains it, and what nothing does."""
    print(f"\n{len(records)} combinations of {len(AXES)} axes:")
    for verdict, count in Counter(one.verdict for one in records).most_common():
        print(f"  {count:4} {verdict}")
    explained: Counter[str] = Counter()
    open_ = []
    for record in records:
        by, unexplained = explain(record)
        explained.update(dict.fromkeys(by, 1))
        if unexplained:
            open_.append((record, unexplained))
    if explained:
        print("faults of them that a case explains:")
        for case, count in explained.most_common():
            print(f"  {count:4} {case}")
    for record, unexplained in open_:
        print(f"not explained: {record.id}: {', '.join(map(str, unexplained))}: {record.headline}")
    if any(record.verdict is Verdict.NOT_RUN for record in records):
        return Exit.FAILED
    return Exit.DIFFERS if open_ else Exit.OK
