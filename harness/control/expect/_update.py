"""New contents for the files of expectations, made from all that was observed, and proved against it."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.cell._case import Case
from harness.cell.outcome._expect import Expectation, Expectations
from harness.cell.outcome._observed import Observed
from harness.control.expect._causes import Cause
from harness.control.expect._compare import compare
from harness.control.expect._notes import annotated, is_by_people
from harness.control.expect._points import Measured, World, gather
from harness.control.expect._shrink import Conflict, shrink
from harness.control.expect._toml import file_text, header_of, other_comments, tables
from harness.control.expect._tree import Grower, Scale

__all__ = ["NotReproduced", "Update", "make_update"]


@dataclass(frozen=True)
class Update:
    """What the files would hold."""

    #: only those that change
    texts: Mapping[Path, str]
    measured: Measured
    conflicts: Sequence[Conflict]
    entries: int
    #: file and line of each comment that would go
    dropped: Sequence[str]
    #: the stack of each entry that rests on one alone
    single: Sequence[str]
    #: former entries with words of people, of which nothing goes over to an entry that takes their place
    removed: Sequence[Expectation]

    def write(self) -> None:
        """Each file changes at once, or not at all."""
        for path, text in self.texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = path.with_suffix(".new")
            fresh.write_text(text, encoding="utf-8")
            fresh.replace(path)


class NotReproduced(Exception):
    """Our own fault: the entries made do not say what was observed."""


def make_update(
    folder: Path,
    observed: Mapping[str, Observed],
    before: Sequence[Expectation],
    cases: Sequence[Case],
    causes: Sequence[Cause] = (),
) -> Update:
    """Work out every file of ``folder``.

    :raises NotReproduced: when what is made does not say what was observed.
    :param before: the entries of the folder; what people wrote in them is kept, and so are those about what was not
        observed: cases of which nothing was, and other devices and numbers of ranks.
    :param causes: what explains entries of many cases.
    """
    measured = gather(observed.values(), cases)
    # Once to see where many split, and then in earnest.
    scale = Scale(measured.every())
    first = Grower(scale)
    for case in cases:
        for world in measured.worlds(case.name):
            shrink(case, world, measured, first)
    grower = Grower(scale, first.made)
    conflicts: list[Conflict] = []
    thin: list[tuple[Expectation, str]] = []
    going_over: list[Expectation] = []
    homes = {entry.case: entry.source.rpartition(":")[0] for entry in reversed(before)}
    contents: dict[str, list[Expectation]] = {entry.source.rpartition(":")[0]: [] for entry in before}
    for case in cases:
        kept = [one for one in before if one.case == case.name and not _is_replaced(one, measured)]
        going_over += kept
        found = list(kept)
        for world in measured.worlds(case.name):
            drafts, conflicting = shrink(case, world, measured, grower)
            conflicts += conflicting
            for draft in drafts:
                noted, sources = annotated(draft, world, before, causes)
                going_over += sources
                entry = _placed(noted, case.name, world, measured, kept)
                found.append(entry)
                if len({point.stack for point in draft.points}) == 1:
                    single = (dataclasses.replace(entry, case=""), draft.points[0].stack)
                    thin += [] if single in thin else [single]
        if found:
            home = homes.get(case.name, f"{case.module.rpartition('.')[2]}.toml")
            contents.setdefault(home, []).extend(found)
    known = {case.name for case in cases}
    for one in before:
        if one.case not in known:
            contents[one.source.rpartition(":")[0]].append(one)
            going_over.append(one)
    texts = {name: _text(folder / name, entries) for name, entries in contents.items()}
    _prove(texts, observed, measured, conflicts)
    changed = {folder / name: text for name, text in texts.items() if _present(folder / name) != text}
    return Update(
        changed,
        measured,
        conflicts,
        sum(len(tables(entries)) for entries in contents.values()),
        [f"{path}:{line}" for path in changed for line in other_comments(_present(path))],
        [stack for _, stack in thin],
        [one for one in before if is_by_people(one, causes) and not any(one is other for other in going_over)],
    )


def _is_replaced(entry: Expectation, measured: Measured) -> bool:
    """Whether it speaks of something that was observed."""
    return any(
        entry.device in (None, device) and entry.world in (None, ranks) for device, ranks in measured.worlds(entry.case)
    )


def _placed(
    entry: Expectation, case: str, world: World, measured: Measured, kept: Sequence[Expectation]
) -> Expectation:
    """With device and ranks where more than one is spoken of."""
    device, ranks = world
    worlds = measured.worlds(case)
    devices = {one for one, _ in worlds} | {one.device for one in kept if one.device}
    counts = {count for _, count in worlds} | {one.world for one in kept if one.world}
    return dataclasses.replace(
        entry, device=device if len(devices) > 1 else None, world=ranks if len(counts) > 1 else None
    )


def _text(path: Path, entries: Sequence[Expectation]) -> str:
    header = header_of(_present(path)) or (
        f"# What the cases of harness/cases/{path.stem}.py do, where it is not TRAINS, as it was observed.\n"
        "# The keys are explained in harness/cell/outcome/_expect.py."
    )
    return file_text(header, entries)


def _present(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _prove(
    texts: Mapping[str, str], observed: Mapping[str, Observed], measured: Measured, conflicts: Sequence[Conflict]
) -> None:
    """Read them back, and hold all that was observed against them."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        found = compare(observed, Expectations.load(Path(folder)), measured)
    unexplained = {
        (one.case, one.options, stack) for one in conflicts for stacks in one.found.values() for stack in stacks
    }
    wrong = [one for one in found if (one.case, one.options, one.stack) not in unexplained]
    if wrong:
        raise NotReproduced("\n".join(f"{one.stack}: {one.case}[{one.options.id}]: {one.text}" for one in wrong))
