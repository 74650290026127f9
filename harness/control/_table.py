"""``thawcheck table``: cases down, releases or eras across, from matrix/observed/."""

from __future__ import annotations

import argparse
import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from packaging.version import Version

from harness.cell._case import Case
from harness.cell._catalog import shipped
from harness.cell._patterns import nearest
from harness.cell.outcome._observed import Observed, ObservedError
from harness.control._exit import Exit, Usage, help_texts
from harness.control._fresh import load_fresh
from harness.control._matrix import add_folder, matrix_of
from harness.control.stacks import Matrix, Stack

__all__ = ["add_to", "execute"]

#: Shown of each era.
_PACKAGES: Final = ("torch", "deepspeed", "transformers", "accelerate", "peft", "axolotl")
_MARK: Final = re.compile(
    r"(?P<head><!-- table: by (?P<by>\w+), stages? (?P<stages>[\d, ]*\d)(?:, of (?P<files>[\w, ]+))? -->\n)"
    r".*?(?P<tail><!-- end of table -->)",
    re.DOTALL,
)


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "table",
        help="cases against releases or eras, from what was observed",
        **help_texts(
            "Print what was observed as a Markdown table: cases down, releases or eras across.",
            {
                Exit.OK: "the tables are shown, written, or, with --check, fresh",
                Exit.DIFFERS: "with --check: a table of FILE is stale",
                Exit.USAGE: "bad usage or input, or FILE cannot be written",
            },
        ),
    )
    parser.add_argument("--by", choices=sorted(_COLUMNS), help="what is across (default: deepspeed)")
    parser.add_argument(
        "--stage", type=int, action="append", metavar="N", choices=range(4), help="ZeRO stage (default: 3)"
    )
    parser.add_argument(
        "--file", action="append", metavar="NAME", help="only the cases of this file of harness/cases, as in core"
    )
    parser.add_argument(
        "--update", type=Path, metavar="FILE", help="rewrite each table of FILE between its marks instead"
    )
    parser.add_argument("--check", action="store_true", help="with --update: write nothing, exit 1 where FILE is stale")
    add_folder(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> Exit:
    if args.check and args.update is None:
        raise Usage("--check says whether the tables of a file are fresh: give it by --update FILE")
    if args.update is not None and (args.by or args.stage or args.file):
        raise Usage(f"--by, --stage and --file are said by the marks in {args.update}; leave them out with --update")
    cases = _cases_of(args.file or (), "--file")
    matrix = matrix_of(args)
    try:
        observed = load_fresh(matrix.folder / "observed")
    except ObservedError as error:
        raise Usage(str(error)) from None
    if args.update is None:
        print(table(matrix, observed, args.by or "deepspeed", args.stage or [3], cases))
        return Exit.OK
    try:
        text = args.update.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Usage(f"{args.update} cannot be read: {error}") from None
    fresh = updated(text, matrix, observed, str(args.update))
    if fresh == text:
        return Exit.OK
    if args.check:
        print(f"{args.update} does not show what was observed; thawcheck table --update {args.update}")
        return Exit.DIFFERS
    _write(args.update, fresh)
    return Exit.OK


def _write(path: Path, text: str) -> None:
    """All or nothing; a link stays one."""
    path = path.resolve()
    fresh = path.with_name(f"{path.name}.new")
    try:
        fresh.write_text(text, encoding="utf-8")
        shutil.copymode(path, fresh)
        fresh.replace(path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise Usage(f"{path} cannot be written: {error.strerror}; it is as it was") from None


def updated(text: str, matrix: Matrix, observed: Mapping[str, Observed], name: str) -> str:
    """A text with each table between marks made anew.  Raises Usage where there is none, or an unknown one."""
    found = list(_MARK.finditer(text))
    if not found:
        raise Usage(f"{name} has no table between <!-- table: by deepspeed, stage 3 --> and <!-- end of table -->")
    if unknown := sorted({one["by"] for one in found} - {*_COLUMNS}):
        raise Usage(f"{name}: there is no table by {', '.join(unknown)}; there is: {', '.join(sorted(_COLUMNS))}")

    def anew(one: re.Match[str]) -> str:
        stages = [int(stage) for stage in re.findall(r"\d", one["stages"])]
        cases = _cases_of(re.findall(r"\w+", one["files"] or ""), name)
        return f"{one['head']}{table(matrix, observed, one['by'], stages, cases)}\n{one['tail']}"

    return _MARK.sub(anew, text)


def _cases_of(files: Sequence[str], who: str) -> list[Case]:
    """Those of some files of cases; of all where none is named.  Raises Usage."""
    known = list(dict.fromkeys(_file_of(case) for case in shipped()))
    if unknown := [one for one in files if one not in known]:
        raise Usage("\n".join(f"{who}: no file of cases is called {one!r}; {nearest(one, known)}" for one in unknown))
    return [case for case in shipped() if not files or _file_of(case) in files]


def _file_of(case: Case) -> str:
    return case.module.rpartition(".")[2]


def table(
    matrix: Matrix, observed: Mapping[str, Observed], by: str, stages: Sequence[int], cases: Sequence[Case]
) -> str:
    """Markdown; a column for each stack of the axis that was observed."""
    columns = [(head, observed[stack.name]) for head, stack in _COLUMNS[by](matrix) if stack.name in observed]
    heads = " | ".join(head for head, _ in columns)
    lines = [f"| recipe, moment | {heads} |", f"|---|{'---|' * len(columns)}"]
    cells = [_cells(one, stages) for _, one in columns]
    for case in cases:
        row = [cell.get(case.name, "-") for cell in cells]
        lines.append(f"| {_label(case)} | {' | '.join(row)} |")
    if by == "era":
        lines += ["", *_versions(columns)]
    return "\n".join(lines)


def _label(case: Case) -> str:
    text = f"{case.recipe}, {case.moment}" if case.moment else case.recipe or case.name
    return text.replace("|", r"\|")


def _cells(observed: Observed, stages: Sequence[int]) -> dict[str, str]:
    """Case -> its verdict over all variants of these stages; several with their counts."""
    counts: dict[str, Counter[str]] = {}
    for outcome in observed.outcomes:
        number = sum(one.stage in stages for one in outcome.variants)
        if number:
            counts.setdefault(outcome.case, Counter())[str(outcome.verdict)] += number
    if observed.unsolvable:
        return {case.name: "UNSOLVABLE" for case in shipped()}
    return {case: _cell(found) for case, found in counts.items()}


def _cell(found: Counter[str]) -> str:
    if len(found) == 1:
        return next(iter(found))
    return ", ".join(
        f"{count} {verdict}" for verdict, count in sorted(found.items(), key=lambda one: (-one[1], one[0]))
    )


def _versions(columns: Sequence[tuple[str, Observed]]) -> list[str]:
    """What each column is made of."""
    lines = [f"| era | {' | '.join(_PACKAGES)} |", f"|---|{'---|' * len(_PACKAGES)}"]
    for head, one in columns:
        versions = [one.versions.get(package, "-").partition("+")[0] for package in _PACKAGES]
        lines.append(f"| {head} | {' | '.join(versions)} |")
    return lines


def _along(package: str) -> Callable[[Matrix], list[tuple[str, Stack]]]:
    """The last release of each minor; of several stacks of one release, that with the shortest name."""

    def columns(matrix: Matrix) -> list[tuple[str, Stack]]:
        usual: dict[Version, Stack] = {}
        for stack in matrix.stacks.values():
            if stack.moves == package:
                version = Version(stack.at)
                usual[version] = min(usual.get(version, stack), stack, key=lambda one: len(one.name))
        last = {(version.major, version.minor): version for version in sorted(usual)}
        return [(str(version), usual[version]) for version in last.values()]

    return columns


def _eras(matrix: Matrix) -> list[tuple[str, Stack]]:
    return [(stack.at, stack) for stack in matrix.stacks.values() if stack.moves == "as_of"]


_COLUMNS: Final[Mapping[str, Callable[[Matrix], list[tuple[str, Stack]]]]] = {
    "deepspeed": _along("deepspeed"),
    "transformers": _along("transformers"),
    "axolotl": _along("axolotl"),
    "torch": _along("torch"),
    "python": _along("python"),
    "era": _eras,
}
