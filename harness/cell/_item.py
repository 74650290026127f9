"""Cases as pytest items: one per variant."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.cell._case import Case, MalformedCase
from harness.cell._expect import ExpectationError
from harness.cell._launch import LauncherFailed
from harness.cell._options import Options
from harness.cell._record import CaseRecord
from harness.cell._session import Session
from harness.cell._show import record_text

__all__ = ["SESSION", "CaseItem", "Differs", "collect"]

SESSION: pytest.StashKey[Session] = pytest.StashKey()

#: How far ahead of the case whose answer is awaited others may be started.
_WINDOW = 32


class Differs(Exception):
    """A verdict is not the expected one."""


class CaseItem(pytest.Item):
    """One variant of one case."""

    def __init__(self, *, case: Case, options: Options, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.case = case
        self.options = options
        self.record: CaseRecord | None = None
        self.add_marker("thawcheck")
        self.add_marker(f"kind_{case.kind}")

    def runtest(self) -> None:
        session = self.config.stash[SESSION]
        try:
            outcome, differences = session.run(self.case, self.options, self._upcoming())
        except BaseException:
            session.cancel()
            raise
        self.record = outcome.record
        self.user_properties += [("verdict", str(self.record.verdict)), ("headline", self.record.headline)]
        self.user_properties += sorted(self.record.versions.items())
        self.user_properties += sorted(self.record.options.items())
        for warning in session.warnings:
            self.warn(pytest.PytestWarning(f"thawcheck: {warning}"))
        session.warnings.clear()
        if differences or session.settings.show_logs:
            for rank, log in enumerate(outcome.logs):
                # The other ranks' logs only where they say something else.
                if log.strip() and (rank == 0 or session.settings.show_logs or log != outcome.logs[0]):
                    self.add_report_section("call", f"rank {rank}", log)
        if outcome.malformed:
            raise MalformedCase(f"case {self.case.name}", outcome.malformed)
        if differences:
            if session.error is not None:
                raise session.error  # where a debugger can enter it
            raise Differs(record_text(self.record, differences))

    def _upcoming(self) -> Iterator[tuple[Case, Options]]:
        if hasattr(self.config, "workerinput"):
            return iter(())  # under xdist other workers run what comes next
        items = self.session.items
        here = items.index(self) + 1
        coming = (one for one in items[here : here + _WINDOW] if isinstance(one, CaseItem))
        return ((one.case, one.options) for one in coming)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """What a reader needs; a traceback only for what is not a finding of ours."""
        if excinfo.errisinstance((Differs, MalformedCase, LauncherFailed, ExpectationError)):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, self.case.function.__code__.co_firstlineno - 1, self.name


def collect(collector: pytest.Collector, case: Case) -> list[pytest.Item]:
    """The items of a case found in a module."""
    return [
        CaseItem.from_parent(collector, name=f"{case.name}[{options.id}]", case=case, options=options)
        for options in case.variants
    ]
