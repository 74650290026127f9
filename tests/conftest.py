"""What several test files share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.cell._launch import ZygoteLauncher


@pytest.fixture(scope="session")
def launcher() -> Iterator[ZygoteLauncher]:
    """Ranks on real torch and DeepSpeed; the first case pays for the imports."""
    started = ZygoteLauncher()
    yield started
    started.close()
