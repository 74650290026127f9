"""What a case was seen to do, in words: its verdict on the latest stack, then what else it does where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.cell._case import Case
from harness.cell.outcome._expect import Expectation
from harness.cell.outcome._observed import Observed
from harness.cell.outcome._verdict import Verdict
from harness.control.boundaries import Agreement, Change, Finding

__all__ = ["agreement_in_words", "entry_line", "measured_on", "verdict_on"]


def verdict_on(case: Case, stack: Observed | None) -> str:
    """Its verdicts on one stack, several with the number of variants; ``-`` where it was not measured."""
    if stack is None:
        return "-"
    if stack.unsolvable:
        return str(Verdict.UNSOLVABLE)
    counts: Counter[str] = Counter()
    for outcome in stack.outcomes:
        if outcome.case == case.name:
            counts[str(outcome.verdict)] += len(outcome.variants)
    if len(counts) == 1:
        return next(iter(counts))
    most = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return ", ".join(f"{count} {verdict}" for verdict, count in most) or "-"


def measured_on(case: Case, observed: Mapping[str, Observed]) -> str:
    """The stacks on which it was measured, and how often it trained there."""
    stacks = [one for one in observed.values() if any(each.case == case.name for each in one.outcomes)]
    every = [each for one in stacks for each in one.outcomes if each.case == case.name]
    count = sum(len(one.variants) for one in every)
    trains = sum(len(one.variants) for one in every if one.verdict is Verdict.TRAINS)
    if not count:
        return "not measured yet"
    return (
        f"{_number(len(case.variants), 'variant')}, measured on {_number(len(stacks), 'stack')}: "
        f"{trains} of {count} runs are TRAINS"
    )


def entry_line(entry: Expectation) -> str:
    """An expectation as a line of a list."""
    parts = [f"**{entry.verdict}**"]
    if settings := ", ".join(_settings(entry.where)):
        parts.append(f"with {settings}")
    if entry.versions:
        ranges = (f"{package} {_range(wanted)}" for package, wanted in entry.versions.items())
        parts.append(f"on {', '.join(ranges)}")
    text = " ".join(parts)
    if entry.seen:
        text += f" ({_seen(entry.seen)})"
    if entry.type:
        text += f": `{entry.type}` on the way to `{entry.moment}`"
    elif entry.parameters:
        text += f": {', '.join(f'`{one}`' for one in entry.parameters)}"
    for verdict, names in entry.also.items():
        text += f"; {verdict}: {', '.join(f'`{one}`' for one in names)}"
    return text


def agreement_in_words(finding: Finding) -> str:
    """Where verdicts change, against where a fix is documented; of several variants each change once."""
    if finding.agreement in (Agreement.NOWHERE, Agreement.UNMEASURED):
        return finding.agreement.value
    changes = "; ".join(dict.fromkeys(map(_change, finding.changes)))
    return f"{finding.agreement.value} ({changes})"


def _change(change: Change) -> str:
    return f"{change.last} {change.before.verdict}, {change.first} {change.after.verdict}"


def _range(wanted: str) -> str:
    return "absent" if wanted == "absent" else wanted.replace(",", ", ")


def _settings(where: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    for axis, values in where.items():
        word = "stages" if axis == "stage" and len(values) > 1 else axis
        yield f"{word} {' or '.join(map(str, values))}"


def _seen(seen: Mapping[str, Any]) -> str:
    count = seen.get("stacks")
    ends = ", ".join(f"{package} {ends}" for package, ends in seen.items() if package != "stacks")
    return f"seen on {_number(count, 'stack')}" + (f", {ends}" if ends else "")


def _number(count: Any, thing: str) -> str:
    return f"{count} {thing}" + ("" if count == 1 else "s")
