"""Weights read from partitions are the weights."""

from __future__ import annotations

import partition_cases
import pytest

from harness.cell import Options, Verdict
from harness.cell.ranks._launch import Request, ZygoteLauncher


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("options", partition_cases.WAYS, ids=lambda options: options.id)
def test_partitions_are_what_deepspeed_gathers(launcher: ZygoteLauncher, options: Options, world: int) -> None:
    """On three ranks most parameters do not divide evenly, and the last share is padded."""
    request = Request(partition_cases.partitions_are_what_deepspeed_gathers, options, world)
    record = launcher.result(launcher.submit(request)).record

    assert record.verdict is Verdict.TRAINS, record.headline


def test_reading_changes_no_state(launcher: ZygoteLauncher) -> None:
    case = partition_cases.reading_changes_no_state
    request = Request(case, case.variants[0], 2)
    record = launcher.result(launcher.submit(request)).record

    assert record.verdict is Verdict.TRAINS, record.headline
