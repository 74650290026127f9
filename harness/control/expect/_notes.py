"""What people wrote into entries: it goes over to the entries that take their place."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from harness.cell.outcome._expect import Expectation
from harness.cell.ranks._device import DEVICES
from harness.control.expect._points import World
from harness.control.expect._shrink import Draft

__all__ = ["annotated", "is_by_people"]

#: The part of a note that we write ourselves.
_OURS = re.compile(r"(?:^|(?<=; ))measured on [^;]*\branks?(?:;\s*|$)")


def is_by_people(entry: Expectation) -> bool:
    """Whether it says something that no measurement would write again."""
    return bool(entry.refs or _by_people(entry.note))


def _by_people(note: str) -> str:
    return _OURS.sub("", note).strip()


def annotated(draft: Draft, world: World, before: Sequence[Expectation]) -> tuple[Expectation, Sequence[Expectation]]:
    """The entry with a note, and with what former entries about the same say beyond ours; and those entries.

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
    notes = dict.fromkeys(filter(None, (_by_people(one.note) for one in sources)))
    refs = dict.fromkeys(ref for one in sources for ref in one.refs)
    return dataclasses.replace(entry, note="; ".join([ours, *notes]), refs=tuple(refs)), sources
