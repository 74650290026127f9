"""``python -m benchmarks.drivers``: its judgement, on made-up seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# Behind everything else, so that an installed thawcheck still goes first.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarks import drivers
from benchmarks.drivers import BOUND, VARIANTS, NoFigures, main, ratios, render
from harness.cases.drivers import frozen_before_any_driver

#: The second round was disturbed; within each, all were twice as slow as a plain loop or less.
SECONDS = {
    "plain loop": [0.5, 5.0, 0.5],
    "accelerate": [0.75, 7.5, 0.75],
    "Trainer": [1.0, 5.0, 1.0],
    "PEFT": [0.5, 5.0, 4.0],
}


def test_ratios_are_taken_within_a_round() -> None:
    assert ratios(SECONDS) == {"accelerate": 1.5, "Trainer": 2.0, "PEFT": 1.0}


def test_a_line_each_marks_what_is_too_slow() -> None:
    lines = [line.split() for line in render({**SECONDS, "Trainer": [1.1, 11.0, 1.1]})]

    assert lines[1] == ["plain", "loop", "0.50", "1"]
    assert lines[2:] == [["accelerate", "0.75", "1.50"], ["Trainer", "1.10", "2.20", "!"], ["PEFT", "4.00", "1.00"]]


def test_what_is_measured_is_in_the_case() -> None:
    assert BOUND == 2.0
    assert {*VARIANTS.values()} <= {*frozen_before_any_driver.variants}


@pytest.mark.parametrize(
    ("given", "status", "said"),
    [
        pytest.param(SECONDS, 0, "", id="within the bound"),
        pytest.param({**SECONDS, "PEFT": [1.1] * 3}, 1, "! more than 2 times a plain loop: PEFT", id="too slow"),
        pytest.param(NoFigures("it hangs"), 1, "benchmarks: nothing was measured: it hangs", id="no figures"),
    ],
)
def test_exit_status(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    given: dict[str, list[float]] | NoFigures,
    status: int,
    said: str,
) -> None:
    def measure(rounds: int, _: Callable[[str], None]) -> dict[str, list[float]]:
        assert rounds == 3
        if isinstance(given, NoFigures):
            raise given
        return given

    monkeypatch.setattr(drivers, "measure", measure)

    assert main(["--rounds", "3"]) == status
    out, err = capsys.readouterr()
    assert said in out + err
