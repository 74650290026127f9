"""``thawcheck diff``: what changed between two runs, stacks or days."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from harness import __version__
from harness.cell.outcome._results import as_line
from harness.control._exit import Exit, Usage, help_texts
from harness.control._matrix import add_folder, folder_of
from harness.control.changes._diff import REGRESSIONS, Difference, Pair, Way, differences_of, pairs_of
from harness.control.changes._sides import NoSide, side
from harness.control.report._fit import LIMITS, fitted
from harness.control.report._plain import for_markdown, for_terminal, in_code

__all__ = ["add_to", "execute"]

#: Of stacks, and of variants, on a line.
_FEW: Final = 4
_MARKS: Final = {Way.WORSE: "▼", Way.LOST: "▽", Way.OTHER: "◆", Way.BETTER: "▲", Way.NEW: "+"}


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "diff",
        help="say what changed between two runs, stacks or days",
        **help_texts(
            "Say what is not the same in A and B. Each is a results file, an observed file, a folder of either, a "
            "stack of the matrix, or a day (YYYY-MM-DD: observed/ as git had it at its end). Two stacks are compared "
            "with each other, two folders stack by stack. A regression is a variant that trained in A and does not in "
            "B, or that was measured on the same stack in A and is not in B.",
            {Exit.OK: "no regression", Exit.DIFFERS: "a regression"},
        ),
    )
    parser.add_argument("a", metavar="A", help="before")
    parser.add_argument("b", metavar="B", help="after")
    parser.add_argument("--common", action="store_true", help="only what both have measured")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="as JSON")
    shape.add_argument(
        "--markdown", choices=[*LIMITS], metavar="WHERE", help="as Markdown that fits a comment or summary"
    )
    add_folder(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> Exit:
    def observed() -> Path:
        return folder_of(args) / "observed"

    faults: list[str] = []
    sides = []
    for name in (args.a, args.b):
        try:
            sides.append(side(name, observed))
        except NoSide as error:
            faults.append(str(error))
    if faults:
        raise Usage("nothing is compared:\n" + "\n".join(faults))
    pairs, gone, came = pairs_of(*sides)
    if not pairs:
        raise Usage(f"{args.a} and {args.b} have no stack in common, and are not one stack each")
    found, counts = differences_of(pairs, common=args.common)
    if args.json:
        print(json.dumps(json.loads(as_line(_plain(args, pairs, found, counts))), indent=1))
    elif args.markdown:
        rest = f"thawcheck diff {args.a} {args.b}"
        print(fitted([*_markdown(args, pairs, found, counts)], args.markdown, rest), end="")
    else:
        for line in _text(pairs, found, counts, (sorted(gone), sorted(came))):
            print(for_terminal(line) if not line.startswith("  ") else f"  {for_terminal(line)}")
    return Exit.DIFFERS if _regressions(pairs, counts) else Exit.OK


def _regressions(pairs: Sequence[Pair], counts: Counter[str]) -> int:
    return sum(counts[str(way)] for way in REGRESSIONS if way is not Way.LOST or any(pair.same for pair in pairs))


def _sum(counts: Counter[str]) -> str:
    parts = [f"{counts[str(way)]:,} {way}" for way in Way if counts[str(way)]]
    return ", ".join([*parts, f"{counts['same']:,} the same"])


def _text(
    pairs: Sequence[Pair], found: Sequence[Difference], counts: Counter[str], alone: tuple[list[str], list[str]]
) -> Iterator[str]:
    for one in found:
        yield f"{_MARKS[one.way]} {one.case}: {one.before} -> {one.after} ({one.way})"
        for name, variants in list(one.where.items())[:_FEW]:
            yield f"  {name}: {_few(variants)}"
        if len(one.where) > _FEW:
            yield f"  and on {len(one.where) - _FEW} more stacks"
    moved = {pair.name: pair.moved for pair in pairs if pair.moved}
    for name, text in list(moved.items())[:_FEW]:
        yield f"{name}: {text}"
    for what, names in zip(("before", "after"), alone, strict=True):
        if names:
            yield f"only {what}: {_few(names)}"
    yield f"{len(pairs)} stack{'s' * (len(pairs) != 1)} compared: {_sum(counts)}"


def _few(names: Sequence[str]) -> str:
    more = len(names) - _FEW
    return ", ".join(names[:_FEW]) + (f" and {more} more" if more > 0 else "")


def _markdown(
    args: argparse.Namespace, pairs: Sequence[Pair], found: Sequence[Difference], counts: Counter[str]
) -> Iterator[str]:
    yield f"## thawcheck diff {in_code(args.a)} {in_code(args.b)}"
    yield ""
    yield f"{len(pairs)} compared: {_sum(counts)}."
    moved = [f"- {in_code(pair.name)}: {for_markdown(pair.moved)}" for pair in pairs if pair.moved]
    yield from (["", *moved] if moved else [])
    if found:
        yield ""
        yield "| | case | before | after | where |"
        yield "|---|---|---|---|---|"
    for one in found:
        where = "; ".join(f"{name}: {_few(variants)}" for name, variants in list(one.where.items())[:_FEW])
        more = f"; and on {len(one.where) - _FEW} more stacks" if len(one.where) > _FEW else ""
        texts = " | ".join(for_markdown(text) for text in (one.before, one.after, where + more))
        yield f"| {_MARKS[one.way]} {one.way} | {in_code(one.case)} | {texts} |"


def _plain(
    args: argparse.Namespace, pairs: Sequence[Pair], found: Sequence[Difference], counts: Counter[str]
) -> dict[str, Any]:
    return {
        "format": "thawcheck-diff",
        "version": 1,
        "harness": __version__,
        "before": args.a,
        "after": args.b,
        "regressions": _regressions(pairs, counts),
        "counts": {"same": counts["same"], **{str(way): counts[str(way)] for way in Way}},
        "pairs": [{"name": pair.name, "before": pair.before.stack, "after": pair.after.stack} for pair in pairs],
        "differences": [
            {
                "case": one.case,
                "way": str(one.way),
                "before": one.before,
                "after": one.after,
                "where": {name: list(variants) for name, variants in one.where.items()},
            }
            for one in found
        ],
    }
