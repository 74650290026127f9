"""From the lines of a results file to what is kept of a stack."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from harness.cell._catalog import shipped
from harness.cell._options import Options
from harness.cell.outcome._observed import Observed, Outcome
from harness.cell.outcome._record import CaseRecord, Failure
from harness.cell.outcome._steady import steady
from harness.cell.outcome._verdict import PRECEDENCE, Verdict

__all__ = ["condense", "in_order"]


def condense(records: Iterable[CaseRecord], *, stack: str, lock: str) -> Observed:
    """Variants of one case that did the same become one outcome.

    :raises ValueError: where there is no record, or the records are of several stacks.
    """
    found = sorted(records, key=_place)
    if not found:
        raise ValueError(f"{stack}: there is no result")
    alike: dict[tuple[object, ...], list[Options]] = {}
    first: dict[tuple[object, ...], Outcome] = {}
    for record in found:
        if record.versions != found[0].versions or record.device != found[0].device:
            raise ValueError(f"{stack}: the results are of more than one set of versions")
        outcome = _outcome(record)
        key = (
            outcome.case,
            outcome.code,
            outcome.verdict,
            outcome.world,
            tuple(outcome.parameters.items()),
            outcome.failure,
        )
        first.setdefault(key, outcome)
        alike.setdefault(key, []).append(outcome.variants[0])
    outcomes = [dataclasses.replace(one, variants=tuple(alike[key])) for key, one in first.items()]
    return Observed(
        stack,
        found[0].harness,
        min(record.started for record in found)[:10],
        found[0].device,
        lock,
        found[0].versions,
        in_order(outcomes),
    )


def in_order(outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
    """As a file has them."""
    return tuple(sorted(outcomes, key=lambda one: (one.case, one.variants[0].id)))


def _place(record: CaseRecord) -> tuple[str, int]:
    """Cases by name, the variants of each as it lists them: they may finish in any order."""
    listed = next((case.variants for case in shipped() if case.name == record.case), ())
    options = Options(**record.options)
    return record.case, listed.index(options) if options in listed else len(listed)


def _outcome(record: CaseRecord) -> Outcome:
    faults: dict[Verdict, tuple[str, ...]] = {}
    for verdict in PRECEDENCE:
        names = tuple(one.name for one in record.parameters if one.verdict is verdict)
        if names and verdict not in (Verdict.TRAINS, Verdict.FROZEN):
            faults[verdict] = names
    failure = record.failure and Failure(record.failure.moment, record.failure.type, steady(record.failure.message))
    options = (Options(**record.options),)
    return Outcome(record.case, record.verdict, options, record.world, faults, failure, record.code)
