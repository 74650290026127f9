"""``thawcheck pages``: a page for each kind of fault, from the cases and what was measured."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.cell._catalog import shipped
from harness.cell._kinds import KINDS
from harness.cell.outcome._expect import ExpectationError, Expectations
from harness.cell.outcome._observed import ObservedError
from harness.control._exit import Exit, Usage, help_texts
from harness.control._fresh import load_fresh
from harness.control._matrix import add_folder, matrix_of
from harness.control.pages import FIXES, SYMPTOMS, fixes_page, kind_page, overview, page_of, symptoms_page
from harness.control.stacks import Matrix

__all__ = ["add_to", "execute"]


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "pages",
        help="write a page for each kind of fault",
        **help_texts(
            "Write a Markdown page for each kind of fault, from the cases and from what was measured.",
            {
                Exit.OK: "the pages are written, or, with --check, fresh",
                Exit.DIFFERS: "with --check: a page is stale",
                Exit.USAGE: "bad usage or input, or a page cannot be written",
            },
        ),
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="where to, e.g. docs/kinds")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 where a page is stale")
    add_folder(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> Exit:
    pages = made(matrix_of(args))
    there = {path.name: path for path in args.folder.glob("*.md")} if args.folder.is_dir() else {}
    extra = sorted(there.keys() - pages.keys())
    try:
        stale = [name for name, text in pages.items() if name not in there or there[name].read_bytes() != text.encode()]
        if args.check:
            for name in [*stale, *extra]:
                print(f"{args.folder / name} is not what the cases say; thawcheck pages {args.folder}")
            return Exit.DIFFERS if stale or extra else Exit.OK
        args.folder.mkdir(parents=True, exist_ok=True)
        for name in stale:
            (args.folder / name).write_text(pages[name], encoding="utf-8")
        for name in extra:
            there[name].unlink()
    except OSError as error:
        raise Usage(f"{error.filename or args.folder}: {error.strerror}; run the command again") from None
    print(f"{len(pages)} pages, {len(stale)} of them changed")
    return Exit.OK


def made(matrix: Matrix) -> Mapping[str, str]:
    """File name -> Markdown.  Raises Usage."""
    try:
        observed = load_fresh(matrix.folder / "observed")
        entries = Expectations.load(matrix.folder / "expected").entries
    except (ObservedError, ExpectationError) as error:
        raise Usage(str(error)) from None
    kinds = [kind for kind in KINDS if any(case.kind == kind for case in shipped())]
    stacks = matrix.stacks.values()
    general = {
        "README.md": overview(kinds),
        FIXES: fixes_page(stacks, observed),
        SYMPTOMS: symptoms_page(entries),
    }
    return general | {page_of(kind): kind_page(kind, observed, entries, stacks) for kind in kinds}
