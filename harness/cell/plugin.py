"""The pytest plugin: hooks only.  Inert, and without torch, until a case is collected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from harness.cell._case import Case, MalformedCase
from harness.cell._kinds import KINDS
from harness.cell.outcome._expect import ExpectationError
from harness.cell.outcome._table import Label
from harness.cell.plug import _settings
from harness.cell.plug._fixture import Thaw
from harness.cell.plug._item import FAULT, SESSION, CaseItem, collect, fault_of
from harness.cell.plug._report import LABEL, RECORD, Reporter
from harness.cell.plug._session import Session
from harness.cell.ranks._stack import installed_versions

__all__: list[str] = []

_REPORTER = "thawcheck-reporter"


def pytest_addoption(parser: pytest.Parser) -> None:
    _settings.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "thawcheck: a case that runs on ranks of its own")
    for kind in KINDS:
        config.addinivalue_line("markers", f"kind_{kind}: a case of fault kind {kind}")
    config.stash[SESSION] = Session(_settings.settings_from(config))
    if not hasattr(config, "workerinput"):  # under xdist the controller does the writing
        config.pluginmanager.register(Reporter(_settings.outputs_from(config)), _REPORTER)


def pytest_unconfigure(config: pytest.Config) -> None:
    if SESSION in config.stash:
        config.stash[SESSION].close()
    reporter = config.pluginmanager.get_plugin(_REPORTER)
    if isinstance(reporter, Reporter):
        config.pluginmanager.unregister(reporter)
        reporter.close()


def pytest_pycollect_makeitem(collector: pytest.Collector, obj: object) -> list[pytest.Item] | None:
    # A case that was imported into a module belongs to the module that defines it.
    if isinstance(obj, Case) and isinstance(collector, pytest.Module) and obj.path == str(collector.path):
        return collect(collector, obj)
    return None


def pytest_collection_finish(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput"):
        return  # a worker has no way to say it but by the cases themselves
    cases = _cases(session.items)
    try:
        if cases:
            session.config.stash[SESSION].check((item.case, item.options) for item in cases)
    except ExpectationError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_report_collectionfinish(config: pytest.Config, items: Sequence[pytest.Item]) -> list[str]:
    if not _cases(items):
        return []
    versions = ", ".join(f"{name} {version}" for name, version in installed_versions().items())
    return [f"thawcheck: {config.stash[SESSION].settings.device}; {versions}"]


def pytest_exception_interact(call: pytest.CallInfo[Any], report: pytest.CollectReport | pytest.TestReport) -> None:
    # A file with a malformed case cannot be imported; where in our code we said so is of no use.
    if isinstance(report, pytest.CollectReport) and call.excinfo and call.excinfo.errisinstance(MalformedCase):
        report.longrepr = str(call.excinfo.value)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome: Any = yield
    report = outcome.get_result()
    if fault := fault_of(call.excinfo):
        setattr(report, FAULT, fault)
    if isinstance(item, CaseItem) and call.when == "call" and item.record is not None:
        setattr(report, RECORD, item.record.as_dict())
        setattr(report, LABEL, Label.of(item.case).as_dict())


@pytest.fixture
def thaw(pytestconfig: pytest.Config) -> Thaw:
    """Run a case inside a plain test: ``thaw.run("case_name", stage=3)`` gives its record."""
    return Thaw(pytestconfig.stash[SESSION])


def _cases(items: Sequence[pytest.Item]) -> list[CaseItem]:
    return [item for item in items if isinstance(item, CaseItem)]
