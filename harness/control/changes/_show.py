"""A change at the terminal, and as the text of an issue."""

from __future__ import annotations

from collections.abc import Iterator

from harness.cell.plug._reproduce import in_stack
from harness.control.changes._compare import EVERY_CASE, Change, Item, Shift

__all__ = ["as_body", "as_text", "command", "title_of"]

#: GitHub takes 65536 characters.
_LONGEST = 60_000


def title_of(item: Item) -> str:
    """Of its issue: the key by which it is found again."""
    return f"verdict changed: {item.case} with {item.package}"


def command(item: Item, change: Change) -> str:
    """What shows the change again."""
    if item.case == EVERY_CASE:
        return f"thawcheck lock {change.stack} --again && tox run -e {change.stack}"
    return in_stack(change.stack, item.case)


def as_text(item: Item) -> str:
    lines = [f"{item.case} with {item.package}"]
    for change in item.changes:
        lines.append(f"  {change.stack}{_moved(change)}")
        for shift in change.shifts:
            expected = f"; expected {shift.expected}" if shift.expected else ""
            lines.append(f"    {_variants(shift)}{shift.before or 'not observed'} -> {shift.after}{expected}")
        lines.append(f"    reproduce: {command(item, change)}")
    return "\n".join(lines)


def as_body(item: Item) -> str:
    """Markdown."""
    lines = [f"What `{item.case}` does changed where `{item.package}` moved."]
    for change in item.changes:
        lines += ["", f"### {change.stack}", "", f"`{change.stack}`{_moved(change)}", "", "```diff"]
        for shift in change.shifts:
            lines += [*_diff(shift)]
        lines.append("```")
        expected = [f"- {_variants(one)}{one.expected}" for one in change.shifts if one.expected]
        lines += ["", *(["Expected was:", "", *expected] if expected else ["The expectations say so, too."])]
        lines += ["", "```sh", command(item, change), "```"]
    text = "\n".join(lines)
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST].rpartition(chr(10))[0]}\n```\n\nThe rest is left out."
    return f"{text}\n\nWritten by `thawcheck changes`, which replaces this text whenever it sees the change again.\n"


def _diff(shift: Shift) -> Iterator[str]:
    if shift.before:
        yield f"- {_variants(shift)}{shift.before}"
    yield f"+ {_variants(shift)}{shift.after}"


def _variants(shift: Shift) -> str:
    return f"{', '.join(shift.variants)}: " if shift.variants else ""


def _moved(change: Change) -> str:
    """Of which versions it is, and with what it is compared."""
    names = dict.fromkeys([*change.versions_before, *change.versions_after])
    moves = [
        f"{name} {change.versions_before.get(name, 'absent')} -> {change.versions_after.get(name, 'absent')}"
        for name in names
    ]
    text = f" ({', '.join(moves)})" if moves else ""
    if not change.compared:
        return f"{text}, never observed before"
    return text if change.compared == change.stack else f"{text}, compared with {change.compared}"
