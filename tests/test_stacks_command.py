"""``thawcheck stacks``: the list, the same for machines, and why a stack is what it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from small_matrix import make_matrix, observed, solve

from harness.control._exit import Exit
from harness.control.cli import main
from harness.control.locks import read_lock
from harness.control.stacks import Matrix


@pytest.fixture
def matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Matrix:
    """Solved, but for one; standing at its root."""
    monkeypatch.chdir(tmp_path)
    made = make_matrix(tmp_path)
    solve(made, unsolvable={"torch-2.2.1": "no wheel for Python 3.11"})
    return made


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["stacks", *arguments]) == Exit.OK
    out, err = capsys.readouterr()
    assert err == ""
    return out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["stacks", *arguments]) == Exit.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    return err.removeprefix("thawcheck: ").rstrip("\n")


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = json.loads(said(capsys, "--json", *arguments))
    return told


# -- the list --------------------------------------------------------------------------------


@pytest.mark.usefixtures("matrix")
def test_the_list_names_every_stack_in_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys) == (
        "latest        smoke      3.11  the newest\n"
        "dev-main      dev        3.12  main branches\n"
        "ds-0.17.0     deepspeed  3.11  DeepSpeed 0.17.0\n"
        "ds-0.19.0     deepspeed  3.11  DeepSpeed 0.19.0\n"
        "torch-2.2.1   torch      3.11  torch 2.2.1\n"
        "torch-2.13.0  torch      3.11  torch 2.13.0\n"
    )


@pytest.mark.usefixtures("matrix")
def test_names_and_labels_choose(capsys: pytest.CaptureFixture[str]) -> None:
    def names(*arguments: str) -> list[str]:
        return [line.split()[0] for line in said(capsys, *arguments).splitlines()]

    assert names("-m", "torch") == ["torch-2.2.1", "torch-2.13.0"]
    assert names("ds-0.17.0", "-m", "dev") == ["dev-main", "ds-0.17.0"]
    assert refused(capsys, "ds-0.17", "-m", "deepsped") == (
        "no stack is called 'ds-0.17'; did you mean 'ds-0.17.0' or 'ds-0.19.0'?; "
        "no stack has the label 'deepsped'; did you mean 'deepspeed'?"
    )


def test_json_has_what_a_ci_matrix_needs(capsys: pytest.CaptureFixture[str], matrix: Matrix) -> None:
    lock, _ = read_lock(matrix.lock("ds-0.17.0"))
    assert lock is not None
    observed("ds-0.17.0", lock=lock.answer).write(matrix.observed("ds-0.17.0"))
    observed("ds-0.19.0", lock="of an older lock").write(matrix.observed("ds-0.19.0"))
    matrix.lock("latest").unlink()
    told = {one["name"]: one for one in as_json(capsys)}
    assert told["ds-0.17.0"] == {
        "name": "ds-0.17.0",
        "description": "DeepSpeed 0.17.0",
        "labels": ["deepspeed"],
        "python": ["3.11", "3.12"],
        "requires": ["torch==2.13.0", "deepspeed==0.17.0", "numpy", "pytest", "pytest-timeout", "pytest-xdist"],
        "as_of": "2026-11-29",
        "dev": False,
        "lock": "fresh",
        "unsolvable": None,
        "torch": "2.13.0",
        "observed": True,
    }
    assert {name: one["observed"] for name, one in told.items() if one["observed"]} == {"ds-0.17.0": True}
    assert (told["latest"]["lock"], told["latest"]["torch"]) == ("missing", None)
    assert (told["torch-2.2.1"]["unsolvable"], told["torch-2.2.1"]["torch"]) == ("no wheel for Python 3.11", None)
    assert (told["dev-main"]["dev"], told["dev-main"]["lock"], told["dev-main"]["as_of"]) == (True, None, None)


@pytest.mark.usefixtures("matrix")
def test_a_shard_is_what_the_sweep_takes(capsys: pytest.CaptureFixture[str]) -> None:
    parts = []
    for number in (1, 2, 3):
        part = [one["name"] for one in as_json(capsys, "--shard", f"{number}/3")]
        assert main(["sweep", "--shard", f"{number}/3", "--dry-run"]) == Exit.OK
        assert part == [line.strip() for line in capsys.readouterr().out.splitlines()[1:-1]]
        parts += part
    # What is on one torch stands together; dev stacks are in no sweep.
    assert parts == ["torch-2.2.1", "latest", "ds-0.17.0", "ds-0.19.0", "torch-2.13.0"]
    assert as_json(capsys, "latest", "--shard", "2/2") == as_json(capsys, "latest")
    assert as_json(capsys, "latest", "--shard", "1/2") == []
    assert refused(capsys, "--shard", "4/3") == "--shard: a shard is I/N, as in 2/5, found '4/3'"
    assert refused(capsys, "-m", "dev", "--shard", "1/3") == (
        "dev-main: a dev stack is measured by no sweep, so it is in no shard"
    )


# -- why -------------------------------------------------------------------------------------


def test_explain_says_why_of_every_package(capsys: pytest.CaptureFixture[str], matrix: Matrix) -> None:
    assert said(capsys, "--explain", "ds-0.17.0") == (
        "ds-0.17.0: DeepSpeed 0.17.0\n"
        "labels: deepspeed\n"
        "run: tox run -e ds-0.17.0\n"
        f"lock: {matrix.lock('ds-0.17.0')}: answers its stack (by uv 1.0)\n"
        "\n"
        "python          3.11    held by [base.newest]; where it is missing: 3.12\n"
        "torch           2.13.0  held by [base.newest]\n"
        "deepspeed       0.17.0  moved by [sweep.deepspeed] in matrix/stacks.toml: every of >=0.17\n"
        "numpy           2.5.5   floats, the newest as of 2026-11-29, that suits the rest; held by [base.newest]\n"
        "pytest          9.2.0   the suite needs it; chosen by the solver, as of 2026-11-29\n"
        "pytest-timeout  2.4.0   the suite needs it; chosen by the solver, as of 2026-11-29\n"
        "pytest-xdist    3.8.0   the suite needs it; chosen by the solver, as of 2026-11-29\n"
        "sympy           1.14.0  chosen by the solver, as of 2026-11-29\n"
        "\n"
        "left out of [sweep.deepspeed]:\n"
        "ds-0.18.0  its wheel is empty\n"
    )
    assert "left out" not in said(capsys, "--explain", "torch-2.13.0")


def test_explain_of_a_stack_that_is_not_solved(capsys: pytest.CaptureFixture[str], matrix: Matrix) -> None:
    lines = said(capsys, "--explain", "torch-2.2.1").splitlines()
    assert lines[4] == "it has no solution: no wheel for Python 3.11"
    assert "torch           2.2.1   moved by [sweep.torch] in matrix/stacks.toml: last of minor of >=2.2" in lines
    assert "accelerate      0.25.0  the newest on the day when torch 2.2.1 came out" in lines
    assert "pytest          -       the suite needs it; chosen by the solver, as of 2026-11-29" in lines
    with matrix.lock("latest").open("a", encoding="utf-8") as file:
        file.write("scipy==1.0\n")
    lines = said(capsys, "--explain", "latest").splitlines()
    assert lines[3:5] == [
        f"lock: {matrix.lock('latest')}: was edited by hand after it was solved (by uv 1.0)",
        "solve it: thawcheck lock latest",
    ]


@pytest.mark.usefixtures("matrix")
def test_explain_of_a_dev_stack(capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, "--explain", "dev-main").splitlines()
    assert lines[3] == "lock: none; a dev stack takes what is newest on the day"
    assert [line.split() for line in lines[5:8]] == [
        ["python", "3.12", "the", "first", "that", "the", "stack", "names"],
        ["torch", "required"],
        ["deepspeed", "@", "git+https://example.org/deepspeed.git", "required"],
    ]


@pytest.mark.usefixtures("matrix")
def test_explain_takes_one_stack(capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, "--explain", "era-2024q1") == (
        "no stack is called 'era-2024q1'; there is: dev-main, ds-0.17.0, ds-0.19.0, latest, torch-2.13.0, torch-2.2.1"
    )
    assert refused(capsys, "--explain", "latest", "ds-0.17.0") == (
        "--explain tells of one stack, latest; leave out names, --label and --shard"
    )
