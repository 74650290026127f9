"""The pytest plugin: hooks only.  Inert, and without torch, until a case is collected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from harness.cell import _settings
from harness.cell._case import KINDS, Case
from harness.cell._fixture import Thaw
from harness.cell._item import SESSION, CaseItem, collect
from harness.cell._report import Reporter
from harness.cell._session import Session
from harness.cell._stack import installed_versions

__all__: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    _settings.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "thawcheck: a case that runs on ranks of its own")
    for kind in KINDS:
        config.addinivalue_line("markers", f"kind_{kind}: a case of fault kind {kind}")
    config.stash[SESSION] = Session(_settings.settings_from(config))
    if not hasattr(config, "workerinput"):  # under xdist the controller does the writing
        config.pluginmanager.register(Reporter(*_settings.results_paths(config)), "thawcheck-reporter")


def pytest_unconfigure(config: pytest.Config) -> None:
    if SESSION in config.stash:
        config.stash[SESSION].close()
    reporter = config.pluginmanager.unregister(name="thawcheck-reporter")
    if isinstance(reporter, Reporter):
        reporter.close()


def pytest_report_header(config: pytest.Config) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in installed_versions().items())
    return f"thawcheck: {config.stash[SESSION].settings.device}; {versions}"


def pytest_pycollect_makeitem(collector: pytest.Collector, name: str, obj: object) -> list[pytest.Item] | None:
    # A case that was imported into a module belongs to the module that defines it.
    if isinstance(obj, Case) and isinstance(collector, pytest.Module) and obj.path == str(collector.path):
        return collect(collector, obj)
    return None


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome: Any = yield
    if isinstance(item, CaseItem) and call.when == "call" and item.record is not None:
        # A plain dictionary: it travels from xdist's workers to the controller.
        outcome.get_result().thaw_record = item.record.as_dict()


@pytest.fixture
def thaw(pytestconfig: pytest.Config) -> Thaw:
    """Run a case inside a plain test: ``thaw.run("case_name", stage=3)`` gives its record."""
    return Thaw(pytestconfig.stash[SESSION])
