"""``thawcheck suite``: every case under pytest, table, results; pytest's statuses as ours."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from harness.cell._catalog import shipped
from harness.cell.plug._item import FAULT
from harness.cell.ranks._device import DEVICES
from harness.control._exit import Exit, Usage, help_texts
from harness.control._shipped import select_cases

__all__ = ["add_to", "execute"]

_STATUS: Final[dict[int, Exit]] = {
    pytest.ExitCode.OK: Exit.OK,
    pytest.ExitCode.TESTS_FAILED: Exit.DIFFERS,
    pytest.ExitCode.USAGE_ERROR: Exit.USAGE,
    pytest.ExitCode.NO_TESTS_COLLECTED: Exit.USAGE,
    pytest.ExitCode.INTERRUPTED: Exit.INTERRUPTED,
    pytest.ExitCode.INTERNAL_ERROR: Exit.FAILED,
}


class _Watch:
    """A plugin object that tells apart what pytest has one status for."""

    def __init__(self) -> None:
        self._found: set[Exit] = set()
        self._uncollected = False

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        # So pytest ends, too, when a file of cases cannot be collected.
        if excinfo.errisinstance(pytest.Session.Interrupted):
            self._uncollected = True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        fault = getattr(report, FAULT, None)
        if fault is not None:
            self._found.add(Exit.USAGE if fault == "input" else Exit.FAILED)

    def status(self, code: int) -> Exit:
        """Ours for pytest's; what is known better outranks a difference."""
        status = _STATUS.get(code, Exit.FAILED)
        if status is Exit.INTERRUPTED and self._uncollected:
            return Exit.USAGE
        return max(self._found, default=status) if status is Exit.DIFFERS else status


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "suite",
        help="run many cases, print the freeze table",
        **help_texts(
            "Run every shipped case, or those in PATH, and print the freeze table. "
            "What follows `--` goes to pytest, e.g. `-- -k tiny_llama -x`."
        ),
    )
    parser.add_argument("paths", metavar="PATH", nargs="*", help="files of cases (default: the shipped ones)")
    parser.add_argument("--case", metavar="NAME", action="append", help="only this shipped case; may be given again")
    parser.add_argument("--also", metavar="PATH", action="append", default=[], help="tests to run besides")
    parser.add_argument("--results", metavar="FILE", help="write a JSON line per variant, as they come")
    parser.add_argument("--markdown", metavar="FILE", help="write the table as Markdown")
    parser.add_argument("--junitxml", metavar="FILE", help="write JUnit, verdict and versions as properties")
    parser.add_argument("--stack", metavar="NAME", default="", help="name of this set of versions, kept with results")
    parser.add_argument("--device", choices=sorted(DEVICES), default="cpu", help="default: cpu")
    parser.add_argument("--world", metavar="N", help="number of ranks (default: what each case says)")
    parser.add_argument("--expected", metavar="DIR", help="folder of expected verdicts, instead of the shipped one")
    parser.add_argument("--observed", metavar="DIR", help="folder of observed stacks (default: ./matrix/observed)")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> Exit:
    import harness.cases

    folder = Path(harness.cases.__file__).parent
    files = list(dict.fromkeys(case.path for case in shipped()))
    if args.case:
        if args.paths:
            raise Usage("--case names shipped cases, and PATH other ones; in a PATH, write FILE::CASE")
        files = [f"{case.path}::{case.name}" for case in select_cases(args.case)]
    arguments = ["-c", str(folder / "pytest.ini"), "--thaw-table", *(args.paths or files), *args.also]
    if args.paths:  # which pytest names relative to the root, and not at all where they are outside
        arguments.append(f"--rootdir={_common_folder(args.paths)}")
    if not _plugin_is_installed():
        arguments += ["-p", "harness.cell.plugin"]
    for name in ("results", "markdown", "stack", "device", "world", "expected", "observed"):
        if value := getattr(args, name):
            arguments += [f"--thaw-{name}={value}"]
    if args.junitxml:
        arguments.append(f"--junitxml={args.junitxml}")
    watch = _Watch()
    return watch.status(pytest.main([*arguments, *args.pytest_arguments], plugins=[watch]))


def _common_folder(paths: Sequence[str]) -> Path:
    """That all of ``paths`` are in; each may have ``::name`` behind it."""
    files = [Path(path.partition("::")[0]).resolve() for path in paths]
    return Path(os.path.commonpath([file if file.is_dir() else file.parent for file in files]))


def _plugin_is_installed() -> bool:
    """Whether pytest finds the plugin by its entry point; not so in a bare source tree."""
    from importlib.metadata import entry_points

    return any(one.value == "harness.cell.plugin" for one in entry_points(group="pytest11"))
