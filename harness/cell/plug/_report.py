"""Take records as they come: to the results file, and at the end to table and Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from harness.cell.outcome._record import CaseRecord
from harness.cell.outcome._results import ResultsError, ResultsFile, make_ready
from harness.cell.outcome._table import Label, as_markdown, as_text, rows_of
from harness.cell.outcome._verdict import Verdict
from harness.cell.plug._settings import Outputs

__all__ = ["LABEL", "RECORD", "Reporter"]

#: Names under which a report carries plain dictionaries, which travel from xdist's workers.
RECORD: Final = "thaw_record"
LABEL: Final = "thaw_label"


class Reporter:
    """A plugin object; sees the reports of this process, or of all workers under xdist.

    :raises pytest.UsageError: when what it is to write cannot be written.
    """

    def __init__(self, outputs: Outputs) -> None:
        self._outputs = outputs
        self._records: list[CaseRecord] = []
        self._labels: dict[str, Label] = {}
        self._faults: list[str] = []
        #: variants there are, run or not; 0 under xdist, whose controller does not collect
        self._there = 0
        if outputs.markdown is not None:
            try:
                make_ready(outputs.markdown)
            except OSError as error:
                raise pytest.UsageError(_no_table(outputs.markdown, error)) from None
        try:
            self._results = ResultsFile(outputs.results) if outputs.results else None
        except ResultsError as error:
            raise pytest.UsageError(str(error)) from None

    def close(self) -> None:
        if self._results is not None:
            self._results.close()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._there += _variants(session.items)

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self._there += _variants(items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        plain: dict[str, Any] | None = getattr(report, RECORD, None)
        if plain is None:
            return
        record = CaseRecord.from_dict(plain)
        self._records.append(record)
        self._labels[record.case] = Label(**getattr(report, LABEL))
        if self._results is not None:
            try:
                self._results.write(plain)
            except ResultsError as error:
                pytest.exit(str(error), returncode=int(pytest.ExitCode.USAGE_ERROR))

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        plain: dict[str, Any] | None = getattr(report, RECORD, None)
        if plain is None:
            return None
        return report.outcome, "." if report.passed else "F", plain["verdict"]

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        """Innermost of the wrappers, so that pytest's summary comes even where a report could not be
        written: ours, or the JUnit file of the same full disk."""
        outcome: Any = yield
        if not self._records:
            return
        if outcome.excinfo is not None and isinstance(outcome.excinfo[1], OSError):
            self._faults.append(f"a report cannot be written: {outcome.excinfo[1]}")
            outcome.force_result([])
        if self._outputs.markdown is not None:
            text = as_markdown(rows_of(self._records, self._labels), self._title(), self._records[0].versions)
            if self._partial():
                text += f"\n{self._partial()}\n"
            try:
                self._outputs.markdown.write_text(text, encoding="utf-8")
            except OSError as error:
                self._faults.append(_no_table(self._outputs.markdown, error))
        if self._faults:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._records and self._outputs.table:
            terminalreporter.section(self._title())
            for line in as_text(rows_of(self._records, self._labels), _columns(terminalreporter)):
                terminalreporter.write_line(line)
            terminalreporter.write_line("")
            terminalreporter.write_line(self._count())
            if self._partial():
                terminalreporter.write_line(self._partial())
        if self._records and self._results is not None:
            terminalreporter.write_line(f"{self._results.written} results in {self._results.path}")
        for fault in self._faults:
            terminalreporter.write_line(f"ERROR: {fault}", red=True)

    def _title(self) -> str:
        first = self._records[0]
        name = f"stack {first.stack}, " if first.stack else ""
        worlds = sorted({record.world for record in self._records})
        ranks = " or ".join(map(str, worlds)) + (" rank" if worlds == [1] else " ranks")
        return f"freeze table: {name}{first.device}, {ranks}"

    def _partial(self) -> str:
        """Said of a table that is not whole; empty for one that is."""
        if len(self._records) >= self._there:
            return ""
        return f"Partial: {len(self._records)} of {self._there} variants; the others were deselected or not reached."

    def _count(self) -> str:
        differing = sum(record.as_expected is False for record in self._records)
        not_run = sum(record.verdict is Verdict.NOT_RUN for record in self._records)
        variants = "1 variant" if len(self._records) == 1 else f"{len(self._records)} variants"
        text = f"{variants}, {len(self._records) - differing} as expected, {differing} differ (!)"
        return text + (f", {not_run} did not run" if not_run else "")


def _variants(items: Sequence[pytest.Item]) -> int:
    return sum(item.get_closest_marker("thawcheck") is not None for item in items)


def _no_table(path: Path, error: OSError) -> str:
    return f"the table cannot be written to {path}: {error.strerror}"


def _columns(terminalreporter: pytest.TerminalReporter) -> int:
    # As pytest finds out how wide its own lines may be; it has no public name for the result.
    return int(terminalreporter._tw.fullwidth)  # noqa: SLF001
