"""``python -m benchmarks.stacks``: what it says of figures, and of stacks that give none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# Behind everything else, so that an installed thawcheck still goes first.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarks import stacks
from benchmarks.stacks import INSTALL_SECONDS, Cost, NoFigures, main, render
from harness.control.stacks import Matrix, Stack, load_matrix

QUICK = Cost("latest", INSTALL_SECONDS, 10.0, 5.0, 0.25, 0.5)
LATE = Cost("oldest", INSTALL_SECONDS + 0.1, 10.0, 5.0, 0.25, 0.5)


def give(monkeypatch: pytest.MonkeyPatch, **costs: Cost | str) -> None:
    """Figures, or a reason why there are none."""

    def measure(stack: Stack, matrix: Matrix, uv: str, repeat: int) -> Cost:
        assert stack is matrix.stacks[stack.name]
        assert uv
        assert repeat == 3
        cost = costs[stack.name]
        if isinstance(cost, str):
            raise NoFigures(cost)
        return cost

    monkeypatch.setattr(stacks, "measure", measure)
    monkeypatch.setattr(stacks, "find_uv", lambda: "uv")


def test_a_line_per_stack_marks_an_environment_that_is_late() -> None:
    lines = render([QUICK, LATE]).splitlines()

    assert lines[0].split()[:2] == ["stack", "install"]
    assert lines[1].split() == ["latest", "15.0", "10.0", "5.0", "0.25", "0.50"]
    assert lines[2].split() == ["oldest", "15.1", "!", "10.0", "5.0", "0.25", "0.50"]


@pytest.mark.parametrize(
    ("costs", "status", "said"),
    [
        pytest.param({"latest": QUICK, "oldest": QUICK}, 0, "", id="in time"),
        pytest.param({"latest": QUICK, "oldest": LATE}, 1, "! more than 15 s for the environment: oldest", id="late"),
        pytest.param({"latest": QUICK, "oldest": "no wheel"}, 1, "benchmarks: no wheel", id="no figures"),
    ],
)
def test_exit_status(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    costs: dict[str, Cost | str],
    status: int,
    said: str,
) -> None:
    """What was measured is printed all the same."""
    give(monkeypatch, **costs)

    assert main(["latest", "oldest", "--repeat", "3"]) == status
    out, err = capsys.readouterr()
    assert said in out + err
    assert "latest" in out


def test_an_unknown_stack(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    give(monkeypatch)

    with pytest.raises(SystemExit) as left:
        main(["lastest"])
    assert left.value.code == 2
    assert "no stack is called lastest" in capsys.readouterr().err


def test_a_stack_without_a_solution_gives_no_figures() -> None:
    matrix = load_matrix(stacks.ROOT / "matrix")

    with pytest.raises(NoFigures, match=r"ds-0\.13\.0: deepspeed==0\.13\.0 cannot be built"):
        stacks.measure(matrix.stacks["ds-0.13.0"], matrix, "uv", 1)
