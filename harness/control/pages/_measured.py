"""What a case was seen to do, in words: its verdict on the latest stack, then what else it does where."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from harness.cell._case import Case
from harness.cell._options import Options
from harness.cell.outcome._expect import Expectation
from harness.cell.outcome._observed import Observed
from harness.cell.outcome._verdict import Verdict
from harness.control.boundaries import Agreement, Change, Did, Finding
from harness.control.expect import cause_of

__all__ = ["agreement_in_words", "entry_lines", "measured_on", "message_of", "verdict_on"]

#: So many parameters are named.
_FEW: Final = 4


def verdict_on(case: Case, stack: Observed | None) -> str:
    """Its verdicts on one stack, several with the stages that have them; ``-`` where it was not measured."""
    if stack is None:
        return "-"
    if stack.unsolvable:
        return str(Verdict.UNSOLVABLE)
    variants: dict[str, list[Options]] = {}
    for outcome in stack.outcomes:
        if outcome.case == case.name:
            variants.setdefault(str(outcome.verdict), []).extend(outcome.variants)
    if len(variants) == 1:
        return next(iter(variants))
    most = sorted(variants.items(), key=lambda one: (-len(one[1]), one[0]))
    return ", ".join(f"{verdict} ({_where(some)})" for verdict, some in most) or "-"


def _where(variants: Sequence[Options]) -> str:
    """By stages; one that has other verdicts, too, is in several."""
    return ", ".join(f"z{stage}" for stage in sorted({one.stage for one in variants}))


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


def entry_lines(entries: Sequence[Expectation]) -> Iterator[str]:
    """Expectations as a list: those that do the same on other versions share a line.

    What a shared cause explains, or did not run, says little of the case, and is folded.
    """
    shown = [one for one in entries if one.verdict is not Verdict.NOT_RUN and not cause_of(one)]
    folded = [one for one in entries if one not in shown]
    yield from _lines(shown)
    if folded:
        count = len({_what(one) for one in folded})
        yield from ("", f"<details><summary>{count} more, each for a reason of its own</summary>", "")
        yield from _lines(folded)
        yield from ("", "</details>")


def _lines(entries: Sequence[Expectation]) -> Iterator[str]:
    alike: dict[tuple[str, str, str], list[str]] = {}
    for one in entries:
        alike.setdefault(_what(one), []).append(_versions(one))
    for (verdict, what, cause), versions in alike.items():
        on = "; ".join(filter(None, versions))
        yield f"- {verdict}{f' on {on}' if on else ''}{what}{cause}"


def _what(entry: Expectation) -> tuple[str, str, str]:
    """All but the versions: what is told before them, behind them, and why."""
    head = f"**{entry.verdict}**"
    if settings := ", ".join(_settings(entry.where)):
        head += f" with {settings}"
    text = ""
    if entry.type:
        text = f": `{entry.type}` on the way to `{entry.moment}`{_message(entry)}"
    elif entry.message and entry.verdict is Verdict.NOT_RUN:
        text = _message(entry)
    elif entry.parameters:
        text = f": {_some(entry.parameters)}"
    for verdict, names in entry.also.items():
        text += f"; {verdict}: {_some(names)}"
    cause = cause_of(entry)
    return head, text, f". {cause[0].upper()}{cause[1:]}" if cause else ""


def _versions(entry: Expectation) -> str:
    """What was seen, where that is known: how far a range holds beyond that nobody measured."""
    seen = {package: str(ends) for package, ends in entry.seen.items() if package != "stacks"}
    ranges = {package: "absent" if wanted == "absent" else wanted for package, wanted in entry.versions.items()}
    told = {**{package: wanted.replace(",", ", ") for package, wanted in ranges.items()}, **seen}
    text = ", ".join(f"{package} {where}" for package, where in told.items())
    return f"{text} ({_number(entry.seen.get('stacks'), 'stack')})" if entry.seen else text


def message_of(entry: Expectation) -> str:
    """As people see it, and search for it; an entry has its beginning, as a regular expression."""
    return re.sub(r"\\(.)", r"\1", (entry.message or "").removeprefix("^").removesuffix("$"))


def _message(entry: Expectation) -> str:
    text = message_of(entry)
    return f", `{text}`" if text else ""


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(f"`{one}`" for one in names[:_FEW])
    return shown + (f" and {len(names) - _FEW} more" if len(names) > _FEW else "")


def agreement_in_words(finding: Finding) -> str:
    """Where verdicts change, against where a fix is documented; of several variants each change once."""
    if finding.agreement in (Agreement.NOWHERE, Agreement.UNMEASURED):
        return finding.agreement.value
    changes = "; ".join(dict.fromkeys(map(_change, finding.changes)))
    return f"{finding.agreement.value} ({changes})"


def _change(change: Change) -> str:
    before, after = Did.of(change.before), Did.of(change.after)
    if change.before.verdict is not change.after.verdict:
        return f"{change.last} {change.before.verdict}, {change.first} {change.after.verdict}"
    return f"{change.last} {before}, {change.first} {after}"


def _settings(where: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    for axis, values in where.items():
        word = "stages" if axis == "stage" and len(values) > 1 else axis
        yield f"{word} {' or '.join(map(str, values))}"


def _number(count: Any, thing: str) -> str:
    return f"{count} {thing}" + ("" if count == 1 else "s")
