"""``thawcheck report``: what was measured, as a site, a table, a badge or data."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.cell._patterns import nearest
from harness.cell.outcome._expect import ExpectationError, Expectations, default_folder
from harness.cell.outcome._observed import Observed
from harness.cell.outcome._results import make_ready
from harness.control._exit import Exit, Usage, help_texts
from harness.control._matrix import add_folder, folder_of, matrix_here, matrix_of
from harness.control.changes._sides import NoSide, on_day
from harness.control.report import Atlas, SourceError, Sources, make_atlas, read_sources
from harness.control.stacks import Stack

__all__ = ["add_to", "execute"]

_NEEDS = "thawcheck report needs {}, which is not here: pip install 'thawcheck[report]'"


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "report",
        help="show what was measured: a site, a table, a badge, data",
        **help_texts(
            "Show what was measured. With no option it is a table at the terminal; the options write files, and - is "
            "standard output. It judges nothing: `thawcheck expect` and `thawcheck diff` do.",
            {
                Exit.OK: "the report is shown or written",
                Exit.DIFFERS: "",
                Exit.USAGE: "bad usage or input, or a file cannot be written",
            },
        ),
    )
    parser.add_argument(
        "sources",
        metavar="SOURCE",
        type=Path,
        nargs="*",
        help="results files, observed files, or folders of them (default: observed/ of the matrix)",
    )
    shapes = parser.add_argument_group("shapes")
    shapes.add_argument("--site", type=Path, metavar="DIR", help="a static site, which opens from disk: DIR/index.html")
    shapes.add_argument("--markdown", metavar="FILE", help="Markdown, for an issue or the summary of a step")
    shapes.add_argument(
        "--fit", choices=["comment", "summary"], default="comment", help="what the Markdown must fit (default: comment)"
    )
    shapes.add_argument("--junit", metavar="FILE", help="JUnit: a suite for each stack, a test for each case")
    shapes.add_argument("--json", metavar="FILE", help="JSON, after the schema that --schema prints")
    shapes.add_argument("--badge", metavar="FILE", help="a badge, as SVG")
    shapes.add_argument("--schema", action="store_true", help="print the schema of the JSON, and nothing else")
    parser.add_argument(
        "--by", choices=["kind", "stack", "case"], default="kind", help="a line of the table (default: kind)"
    )
    some = parser.add_argument_group("only some")
    some.add_argument("--stack", action="append", metavar="NAME", help="only this stack; may be given again")
    some.add_argument("--case", action="append", metavar="NAME", help="only this case; may be given again")
    some.add_argument("--kind", action="append", metavar="KIND", help="only this kind of fault; may be given again")
    parser.add_argument("--expected", metavar="DIR", type=Path, help="folder of expectations (default: in the matrix)")
    parser.add_argument(
        "--day",
        action="append",
        metavar="DAY",
        help="also stacks that were otherwise at the end of that day (YYYY-MM-DD), by git; may be given again",
    )
    add_folder(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> Exit:
    if args.schema:
        from harness.control.report._json import schema

        print(schema(), end="")
        return Exit.OK
    asked = {name: getattr(args, name) for name in _SHAPES if getattr(args, name)}
    if [*asked.values()].count("-") > 1:
        raise Usage("only one shape can go to standard output: give a file to the others")
    try:
        _write(args, asked, _atlas(args))
    except ModuleNotFoundError as error:
        if error.name not in ("jinja2", "markupsafe", "rich"):
            raise
        raise Usage(_NEEDS.format(error.name)) from None
    return Exit.OK


def _write(args: argparse.Namespace, asked: Mapping[str, str], atlas: Atlas) -> None:
    for name, path in asked.items():
        text = _SHAPES[name](atlas, args)
        if path == "-":
            print(text, end="")
            continue
        try:
            make_ready(Path(path))
            Path(path).write_text(text, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise Usage(f"--{name}: {path} cannot be written: {error.strerror}") from None
        print(f"{path}: {len(text):,} characters", file=sys.stderr)
    if args.site:
        from harness.control.report._site import SiteError, write_site

        try:
            files, size = write_site(atlas, args.site)
        except SiteError as error:
            raise Usage(f"--site: {error}") from None
        print(f"{args.site / 'index.html'}: {files} files, {size / 1e6:.1f} MB", file=sys.stderr)
    if not asked and not args.site:
        from harness.control.report._terminal import terminal

        print(terminal(atlas, args.by, sys.stdout), end="")


def _markdown(atlas: Atlas, args: argparse.Namespace) -> str:
    from harness.control.report._markdown import markdown

    return markdown(atlas, args.fit)


def _junit(atlas: Atlas, _: argparse.Namespace) -> str:
    from harness.control.report._junit import junit

    return junit(atlas)


def _json(atlas: Atlas, _: argparse.Namespace) -> str:
    from harness.control.report._json import as_json

    return as_json(atlas)


def _badge(atlas: Atlas, _: argparse.Namespace) -> str:
    from harness.control.report._badge import badge

    return badge(atlas)


_SHAPES: Mapping[str, Callable[[Atlas, argparse.Namespace], str]] = {
    "markdown": _markdown,
    "junit": _junit,
    "json": _json,
    "badge": _badge,
}


# -- of what -----------------------------------------------------------------------------------


def _atlas(args: argparse.Namespace) -> Atlas:
    """Raises Usage with every fault of the sources, or of the expectations."""
    if args.sources and not args.matrix and not matrix_here():
        # Results may be shown anywhere; only what a stack is called by its sweep is not known then.
        stacks: Mapping[str, Stack] = {}
        expected = args.expected or default_folder()
        sources = args.sources
    else:
        matrix = matrix_of(args)
        stacks, expected = matrix.stacks, args.expected or matrix.folder / "expected"
        sources = args.sources or [matrix.folder / "observed"]
    if args.day and not matrix_here() and not args.matrix:
        raise Usage("--day looks into the git of a checkout: run in one, or give --matrix DIR")
    if args.expected and not args.expected.is_dir():
        raise Usage(f"--expected: there is no folder {args.expected}")
    try:
        found = _chosen(args, _with_days(args, read_sources(sources)))
        judged = Expectations.load(expected) if expected is not None and expected.is_dir() else None
        return make_atlas(found, stacks, judged)
    except SourceError as error:
        raise Usage("nothing is reported:\n" + "\n".join(error.faults)) from None
    except ExpectationError as error:
        raise Usage(str(error)) from None


def _with_days(args: argparse.Namespace, sources: Sources) -> Sources:
    """And what was otherwise on the days of --day.  Raises Usage."""
    stacks, extras, faults = [*sources.stacks], [*sources.extras], []
    known = {_measurement(one) for one in stacks}
    for day in args.day or ():
        try:
            then = on_day(day, folder_of(args) / "observed")
        except NoSide as error:
            faults.append(f"--day: {error}")
            continue
        for one in then:
            if _measurement(one) not in known:
                known.add(_measurement(one))
                stacks.append(one)
                extras.append({})
    if faults:
        raise Usage("\n".join(faults))
    return Sources(tuple(stacks), tuple(extras))


def _measurement(one: Observed) -> tuple[str, ...]:
    """Equal for the same file, wherever it lies."""
    return tuple(one.lines())


def _chosen(args: argparse.Namespace, sources: Sources) -> Sources:
    """Those that --stack, --case and --kind leave.  Raises Usage with every unknown one."""
    from harness.control.report._rows import rows_for

    names = list(dict.fromkeys(outcome.case for one in sources.stacks for outcome in one.outcomes))
    kinds = {row.name: row.kind for row in rows_for(names, {})} if args.kind else {}
    known = {"stack": [one.stack for one in sources.stacks], "case": names, "kind": sorted({*kinds.values()})}
    if faults := [*_unknown(args, known)]:
        raise Usage("\n".join(faults))
    kept, extras = [], []
    for one, extra in zip(sources.stacks, sources.extras, strict=True):
        if args.stack and one.stack not in args.stack:
            continue
        outcomes = tuple(
            outcome
            for outcome in one.outcomes
            if (not args.case or outcome.case in args.case) and (not args.kind or kinds[outcome.case] in args.kind)
        )
        kept.append(dataclasses.replace(one, outcomes=outcomes))
        extras.append(extra)
    return Sources(tuple(kept), tuple(extras))


def _unknown(args: argparse.Namespace, known: Mapping[str, list[str]]) -> Iterator[str]:
    for what, names in known.items():
        for one in getattr(args, what) or ():
            if one not in names:
                yield f"--{what}: nothing was measured of a {what} {one!r}; {nearest(one, names)}"
