"""What people wrote into entries: it goes over to the entries that take their place."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence

from harness.cell._case import Case
from harness.cell._kinds import CONTROL
from harness.cell.outcome._expect import Expectation
from harness.cell.outcome._verdict import Verdict
from harness.cell.ranks._device import DEVICES
from harness.control.expect._causes import Cause, explaining
from harness.control.expect._compare import few
from harness.control.expect._points import World
from harness.control.expect._shrink import Draft

__all__ = ["annotated", "cause_of", "is_by_people", "unexplained"]

#: They say nothing of the case.
_NO_FINDING = (Verdict.NOT_RUN, Verdict.UNSOLVABLE)
#: The part of a note that we write ourselves.
_OURS = re.compile(r"(?:^|(?<=; ))measured on [^;]*\branks?(?:;\s*|$)")


def cause_of(entry: Expectation) -> str:
    """What its note says beyond who measured; empty where that is nothing."""
    return _OURS.sub("", entry.note).strip()


def is_by_people(entry: Expectation, causes: Sequence[Cause] = ()) -> bool:
    """Whether it says something that neither a measurement nor a shared cause would write again."""
    return any(_by_people(entry, causes))


def _by_people(entry: Expectation, causes: Sequence[Cause]) -> tuple[str, tuple[str, ...]]:
    """Note and references, without those of causes: where these still hold they are written again."""
    note = cause_of(entry)
    refs = entry.refs
    for cause in causes:
        if cause.note in note:
            note = note.replace(cause.note, "").strip("; ").replace("; ; ", "; ")
            refs = tuple(one for one in refs if one not in cause.refs)
    return note, refs


def annotated(
    draft: Draft, world: World, before: Sequence[Expectation], causes: Sequence[Cause] = ()
) -> tuple[Expectation, Sequence[Expectation]]:
    """The entry with a note, and with what former entries about the same say beyond ours; and those entries.

    The note is: who measured, which shared causes explain it, and what people wrote.

    They are about the same where case, verdict and exception are the same, and a variant is in both.  Of several,
    those count whose ranges hold something that was observed here, if there are any.
    """
    entry = draft.entry
    akin = [
        one
        for one in before
        if (one.case, one.verdict) == (entry.case, entry.verdict)
        and (one.type == entry.type or None in (one.type, entry.type))
        and any(one.speaks_of(options) for options in draft.variants)
    ]
    stacks = [{package: str(one) for package, one in point.versions.items()} for point in draft.points]
    sources = [one for one in akin if any(map(one.holds_on, stacks))] or akin
    device, ranks = world
    ours = f"measured on {ranks} {DEVICES[device].backend} {'rank' if ranks == 1 else 'ranks'}"
    shared = explaining(draft, causes)
    words = [_by_people(one, causes) for one in sources]
    notes = dict.fromkeys([*(one.note for one in shared), *(note for note, _ in words if note)])
    refs = dict.fromkeys([*(ref for one in shared for ref in one.refs), *(ref for _, some in words for ref in some)])
    return dataclasses.replace(entry, note="; ".join([ours, *notes]), refs=tuple(refs)), sources


def unexplained(entries: Sequence[Expectation], cases: Sequence[Case]) -> Iterator[str]:
    """Entries of controls that say nothing but who measured: what trains by its own words does not there, and why?"""
    controls = {case.name for case in cases if case.kind == CONTROL}
    silent: dict[str, list[str]] = {}
    for one in entries:
        if one.case in controls and one.verdict not in _NO_FINDING and not is_by_people(one):
            silent.setdefault(one.case, []).append(one.source)
    if silent:
        count = sum(map(len, silent.values()))
        yield (
            f"no cause is said where controls do not train, in {count} of their entries: {few([*silent])}; "
            "matrix/causes.toml is for those that many share"
        )
