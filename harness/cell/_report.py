"""Take records as they come: to the results file, and at the end to table and Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.cell._catalog import shipped
from harness.cell._item import CaseItem
from harness.cell._record import CaseRecord
from harness.cell._results import ResultsError, ResultsFile
from harness.cell._table import as_markdown, as_text, rows_of
from harness.cell._verdict import Verdict

__all__ = ["Reporter"]


class Reporter:
    """A plugin object; sees the reports of this process, or of all workers under xdist.

    :raises pytest.UsageError: when the results file cannot be written.
    """

    def __init__(self, results: Path | None, markdown: Path | None, table: bool) -> None:
        self._records: list[CaseRecord] = []
        self._markdown = markdown
        self._table = table
        self._cases = {case.name: case for case in shipped()} if table or markdown else {}
        try:
            self._results = ResultsFile(results) if results else None
            if markdown:
                markdown.parent.mkdir(parents=True, exist_ok=True)
        except ResultsError as error:
            raise pytest.UsageError(str(error)) from None
        except OSError as error:
            raise pytest.UsageError(f"the table cannot be written to {markdown}: {error.strerror}") from None

    def close(self) -> None:
        if self._results is not None:
            self._results.close()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            if isinstance(item, CaseItem):
                self._cases.setdefault(item.case.name, item.case)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        plain: dict[str, Any] | None = getattr(report, "thaw_record", None)
        if plain is None:
            return
        self._records.append(CaseRecord.from_dict(plain))
        if self._results is not None:
            try:
                self._results.write(plain)
            except ResultsError as error:
                pytest.exit(str(error), returncode=int(pytest.ExitCode.USAGE_ERROR))

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        plain: dict[str, Any] | None = getattr(report, "thaw_record", None)
        if plain is None:
            return None
        return report.outcome, "." if report.passed else "F", plain["verdict"]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._records:
            return
        rows = rows_of(self._records, self._cases.values())
        versions = self._records[0].versions
        if self._markdown is not None:
            try:
                self._markdown.write_text(as_markdown(rows, self._title(), versions), encoding="utf-8")
            except OSError as error:
                terminalreporter.write_line(f"the table cannot be written to {self._markdown}: {error.strerror}")
        if self._table:
            terminalreporter.section(self._title())
            for line in as_text(rows, terminalreporter._tw.fullwidth):
                terminalreporter.write_line(line)
            terminalreporter.write_line("")
            terminalreporter.write_line(self._count())
        if self._results is not None:
            terminalreporter.write_line(f"{self._results.written} results in {self._results.path}")

    def _title(self) -> str:
        first = self._records[0]
        name = f"stack {first.stack}, " if first.stack else ""
        return f"freeze table: {name}{first.device}, {first.world} ranks"

    def _count(self) -> str:
        differing = sum(record.as_expected is False for record in self._records)
        not_run = sum(record.verdict is Verdict.NOT_RUN for record in self._records)
        text = f"{len(self._records)} variants, {len(self._records) - differing} as expected, {differing} differ (!)"
        return text + (f", {not_run} did not run" if not_run else "")
