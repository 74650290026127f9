"""``thawcheck merge``: join what several machines measured."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from harness.cell.outcome._observed import Observed, ObservedError, Outcome, read_observed
from harness.control._exit import Exit, Usage, help_texts

__all__ = ["add_to", "execute"]

_SHOWN = 3


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "merge",
        help="join what several machines measured",
        **help_texts(
            "Put observed stacks from the SOURCEs, e.g. the artifacts of a sweep's shards, into one folder. All are "
            "checked first; where one has a fault, nothing is written. Of two that saw the same, the newest is kept; "
            "two of one stack that saw different things are a fault, but that what comes takes the place of what the "
            "folder has of an earlier day.",
            {Exit.OK: "all is merged", Exit.DIFFERS: ""},
        ),
    )
    parser.add_argument("sources", metavar="SOURCE", type=Path, nargs="+", help="folders, or .jsonl files of stacks")
    parser.add_argument("--into", metavar="DIR", type=Path, required=True, help="folder of observed stacks to add to")
    parser.add_argument(
        "--newest",
        action="store_true",
        help="of two that saw different things, keep the newest; of one day, what comes before what the folder has",
    )
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> Exit:
    into: Path = args.into
    if into.exists() and not into.is_dir():
        raise Usage(f"--into: {into} is no folder")
    paths, faults = _paths(args.sources)
    found, more = _read([*paths, *into.glob("*.jsonl")])
    faults += more
    if not paths and not faults:
        raise Usage(f"there is no .jsonl file in {', '.join(map(str, args.sources))}")
    there = {one.stack: one for one in found if _is_in(one, into)}
    came: dict[str, list[Observed]] = {}
    for one in found:
        if there.get(one.stack) is not one:
            came.setdefault(one.stack, []).append(one)
    chosen: dict[str, Observed] = {}
    for stack, several in sorted(came.items()):
        last, more = _latest(several, newest=args.newest)
        faults += more
        chosen[stack], more = _against(there.get(stack), last, newest=args.newest)
        faults += more
    if faults:
        raise Usage("nothing is merged:\n" + "\n".join(faults))
    _write([one for one in chosen.values() if one is not there.get(one.stack)], into)
    _tell(chosen, there)
    return Exit.OK


def _paths(sources: Sequence[Path]) -> tuple[list[Path], list[str]]:
    paths: list[Path] = []
    faults = []
    for source in sources:
        if source.is_dir():
            paths += sorted(source.rglob("*.jsonl"))
        elif source.is_file():
            paths.append(source)
        else:
            faults.append(f"{source}: there is no such file or folder")
    return paths, faults


def _read(paths: Iterable[Path]) -> tuple[list[Observed], list[str]]:
    """Each file once, however often it is named."""
    found: list[Observed] = []
    faults: list[str] = []
    for path in dict.fromkeys(paths):
        try:
            found.append(read_observed(path))
        except ObservedError as error:
            faults += error.faults
    return found, faults


def _is_in(one: Observed, folder: Path) -> bool:
    assert one.path is not None  # it was read from there
    return one.path.resolve().parent == folder.resolve()


# -- which of several --------------------------------------------------------------------------


def _latest(several: Sequence[Observed], *, newest: bool) -> tuple[Observed, list[str]]:
    """Of what came, the one to keep; and what speaks against it."""
    *others, last = sorted(several, key=_age)
    faults = []
    for one in others:
        difference = _difference(one, last)
        if one.device != last.device:
            faults.append(_other_device(one, last))
        elif difference and newest and one.measured == last.measured:
            faults.append(f"{difference}; both are of {last.measured}, so neither is the newest")
        elif difference and not newest:
            faults.append(f"{difference}; --newest keeps the one of {last.measured}, {last.path}")
    return last, faults


def _against(there: Observed | None, came: Observed, *, newest: bool) -> tuple[Observed, list[str]]:
    """The same of what the folder has and what came: that takes its place, if it is of a later day."""
    if there is None:
        return came, []
    if there.device != came.device:
        return there, [_other_device(there, came)]
    difference = _difference(there, came)
    older = came.measured < there.measured if difference else _age(came) <= _age(there)
    if difference and older and not newest:
        return there, [f"{difference}; what came is older: --newest keeps the one of {there.measured}, {there.path}"]
    if difference and came.measured == there.measured and not newest:
        return there, [f"{difference}; both are of {came.measured}: --newest keeps what came, {came.path}"]
    return (there if older else came), []


def _age(one: Observed) -> tuple[str, Version, str]:
    try:
        harness = Version(one.harness)
    except InvalidVersion:
        harness = Version("0")
    return one.measured, harness, str(one.path)


def _other_device(one: Observed, other: Observed) -> str:
    return f"{one.path} was measured on {one.device} and {other.path} on {other.device}: merge them into two folders"


def _difference(one: Observed, other: Observed) -> str:
    """How two of one stack differ in what they saw; empty where they do not."""
    if one.unsolvable != other.unsolvable:
        what = " and ".join(f"{'UNSOLVABLE' if each.unsolvable else 'solved'}" for each in (one, other))
        what = what if bool(one.unsolvable) != bool(other.unsolvable) else "UNSOLVABLE for two reasons"
        return f"{one.path} and {other.path}: {what}"
    mine, theirs = one.key(), other.key()
    differing = [key for key in sorted({*mine, *theirs}) if _alike(mine.get(key)) != _alike(theirs.get(key))]
    if not differing:
        return ""
    shown = [
        f"{case}[{variant}] ({_verdict(mine.get((case, variant)))} and {_verdict(theirs.get((case, variant)))})"
        for case, variant in differing[:_SHOWN]
    ]
    more = f" and {len(differing) - _SHOWN} more" if len(differing) > _SHOWN else ""
    locks = "" if one.lock == other.lock else f", by the locks {one.lock} and {other.lock}"
    return f"{one.path} and {other.path} differ in {', '.join(shown)}{more}{locks}"


def _alike(outcome: Outcome | None) -> object:
    return outcome and (outcome.verdict, outcome.world, dict(outcome.parameters), outcome.failure)


def _verdict(outcome: Outcome | None) -> str:
    return str(outcome.verdict) if outcome else "no result"


# -- written -----------------------------------------------------------------------------------


def _write(chosen: Sequence[Observed], into: Path) -> None:
    """Each is written whole beside the folder's files before the first takes its place.

    So what fills a disk changes nothing.  Where a file cannot take its place, those before it have: they are named.
    """
    placed: list[str] = []
    try:
        into.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".merge-", dir=into) as folder:
            for one in chosen:
                one.write(Path(folder) / f"{one.stack}.jsonl")
            for one in chosen:
                (Path(folder) / f"{one.stack}.jsonl").replace(into / f"{one.stack}.jsonl")
                placed.append(one.stack)
    except OSError as error:
        kept = "what was there is as it was"
        if placed:
            kept = f"already merged: {', '.join(placed)}; all else is as it was; merge again once that is mended"
        raise Usage(f"cannot be written to {into}: {error.strerror}; {kept}") from None


def _tell(chosen: dict[str, Observed], there: dict[str, Observed]) -> None:
    added = [stack for stack in chosen if stack not in there]
    unchanged = [stack for stack, one in chosen.items() if stack in there and not _difference(there[stack], one)]
    replaced = [stack for stack in chosen if stack not in added and stack not in unchanged]
    print(f"{len(added)} added, {len(replaced)} replaced, {len(unchanged)} unchanged")
    for word, stacks in (("added", added), ("replaced", replaced)):
        if stacks:
            print(f"{word}: {', '.join(stacks)}")
