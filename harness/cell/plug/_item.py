"""Cases as pytest items: one per variant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import pytest

from harness.cell._case import Case, MalformedCase
from harness.cell._options import Options
from harness.cell.outcome._expect import ExpectationError
from harness.cell.outcome._record import CaseRecord
from harness.cell.outcome._show import conclusion, details
from harness.cell.plug._session import Session
from harness.cell.ranks._launch import LauncherFailed

__all__ = ["FAULT", "SESSION", "CaseItem", "Differs", "Fault", "collect", "fault_of"]

SESSION: pytest.StashKey[Session] = pytest.StashKey()

#: How far ahead of the case whose answer is awaited others may be started.
_WINDOW = 32

#: Whose an error is that is no finding: the user's who wrote the case or the expectations, or ours.
Fault = Literal["input", "harness"]

#: Name under which a report carries it.
FAULT: Final = "thaw_fault"


class Differs(Exception):
    """A verdict is not the expected one."""


_FAULTS: dict[type[Exception], Fault] = {
    MalformedCase: "input",
    ExpectationError: "input",
    LauncherFailed: "harness",
}


def fault_of(excinfo: pytest.ExceptionInfo[BaseException] | None) -> Fault | None:
    """Whose fault an exception is; None for findings, and for what plain tests raise."""
    if excinfo is None:
        return None
    return next((fault for family, fault in _FAULTS.items() if excinfo.errisinstance(family)), None)


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
        for warning in session.take_warnings():
            self.warn(pytest.PytestWarning(f"thawcheck: {warning}"))
        if session.settings.show_logs or (differences and not outcome.malformed):
            self._attach(outcome.logs, everything=session.settings.show_logs)
        if outcome.malformed:
            raise MalformedCase(f"case {self.case.name}", outcome.malformed)
        if differences:
            if session.error is not None:
                raise session.error  # where a debugger can enter it
            # What differs comes first, since pytest's summary shows the first line only.
            advice = session.advice(self.case, self.options)
            raise Differs(f"{conclusion(self.record, differences, advice)}\n\n{details(self.record)}")

    def _attach(self, logs: Sequence[str], *, everything: bool) -> None:
        for rank, log in enumerate(logs):
            # The other ranks' logs only where they say something else.
            if log.strip() and (rank == 0 or everything or log != logs[0]):
                self.add_report_section("call", f"rank {rank}", log)

    def _upcoming(self) -> Iterator[tuple[Case, Options]]:
        if hasattr(self.config, "workerinput"):
            return iter(())  # under xdist other workers run what comes next
        items = self.session.items
        here = items.index(self) + 1
        coming = (one for one in items[here : here + _WINDOW] if isinstance(one, CaseItem))
        return ((one.case, one.options) for one in coming)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """What a reader needs; a traceback only for what is neither a finding nor a known fault."""
        if excinfo.errisinstance(Differs) or fault_of(excinfo):
            return str(excinfo.value)
        excinfo.traceback = excinfo.traceback.cut(path=self.path)  # of what a debugger enters, the case alone
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, self.case.line - 1, self.name


def collect(collector: pytest.Collector, case: Case) -> list[pytest.Item]:
    """The items of a case found in a module.

    :raises pytest.Collector.CollectError: when another module has a case of that name.
    """
    first = collector.config.stash[SESSION].place_of(case)
    if first != case.path:
        raise collector.CollectError(
            f"two cases are called {case.name}: in {first} and in {case.path}; "
            "results and expectations know a case by its name, so rename one"
        )
    items: list[pytest.Item] = []
    for options in case.variants:
        name = f"{case.name}[{options.id}]"
        # As a text, from which pytest 9.2 tells name and parameters apart; else it would not know
        # the item again by what --lf keeps.
        nodeid = f"{collector.nodeid}::{name}"
        items.append(CaseItem.from_parent(collector, name=name, nodeid=nodeid, case=case, options=options))
    return items
