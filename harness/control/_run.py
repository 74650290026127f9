"""``thawcheck run CASE``: one case, every parameter."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

from harness.cell._axes import add_axes, asked_axes
from harness.cell._case import Case, MalformedCase
from harness.cell._catalog import UnknownCase, find
from harness.cell._options import Options
from harness.cell.outcome._expect import ExpectationError, default_folder
from harness.cell.outcome._nearby import default_observed
from harness.cell.outcome._results import as_line
from harness.cell.outcome._show import record_text
from harness.cell.outcome._verdict import Verdict
from harness.cell.plug._session import Session, Settings
from harness.cell.ranks._device import DEVICES
from harness.cell.ranks._launch import LauncherFailed
from harness.control._exit import Exit, Usage, help_texts

__all__ = ["add_to"]


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "run",
        help="run one case and show every parameter's verdict",
        **help_texts(
            "Run a case on real ranks. Of its variants, the first that has all settings asked for is run; "
            "without --stage, the first at its highest stage."
        ),
    )
    parser.add_argument("case", metavar="CASE", help="a name from `thawcheck cases`, or path/to/file.py::name")
    add_axes(parser)
    parser.add_argument("--all-variants", action="store_true", help="run every variant that has these settings")
    parser.add_argument("--world", type=int, metavar="N", help="number of ranks (default: what the case says)")
    parser.add_argument("--device", choices=sorted(DEVICES), default="cpu", help="default: cpu")
    parser.add_argument("--deadline", type=float, metavar="SECONDS", help="seconds without progress that make a HANG")
    parser.add_argument(
        "--expected", type=Path, metavar="DIR", help="folder of expected verdicts (default: the shipped)"
    )
    parser.add_argument(
        "--observed", type=Path, metavar="DIR", help="folder of observed stacks (default: ./matrix/observed)"
    )
    parser.add_argument("--show-logs", action="store_true", help="print what every rank printed")
    parser.add_argument("--json", action="store_true", help="print the record as one JSON line per variant")
    parser.set_defaults(execute=_execute)


def _execute(args: argparse.Namespace) -> Exit:
    given = {name: getattr(args, name) for name in ("world", "deadline") if getattr(args, name) is not None}
    faults = [f"--{name} must be positive, found {one:g}" for name, one in given.items() if not 0 < one < math.inf]
    if args.expected is not None and not args.expected.is_dir():
        faults.append(f"--expected: there is no folder {args.expected}")
    if faults:
        raise Usage("; ".join(faults))
    expected = args.expected or default_folder()
    settings = Settings(
        device=args.device,
        expected=expected,
        observed=args.observed or default_observed(),
        deadline=args.deadline,
        world=args.world,
    )
    session = Session(settings)
    worst = Exit.OK
    try:
        case = find(args.case)
        variants = _chosen(case, args)
        session.check((case, options) for options in variants)
        for options in variants:
            worst = max(worst, _one(session, case, options, args))
    except (UnknownCase, MalformedCase, ExpectationError) as error:
        raise Usage(str(error)) from None
    except LauncherFailed as error:
        print(f"thawcheck: {error}", file=sys.stderr)
        return Exit.FAILED
    finally:
        session.close()
    return worst


def _chosen(case: Case, args: argparse.Namespace) -> list[Options]:
    asked = asked_axes(args)
    if not args.all_variants:
        return [case.choose(**asked)]
    case.variant(**asked)  # or it says what there is
    return [one for one in case.variants if all(getattr(one, axis) == asked[axis] for axis in asked)]


def _one(session: Session, case: Case, options: Options, args: argparse.Namespace) -> Exit:
    outcome, differences = session.run(case, options)
    for warning in session.take_warnings():
        print(f"thawcheck: {warning}", file=sys.stderr)
    if outcome.malformed:
        raise Usage(f"case {case.name} is malformed: {outcome.malformed}")
    if args.json:
        print(as_line(outcome.record.as_dict()))
    else:
        advice = session.advice(case, options) if differences else ()
        print(record_text(outcome.record, differences, outcome.logs if args.show_logs else (), advice))
        if case.instead and outcome.record.verdict not in (Verdict.TRAINS, Verdict.NOT_RUN):
            cure = f" See: thawcheck run {case.cure}" if case.cure else ""
            print(f"instead: {case.instead}{cure}")
    return Exit.DIFFERS if differences else Exit.OK
