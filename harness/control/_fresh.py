"""What was observed of the cases as they are now: a case that does something else since was not measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from harness.cell._catalog import shipped
from harness.cell.outcome._observed import Observed, Outcome, load_all

__all__ = ["fresh", "fresh_outcomes", "load_fresh", "stale_cases"]


@cache
def _codes() -> Mapping[str, str]:
    return {case.name: case.code for case in shipped()}


def fresh_outcomes(observed: Observed) -> list[Outcome]:
    """Those of the code that a case has; and of cases that nobody knows, which are for others to tell of."""
    return [one for one in observed.outcomes if not _is_stale(one)]


def fresh(observed: Observed) -> Observed:
    """With nothing else."""
    kept = fresh_outcomes(observed)
    return observed if len(kept) == len(observed.outcomes) else dataclasses.replace(observed, outcomes=tuple(kept))


def load_fresh(folder: Path) -> dict[str, Observed]:
    """Every file of a folder, by stack.  Raises ObservedError with the faults of all of them."""
    return {name: fresh(one) for name, one in load_all(folder).items()}


def stale_cases(observed: Observed) -> list[str]:
    """Cases that were measured by other code than they have."""
    return [*dict.fromkeys(one.case for one in observed.outcomes if _is_stale(one))]


def _is_stale(outcome: Outcome) -> bool:
    """What does not say by which code it was measured is taken for what it was."""
    return outcome.code not in ("", _codes().get(outcome.case, outcome.code))
