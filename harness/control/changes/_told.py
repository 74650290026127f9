"""An outcome in words, by which two of them are the same or not."""

from __future__ import annotations

from harness.cell.outcome._nearby import outcome_text
from harness.cell.outcome._observed import Outcome

__all__ = ["told"]


def told(outcome: Outcome, *, whole: bool = False) -> str:
    """An outcome but for its message, whose words change with every release."""
    failed = (outcome.failure.moment, outcome.failure.type) if outcome.failure else (None, None)
    text = outcome_text(outcome.verdict, *failed)
    parts = []
    for verdict, names in outcome.parameters.items():
        shown = names if whole or len(names) <= 4 else (*names[:3], f"{len(names) - 3} more")
        parts.append(f"{'' if verdict is outcome.verdict else f'{verdict} '}of {', '.join(shown)}")
    return " ".join([text, " and ".join(parts)]).rstrip()
