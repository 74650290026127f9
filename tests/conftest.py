"""What several test files share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from rank_world import World, new_world

from harness.cell.plug import _session
from harness.cell.ranks._launch import Request, ZygoteLauncher

pytest_plugins = ["pytester"]


@pytest.fixture(scope="session")
def launcher() -> Iterator[ZygoteLauncher]:
    """Ranks on real torch and DeepSpeed; the first case pays for the imports."""
    started = ZygoteLauncher()
    yield started
    started.close()


@pytest.fixture
def path_stays() -> Iterator[None]:
    """A test that leaves its stand-ins on the path makes others fail, by an accident of order."""
    before = sys.path.copy()
    yield
    after, sys.path[:] = sys.path.copy(), before
    assert after == before


@pytest.fixture(autouse=True)
def plain_terminal(path_stays: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001  # undone before it looks
    """What is printed does not depend on where these tests run."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("FORCE_COLOR", raising=False)


class _OnShared:
    """A session's own launcher to all appearance; the ranks are those of the shared one."""

    def __init__(self, launcher: ZygoteLauncher) -> None:
        self._launcher = launcher
        self._tickets: set[str] = set()
        self.warnings: list[str] = []

    def submit(self, request: Request) -> str:
        ticket = self._launcher.submit(request)
        self._tickets.add(ticket)
        return ticket

    def close(self) -> None:
        for ticket in self._tickets:
            self._launcher.cancel(ticket)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._launcher, name)


@pytest.fixture
def warm(launcher: ZygoteLauncher, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions and commands run in this process use the shared ranks: real, and started once."""
    monkeypatch.setattr(_session, "ZygoteLauncher", lambda _: _OnShared(launcher))


@pytest.fixture
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Processes started by this test find stand-ins for the libraries: their ranks come at once,
    and can do all but train."""
    with new_world(tmp_path_factory.mktemp("world")) as made:
        made.stand_in()
        made.patch.setenv("PYTHONPATH", os.pathsep.join([str(made.libraries), *filter(None, sys.path)]))
        yield made
