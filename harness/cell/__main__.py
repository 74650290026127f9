"""One rank of several that something else started: ``torchrun ... -m harness.cell CASE``."""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from harness.cell._axes import add_axes, asked_axes
from harness.cell._case import Case, MalformedCase
from harness.cell._catalog import UnknownCase, find
from harness.cell._options import Options
from harness.cell._patterns import nearest
from harness.cell.external._launcher import ExternalLauncher
from harness.cell.external._meeting import Refused
from harness.cell.external._place import NoPlace, Place
from harness.cell.outcome._expect import ExpectationError, Expectations, default_folder, differences
from harness.cell.outcome._results import ResultsError, ResultsFile
from harness.cell.outcome._show import record_text
from harness.cell.ranks._device import DEVICES
from harness.cell.ranks._launch import LauncherFailed, Outcome, Request, run_on

_OK, _DIFFERS, _USAGE, _FAILED, _INTERRUPTED = 0, 1, 2, 3, 130

_STATUS = """\
exit status of every rank:
  0   the verdict is the expected one: TRAINS, where --expected has no entry for the case
  1   another verdict
  2   bad usage or input
  3   the ranks did not meet, or lost each other
  130 interrupted before they met

torchrun ends with 1 whatever the status of its ranks is, 0 apart."""

#: torchrun ends all ranks once one has ended: the others let the one that talks be the first.
_AFTER_YOU = 3.0


class _Usage(Exception):
    """Bad usage or input; the message is all that is shown."""


class _Parser(argparse.ArgumentParser):
    """Leaves it to the caller who of all ranks tells of a bad command line."""

    def error(self, message: str) -> NoReturn:
        raise _Usage(f"{message}; --help explains")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m harness.cell",
        description="Run one case on ranks that torchrun, SLURM's srun or the deepspeed launcher started, on one "
        "machine or several; no folder need be shared.  Of the case's variants, the first that has all settings "
        "asked for is run.",
        epilog=_STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("case", metavar="CASE", help="a name from `thawcheck cases`, or path/to/file.py::name")
    parser.add_argument("--variant", metavar="ID", help="the variant of this id, instead of single settings")
    add_axes(parser)
    parser.add_argument("--device", choices=sorted(DEVICES), default="cpu", help="default: cpu")
    parser.add_argument("--deadline", type=float, metavar="S", help="seconds without progress that make a HANG")
    parser.add_argument("--expected", type=Path, metavar="DIR", help="folder of TOML files with expected verdicts")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the record to FILE, as one JSON line")
    parser.add_argument("--show-logs", action="store_true", help="print what every rank printed")
    # The deepspeed launcher adds it to every command; LOCAL_RANK says the same.
    parser.add_argument("--local_rank", "--local-rank", type=int, help=argparse.SUPPRESS)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """This rank's whole life; the exit status."""
    place = None
    try:
        args = _parser().parse_args(argv)
        place = Place.find(os.environ)
        # Before the file of a case can import anything.
        DEVICES[args.device].environ(os.environ)
        request, expectations = _request(place, args), _expectations(args.expected)
    except (_Usage, NoPlace, UnknownCase, MalformedCase, ExpectationError) as error:
        if place is None or place.first_here:
            _complain(place, str(error))
        else:
            time.sleep(_AFTER_YOU)
        return _USAGE
    launcher = ExternalLauncher(place, args.device)
    try:
        return _run(launcher, place, request, expectations, args)
    except LauncherFailed as error:
        _complain(place, str(error))
        return _FAILED
    except (Refused, ResultsError, ExpectationError, MalformedCase) as error:
        if launcher.speaks:
            _complain(None, str(error))
        return _USAGE
    finally:
        launcher.close()


def _complain(place: Place | None, text: str) -> None:
    rank = f" rank {place.rank}:" if place and place.rank else ""
    print(f"thawcheck:{rank} {text}", file=sys.stderr, flush=True)


def _run(
    launcher: ExternalLauncher, place: Place, request: Request, expectations: Expectations, args: argparse.Namespace
) -> int:
    fault, results = "", None
    try:
        # Opened first: a run whose result cannot be kept need not begin.
        results = ResultsFile(args.json) if args.json and place.rank == 0 else None
    except ResultsError as error:
        fault = str(error)
    try:
        launcher.start(fault)
        outcome = run_on(launcher, request)
        if outcome.malformed:
            raise MalformedCase(f"case {request.case.name}", outcome.malformed)
        found = _compared(outcome, expectations)
        if launcher.speaks:
            _show(outcome, found, launcher, args)
            if args.json:
                results = results or ResultsFile(args.json)  # rank 0 may be gone
                results.write(outcome.record.as_dict())
    finally:
        if results is not None:
            results.close()
    return _DIFFERS if found else _OK


def _request(place: Place, args: argparse.Namespace) -> Request:
    if args.deadline is not None and not 0 < args.deadline < math.inf:
        raise _Usage(f"--deadline must be positive, found {args.deadline:g}")
    case = find(args.case)
    return Request(case, _chosen(case, args), place.world, args.device, args.deadline)


def _chosen(case: Case, args: argparse.Namespace) -> Options:
    """:raises MalformedCase: when the case has no such variant."""
    asked = asked_axes(args)
    if args.variant is None:
        return case.choose(**asked)
    if asked:
        raise _Usage(f"--variant names all settings; --{next(iter(asked))} cannot be given as well")
    by_id = {one.id: one for one in case.variants}
    if args.variant not in by_id:
        raise _Usage(f"case {case.name} has no variant {args.variant!r}; {nearest(args.variant, by_id)}")
    return by_id[args.variant]


def _expectations(folder: Path | None) -> Expectations:
    if folder is not None and not folder.is_dir():
        raise _Usage(f"--expected: there is no folder {folder}")
    folder = folder or default_folder()
    return Expectations.load(folder) if folder else Expectations()


def _compared(outcome: Outcome, expectations: Expectations) -> list[str]:
    """In words, how the record differs from what is expected; the record then says so, too."""
    expected = expectations.of(outcome.record)
    found = differences(outcome.record, expected)
    outcome.record.expected = expected.as_dict()
    outcome.record.as_expected = not found
    return found


def _show(outcome: Outcome, found: list[str], launcher: ExternalLauncher, args: argparse.Namespace) -> None:
    for warning in launcher.warnings:
        print(f"thawcheck: {warning}", file=sys.stderr)
    print(record_text(outcome.record, found, outcome.logs if args.show_logs else ()), flush=True)


if __name__ == "__main__":
    try:
        status = main()
    except KeyboardInterrupt:  # later it is noted, and reported as a verdict
        status = _INTERRUPTED
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # interpreter shutdown with torch loaded aborts now and then
