"""``thawcheck bisect``: the release, or the commit, from which a case does something else."""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness import __version__
from harness.cell._axes import add_axes, asked_axes
from harness.cell._case import Case, MalformedCase
from harness.cell._options import Options
from harness.cell._patterns import nearest
from harness.cell.outcome._observed import Observed, ObservedError
from harness.cell.outcome._verdict import Verdict
from harness.control._exit import Exit, Usage, help_texts
from harness.control._fresh import load_fresh
from harness.control._matrix import add_folder, matrix_of
from harness.control._shipped import select_cases
from harness.control.bisect._find import Finder, Found
from harness.control.bisect._grid import Grid, grid_of
from harness.control.bisect._known import known
from harness.control.bisect._line import REPOSITORIES, Line, LineError, Place, commits, releases
from harness.control.bisect._prober import Prober
from harness.control.bisect._search import EndsAgree, NothingUsable, looks_needed
from harness.control.bisect._stacks import companions_on, moved
from harness.control.bisect._told import Bisection
from harness.control.boundaries import Did
from harness.control.locks import SolverFailed
from harness.control.stacks import Matrix, Stack
from harness.control.sweep import NotMeasured, alone

__all__ = ["add_to", "execute"]


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "bisect",
        help="find the release from which a case does something else",
        **help_texts(
            "Walk the releases of one package, everything else of a stack held, and find where a case begins to do "
            "something else. What matrix/observed has is used; both sides of what is found are run. Interrupted, the "
            "same command goes on where it was.",
            {
                Exit.OK: "a boundary was found, and both its sides were run",
                Exit.DIFFERS: "there is no boundary to name: both ends do the same, or runs differ",
                Exit.FAILED: "no two places could be run",
            },
        ),
    )
    parser.add_argument("case", metavar="CASE", help="a name from `thawcheck cases`")
    add_axes(parser)
    parser.add_argument(
        "--package", required=True, metavar="NAME", help=f"what moves: {', '.join(REPOSITORIES)}, or another"
    )
    ends = "release, or with --clone commit, that {} (default: the {} that was observed)"
    parser.add_argument("--good", metavar="AT", help=ends.format("is good", "oldest"))
    parser.add_argument("--bad", metavar="AT", help=ends.format("is bad", "newest") + "; either may be the older one")
    parser.add_argument("--verdict", metavar="VERDICT", help="only where this verdict begins or ends")
    parser.add_argument("--stack", metavar="NAME", default="latest", help="what is held (default: latest)")
    parser.add_argument(
        "--of-its-day",
        action="append",
        default=[],
        metavar="NAME",
        help="another package that is to be the newest of the day; may be given again",
    )
    parser.add_argument("--clone", type=Path, metavar="DIR", help="walk the commits of this clone, not releases")
    parser.add_argument("--times", type=int, default=2, metavar="N", help="runs at each place (default: 2)")
    parser.add_argument("--every", action="store_true", help="look at every place: also what begins and ends again")
    parser.add_argument("--no-observed", action="store_true", help="trust nothing that was observed before")
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    add_folder(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> Exit:
    case, options = _asked(args)
    matrix = matrix_of(args)
    base = _base(matrix, args.stack)
    observed = _observed(matrix)
    line = _line(args, matrix, base, case, options, observed)
    folder = matrix.folder.resolve().parent / ".tox" / "bisect" / _key(args, base, line, case)
    try:
        with alone(folder.with_suffix(".lock"), f"bisect {case.name}"):
            prober = Prober(matrix, base, line, case, of_its_day=args.of_its_day, folder=folder, say=_say(args))
            try:
                return _run(args, matrix, observed, prober, case, options)
            finally:
                prober.close()
    except OSError as error:
        raise Usage(f"{error.filename or folder}: {error.strerror}; what was seen before that is kept") from None
    except (NotMeasured, SolverFailed) as error:
        print(f"thawcheck: {error}", file=sys.stderr)
        return Exit.FAILED


def _run(
    args: argparse.Namespace,
    matrix: Matrix,
    observed: Mapping[str, Observed],
    prober: Prober,
    case: Case,
    options: Options,
) -> Exit:
    say, line = _say(args), prober.line
    count = len(line.places)
    stacks = [prober.stack(number) for number in range(count)]
    # Commits of a clone all ask for what their stack asks for.
    there = {} if args.no_observed or line.clone else known(matrix, observed, stacks, case, options)
    # Both sides of what is found are run in any case.
    left = max(looks_needed(count - len(there)), 2)
    say(
        f"{case.name}[{options.id}] along {count} {'commits' if line.clone else 'releases'} of {line.package} on "
        f"{args.stack}; {len(there)} were observed before, about {left} to run"
    )
    finder = Finder(options.id, prober.look, there, times=args.times, say=_each(say, line))
    try:
        found = finder.find(count, every=args.every)
    except EndsAgree as agree:
        return _no_boundary(args, line, agree, finder.found, there)
    except NothingUsable:
        for number, why in sorted(finder.found.unusable.items()):
            print(f"skipped {line.package} {line.places[number].short}: {why}", file=sys.stderr)
        print("thawcheck: no two of these places could be run", file=sys.stderr)
        return Exit.FAILED
    if args.verdict:
        verdict = Verdict(args.verdict)
        found.boundaries = [one for one in found.boundaries if verdict in (one.before.verdict, one.after.verdict)]
    grids = tuple(
        _grid(observed, case, options, line, line.places[one.last], line.places[one.first]) for one in found.boundaries
    )
    told = Bisection(case, options, args.stack, line, found, grids, _command(args, line), prober.made)
    print(json.dumps(told.as_dict(), indent=1) if args.json else "\n".join(told.text()))
    return Exit.DIFFERS if found.flips or not found.boundaries else Exit.OK


def _no_boundary(
    args: argparse.Namespace, line: Line, agree: EndsAgree, found: Found, there: Mapping[int, Did | None]
) -> Exit:
    one, other = (line.places[number].short for number in (agree.first, agree.last))
    hints = [line.places[number].short for number, did in sorted(there.items()) if did not in (None, agree.did)]
    more = f"; observed to do otherwise: {', '.join(hints)}, take one of them as an end" if hints else ""
    if found.flips:
        more += "; and it does not do the same each time"
    print(
        f"{line.package} {one} and {other} do the same, {agree.did}{more}. --every looks between them.",
        file=sys.stderr if args.json else sys.stdout,
    )
    return Exit.DIFFERS


def _grid(
    observed: Mapping[str, Observed], case: Case, options: Options, line: Line, last: Place, first: Place
) -> Grid | None:
    return None if line.clone else grid_of(observed, case, options, line.package, last.at, first.at)


def _asked(args: argparse.Namespace) -> tuple[Case, Options]:
    """Raises Usage with every fault that shows without a matrix."""
    faults = []
    if args.times < 1:
        faults.append(f"--times must be 1 or more, found {args.times}")
    if args.verdict and args.verdict not in [*Verdict]:
        faults.append(f"--verdict: {args.verdict!r} is no verdict; {nearest(args.verdict, [*map(str, Verdict)])}")
    if args.clone and not (args.good and args.bad):
        faults.append("--clone: give --good and --bad, commits or names of them")
    if faults:
        raise Usage("\n".join(faults))
    (case,) = select_cases([args.case])
    try:
        return case, case.choose(**asked_axes(args))
    except MalformedCase as error:
        raise Usage(str(error)) from None


def _base(matrix: Matrix, name: str) -> Stack:
    base = matrix.stacks.get(name)
    if base is None:
        raise Usage(f"--stack: no stack is called {name!r}; {nearest(name, matrix.stacks)}")
    if base.dev:
        raise Usage(f"--stack: {name} is a dev stack, of which nothing is held")
    return base


def _observed(matrix: Matrix) -> Mapping[str, Observed]:
    try:
        return load_fresh(matrix.folder / "observed")
    except ObservedError as error:
        raise Usage(str(error)) from None


def _line(
    args: argparse.Namespace,
    matrix: Matrix,
    base: Stack,
    case: Case,
    options: Options,
    observed: Mapping[str, Observed],
) -> Line:
    """Raises Usage."""
    try:
        if args.clone:
            return commits(args.clone, args.package, args.good, args.bad)
        good, bad = args.good, args.bad
        if not (good and bad):
            known_releases = [*matrix.releases.get(args.package, {})]
            if len(known_releases) < 2:
                return releases(matrix, args.package, "", "")
            whole = releases(matrix, args.package, known_releases[0], known_releases[-1])
            ends = _observed_ends(args, matrix, base, whole, case, options, observed)
            good, bad = good or ends[0], bad or ends[1]
        return releases(matrix, args.package, good, bad)
    except LineError as error:
        raise Usage(str(error)) from None


def _observed_ends(
    args: argparse.Namespace,
    matrix: Matrix,
    base: Stack,
    whole: Line,
    case: Case,
    options: Options,
    observed: Mapping[str, Observed],
) -> tuple[str, str]:
    """The oldest and the newest release on which the variant was seen to do something.  Raises LineError."""
    stacks = [
        moved(base, whole, place, companions_on(matrix, args.of_its_day, place), f"at-{place.short}")
        for place in whole.places
    ]
    there = [number for number, did in sorted(known(matrix, observed, stacks, case, options).items()) if did]
    if len(there) < 2:
        raise LineError(
            f"{case.name}[{options.id}] was observed on {len(there)} releases of {whole.package} beside {base.name}: "
            "give --good and --bad"
        )
    return whole.places[there[0]].at, whole.places[there[-1]].at


def _key(args: argparse.Namespace, base: Stack, line: Line, case: Case) -> str:
    """Of all that decides what is seen at a place: who asks the same goes on where another was."""
    asked = [__version__, case.name, base.question, line.package, str(line.clone), sorted(args.of_its_day)]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:12]


def _command(args: argparse.Namespace, line: Line) -> str:
    words = ["thawcheck", "bisect", args.case, "--package", args.package]
    words += ["--good", line.places[0].at, "--bad", line.places[-1].at, "--stack", args.stack]
    for axis, value in asked_axes(args).items():
        words += [f"--{axis}", str(value)]
    for package in args.of_its_day:
        words += ["--of-its-day", package]
    for option, value, usual in (
        ("--times", args.times, 2),
        ("--verdict", args.verdict, None),
        ("--clone", args.clone, None),
    ):
        words += [option, str(value)] if value != usual else []
    for option, given in (("--every", args.every), ("--no-observed", args.no_observed)):
        words += [option] if given else []
    return shlex.join(words)


def _say(args: argparse.Namespace) -> Callable[[str], None]:
    """Progress; beside JSON it goes where it is in nobody's way."""
    return lambda text: print(text, file=sys.stderr if args.json else sys.stdout, flush=True)


def _each(say: Callable[[str], None], line: Line) -> Callable[[int, Found], None]:
    def told(number: int, found: Found) -> None:
        place = line.places[number].short
        say(f"  {place}: {found.did.get(number) or f'skipped, {found.unusable[number]}'}")

    return told
