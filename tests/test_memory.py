"""What an optimizer keeps, counted on two real ranks."""

from __future__ import annotations

import memory_cases
import pytest

from harness.cell import Case, Options
from harness.cell.ranks._launch import Request, ZygoteLauncher

_ADAM, _SGD = memory_cases.counts_what_adam_keeps, memory_cases.counts_what_momentum_keeps


@pytest.mark.parametrize(
    ("case", "stage", "kept"),
    [
        # every rank keeps all of it, two elements for a weight
        (_ADAM, 0, 2 * 2),
        (_ADAM, 1, 2),
        (_ADAM, 3, 2),
        (_SGD, 2, 1),
    ],
)
def test_all_ranks_together_and_no_step_counts(launcher: ZygoteLauncher, case: Case, stage: int, kept: int) -> None:
    outcome = launcher.result(launcher.submit(Request(case, Options(model="mlp", stage=stage), world=2)))
    assert f"counted {kept * memory_cases.SIZE}" in outcome.record.notes
