"""The ``thaw`` fixture: a case's record inside a plain test."""

from __future__ import annotations

from typing import Any

from harness.cell._case import Case, MalformedCase
from harness.cell._catalog import find
from harness.cell.outcome._record import CaseRecord
from harness.cell.plug._session import Session

__all__ = ["Thaw"]


class Thaw:
    """Runs cases on the session's ranks."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def run(self, case: Case | str, **options: Any) -> CaseRecord:
        """The record of the first variant that has all of ``options``.

        A variant runs once a session: what a case item or an earlier call measured is handed
        out again, so that claims are asserted of the very records that are reported.

        :param case: a case, or the name of a shipped one.
        :raises UnknownCase: for a name that nobody has.
        :raises MalformedCase: for options no variant has, or a case that makes no sense.
        """
        found = find(case) if isinstance(case, str) else case
        variant = found.variant(**options)
        outcome = self._session.measured(found, variant) or self._session.run(found, variant)[0]
        if outcome.malformed:
            raise MalformedCase(f"case {found.name}", outcome.malformed)
        return outcome.record
