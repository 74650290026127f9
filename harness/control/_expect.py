"""``thawcheck expect``: hold what was observed against what is expected, or make the expectations from it."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.cell._catalog import shipped
from harness.cell.outcome._expect import ExpectationError, Expectations, read_entries
from harness.cell.outcome._observed import Observed, ObservedError
from harness.control._exit import Exit, Usage, help_texts
from harness.control._fresh import load_fresh
from harness.control._matrix import add_folder, folder_of
from harness.control.expect import (
    Cause,
    Measured,
    NotReproduced,
    Update,
    compare,
    few,
    gather,
    make_update,
    read_causes,
    said,
    told,
)

__all__ = ["add_to", "execute"]


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "expect",
        help="hold matrix/observed/ against matrix/expected/, or make the latter from the former",
        **help_texts(
            "Say where what was observed on the stacks differs from what is expected. With --update, write the "
            "expectations that say what was observed, as few as will do, with ranges of versions; notes and references "
            "that people wrote are kept, and told where no entry is left for them.",
            {Exit.OK: "what was observed is expected", Exit.DIFFERS: "it differs"},
        ),
    )
    add_folder(parser)
    parser.add_argument("--update", action="store_true", help="write matrix/expected/*.toml")
    parser.add_argument("--dry-run", action="store_true", help="with --update: only show what would change")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> Exit:
    if args.dry_run and not args.update:
        raise Usage("--dry-run shows what --update would change; give both")
    folder = folder_of(args)
    observed, entries, causes = _read(folder)
    if not observed:
        raise Usage(f"nothing was observed yet: {folder / 'observed'} holds no .jsonl file; thawcheck sweep makes them")
    if args.update:
        try:
            update = make_update(folder / "expected", observed, entries.entries, shipped(), causes)
        except NotReproduced as error:
            message = f"nothing is written: a fault of ours, the entries made do not say what was observed:\n{error}"
            print(f"thawcheck: {message}", file=sys.stderr)
            return Exit.FAILED
        return _update(folder, update, write=not args.dry_run)
    return _check(observed, entries)


def _read(folder: Path) -> tuple[Mapping[str, Observed], Expectations, list[Cause]]:
    """Raises Usage with every fault of all."""
    entries, faults = read_entries(folder / "expected")
    causes, wrong = read_causes(folder / "causes.toml")
    faults += wrong
    observed: Mapping[str, Observed] = {}
    try:
        observed = load_fresh(folder / "observed")
    except ObservedError as error:
        faults += error.faults
    if faults:
        raise Usage("\n".join(["nothing was compared or written:", *faults]))
    return observed, Expectations(entries), causes


def _check(observed: Mapping[str, Observed], expectations: Expectations) -> Exit:
    measured = gather(observed.values(), shipped())
    try:
        found = compare(observed, expectations, measured)
    except ExpectationError as error:
        raise Usage(str(error)) from None
    for line in told(found, shipped()):
        print(line)
    differ = len({(one.case, one.options, one.stack) for one in found})
    for line in _left_out(measured):
        print(line)
    print(f"{measured.verdicts} verdicts on {measured.stacks} stacks, {differ} differ from what is expected")
    return Exit.DIFFERS if found else Exit.OK


def _update(folder: Path, update: Update, *, write: bool) -> Exit:
    if write:
        update.write()
    for path, text in update.texts.items():
        if write:
            print(f"wrote {path}")
        else:
            before = path.read_text(encoding="utf-8") if path.exists() else ""
            diff = difflib.unified_diff(
                before.splitlines(keepends=True), text.splitlines(keepends=True), str(path), f"{path} (new)"
            )
            sys.stdout.writelines(diff)
    for place in update.dropped:
        print(f"{place}: comments between entries are not kept; what is said in a note is")
    for line in (
        *_removed(folder / "expected", update),
        *_conflicts(update),
        *_thin(update),
        *_left_out(update.measured),
    ):
        print(line)
    measured = update.measured
    entries = "1 entry" if update.entries == 1 else f"{update.entries} entries"
    unchanged = "" if update.texts else "; no file changes"
    print(f"{folder / 'expected'}: {entries} for {measured.verdicts} verdicts on {measured.stacks} stacks{unchanged}")
    return Exit.DIFFERS if update.conflicts else Exit.OK


def _removed(folder: Path, update: Update) -> Iterator[str]:
    """What people wrote of that which is not observed so."""
    for one in update.removed:
        words = " ".join(filter(None, (one.note, *one.refs)))
        yield f"{folder / one.source}: {one.case}: {one.verdict} is not kept, nothing observed is so; it said: {words}"


def _conflicts(update: Update) -> Iterator[str]:
    """What no entry can say."""
    by_case = {case.name: case for case in shipped()}
    alike: dict[tuple[str, tuple[tuple[str, tuple[str, ...]], ...]], list[Any]] = {}
    for one in update.conflicts:
        alike.setdefault((one.case, tuple(one.found.items())), []).append(one.options)
    for (case, found), variants in alike.items():
        yield f"{case}, {said(variants, by_case[case])}: stacks of the same versions differ, no entry explains it:"
        yield from (f"  {few(stacks)}: {what}" for what, stacks in found)
        stacks = " ".join(stack for _, some in found for stack in some)
        yield f"  measure again: thawcheck sweep --again {stacks}"


def _thin(update: Update) -> Iterator[str]:
    """What would fall with one measurement."""
    counts = Counter(update.single)
    if counts:
        shown = ", ".join(f"{stack} ({count})" for stack, count in counts.most_common())
        yield f"entries that rest on one stack: {shown}"


def _left_out(measured: Measured) -> Iterator[str]:
    if measured.unsolvable:
        yield f"without a solution, so without verdicts: {', '.join(measured.unsolvable)}"
    for name, stacks in measured.unknown.items():
        yield f"left out, since no case or variant is called so: {name} on {few(stacks)}"
