"""``thawcheck sweep``: measure many stacks, resumably."""

from __future__ import annotations

import argparse
import concurrent.futures
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from packaging.version import Version

from harness.cell._catalog import shipped
from harness.cell.outcome._results import make_ready
from harness.control._exit import Exit, Usage, help_texts
from harness.control._matrix import add_selection, matrix_of, selected
from harness.control._shipped import select_cases
from harness.control.locks import SolverFailed, cache_folder
from harness.control.stacks import Matrix, Stack
from harness.control.sweep import Measured, Measurer, NotMeasured, Shard, cases_left, ordered, room_needed, torch_of

__all__ = ["add_to", "execute"]


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "sweep",
        help="measure many stacks into matrix/observed/",
        **help_texts(
            "Make the environment of each stack, run the suite in it, keep the verdicts, remove the environment. What "
            "was measured already by the lock that the stack has now is left alone, so an interrupted sweep goes on "
            "where it was, and where only some cases are new, only those are run. It judges nothing: "
            "`thawcheck expect` does.",
            {Exit.OK: "every stack is measured", Exit.DIFFERS: "", Exit.FAILED: "a stack could not be measured"},
        ),
    )
    add_selection(parser)
    parser.add_argument("--again", action="store_true", help="measure also what is measured")
    parser.add_argument("--case", action="append", metavar="NAME", help="only this case; may be given again")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="stacks under way at once (default: 1)")
    parser.add_argument("--shard", metavar="I/N", default="1/1", help="only part I of N, as in 2/5")
    parser.add_argument("--into", type=Path, metavar="DIR", help="where to keep it (default: matrix/observed)")
    parser.add_argument("--keep", action="store_true", help="keep environments and uv's cache")
    parser.add_argument("--dry-run", action="store_true", help="only say what is left, and how much disk it takes")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> Exit:
    try:
        shard = Shard.of(args.shard)
    except ValueError as error:
        raise Usage(f"--shard: {error}") from None
    if args.jobs < 1:
        raise Usage(f"--jobs must be 1 or more, found {args.jobs}")
    matrix = matrix_of(args)
    into: Path = args.into or matrix.folder / "observed"
    if into.exists() and not into.is_dir():
        raise Usage(f"--into: {into} is no folder")
    stacks = shard.take(ordered(matrix, selected(matrix, args.names, args.label)))
    if dev := [stack.name for stack in stacks if stack.dev]:
        raise Usage(
            f"{', '.join(dev)}: a dev stack has no lock, and what it gives holds for a day: tox run -e {dev[0]}"
        )
    asked = [case.name for case in select_cases(args.case)]
    cases = {stack.name: asked if args.again else _both(asked, cases_left(matrix, stack, into)) for stack in stacks}
    todo = [stack for stack in stacks if cases[stack.name]]
    print(f"{len(stacks)} stacks, {len(stacks) - len(todo)} measured already, {len(todo)} to go", flush=True)
    needed = room_needed(matrix, todo, args.jobs) if todo else 0
    try:
        # The environments are made here, and uv keeps what they are made of in its cache.
        places = [matrix.folder.resolve(), cache_folder()]
    except SolverFailed as error:
        print(f"thawcheck: {error}", file=sys.stderr)
        return Exit.FAILED
    free, place = min(((shutil.disk_usage(one).free, one) for one in places), key=itemgetter(0))
    if args.dry_run:
        for stack in todo:
            some = cases[stack.name]
            print(f"  {stack.name}" + ("" if len(some) == len(shipped()) else f": {', '.join(some)}"))
        print(f"about {needed >> 30} GB of disk needed, {free >> 30} GB free")
        return Exit.OK
    if free < needed:
        raise Usage(
            f"the sweep needs about {needed >> 30} GB of disk for {args.jobs} stacks at once and uv's cache, and there "
            f"are {free >> 30} GB free at {place}; free some, or set UV_TORCH_BACKEND=cpu"
        )
    try:
        make_ready(into / "any.jsonl")
    except OSError as error:
        raise Usage(f"nothing can be written to {into}: {error.strerror}") from None
    measurer = Measurer(matrix, into, keep=args.keep)
    return _Sweep(matrix, todo, cases, measurer, args.jobs).run() if todo else Exit.OK


def _both(some: Sequence[str], others: Sequence[str]) -> list[str]:
    return [one for one in some if one in others]


class _Sweep:
    """Stacks one after another, or a few at once; groups of one torch after another."""

    def __init__(
        self, matrix: Matrix, todo: Sequence[Stack], cases: Mapping[str, list[str]], measurer: Measurer, jobs: int
    ) -> None:
        self._todo = todo
        self._cases = cases
        self._measurer = measurer
        self._jobs = jobs
        self._done = 0
        self._failed: list[str] = []
        self._began = time.monotonic()
        self._torch = {stack.name: torch_of(matrix, stack) for stack in todo}

    def run(self) -> Exit:
        try:
            self._measurer.prepare()
            with concurrent.futures.ThreadPoolExecutor(self._jobs) as pool:
                try:
                    for group in self._groups():
                        asked = {
                            pool.submit(self._measurer.measure, stack, self._cases[stack.name]): stack
                            for stack in group
                        }
                        for one in concurrent.futures.as_completed(asked):
                            self._tell(asked[one], one)
                        self._measurer.drop_caches()
                except BaseException:
                    self._measurer.stop()
                    pool.shutdown(cancel_futures=True)
                    raise
        except (NotMeasured, SolverFailed) as error:
            print(f"thawcheck: {error}", file=sys.stderr)
            return Exit.FAILED
        finally:
            self._measurer.close()
        if self._failed:
            print(f"not measured: {', '.join(self._failed)}; run the same command again", file=sys.stderr)
            return Exit.FAILED
        return Exit.OK

    def _groups(self) -> list[list[Stack]]:
        groups: dict[Version, list[Stack]] = {}
        for stack in self._todo:
            groups.setdefault(self._torch[stack.name], []).append(stack)
        return list(groups.values())

    def _tell(self, stack: Stack, future: concurrent.futures.Future[Measured]) -> None:
        self._done += 1
        spent = time.monotonic() - self._began
        left = spent / self._done * (len(self._todo) - self._done)
        try:
            measured = future.result()
        except NotMeasured as error:
            self._failed.append(stack.name)
            print(f"thawcheck: not measured: {error}", file=sys.stderr, flush=True)
            return
        print(
            f"[{self._done}/{len(self._todo)}] {stack.name}: {measured.summary} ({measured.seconds:.0f} s; "
            f"about {left / 60:.0f} min left)",
            flush=True,
        )
