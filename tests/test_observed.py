"""Observed files with faults: each is told with its file and line, and none is a traceback or is taken as it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from observed_world import make_matrix
from small_matrix import observed, outcome

from harness.cell import Verdict
from harness.cell.outcome._observed import ObservedError, read_observed
from harness.cell.outcome._record import Failure
from harness.control._exit import Exit
from harness.control.cli import main

#: Of one outcome, with a failure.
WHOLE: Final = observed(
    "a", outcome("late", Verdict.RAISES, 0, failure=Failure("engine", "IndexError", "out of range"))
)
AGAIN: Final = "measure the stack again: thawcheck sweep a --again"


def faults(path: Path, text: str) -> list[str]:
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ObservedError) as caught:
        read_observed(path)
    return [fault.removeprefix(f"{path}:") for fault in caught.value.faults]


def changed(line: int, change: Mapping[str, Any]) -> str:
    """The text of a whole file but for some keys of a line."""
    lines = [json.loads(one) for one in WHOLE.lines()]
    lines[line - 1].update(change)
    return "".join(f"{json.dumps(one)}\n" for one in lines)


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"observed": True}, "format True, written by 1.0; this thawcheck reads format 1: "),
        ({"observed": 1.0}, "format 1.0, written by 1.0; this thawcheck reads format 1: "),
        ({"observed": 2, "harness": [1]}, "format 2, written by [1]; this thawcheck reads format 1: "),
        ({"measured": "yesterday"}, "measured must be a day as YYYY-MM-DD, found 'yesterday'"),
        ({"measured": "20261130"}, "measured must be a day as YYYY-MM-DD, found '20261130'"),
        ({"measured": "2026-11-31"}, "measured must be a day as YYYY-MM-DD, found '2026-11-31'"),
        ({"measured": 2026}, "measured must be a text, found 2026"),
        ({"device": "tpu"}, "no device is called 'tpu'; there is: cpu, cuda"),
        ({"device": ["cpu"]}, "device must be a text, found ['cpu']"),
        ({"versions": {}}, "versions must say what was installed, and are empty"),
        ({"versions": {"torch": 2}}, "versions must be packages and versions, found {'torch': 2}"),
        ({"versions": None}, "versions must be packages and versions, found None"),
        ({"outcomes": 7}, f"says 7 outcomes, and 1 follow; {AGAIN}"),
        ({"outcomes": True}, f"says True outcomes, and 1 follow; {AGAIN}"),
        ({"unsolvable": ["no"]}, "unsolvable must be a text, found ['no']"),
    ],
)
def test_heads_with_a_fault(tmp_path: Path, change: dict[str, Any], fault: str) -> None:
    (found,) = (one for one in faults(tmp_path / "a.jsonl", changed(1, change)) if one.startswith("1: "))
    assert found.startswith(f"1: {fault}")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"world": -2}, "world must be a number of ranks, 1 or more, found -2"),
        ({"world": 0}, "world must be a number of ranks, 1 or more, found 0"),
        ({"world": True}, "world must be a number of ranks, 1 or more, found True"),
        ({"world": "2"}, "world must be a number of ranks, 1 or more, found '2'"),
        ({"variants": []}, "variants must be a list of one or more, found []"),
        ({"variants": "mlp-z0"}, "variants must be a list of one or more, found 'mlp-z0'"),
        ({"variants": [0]}, "variants must be a list of one or more, found [0]"),
        ({"parameters": {"NO_GRAD": "abc"}}, "parameters must be verdicts, each with a list of names, found "),
        ({"parameters": {"NO_GRAD": []}}, "parameters must be verdicts, each with a list of names, found "),
        ({"parameters": ["NO_GRAD"]}, "parameters must be verdicts, each with a list of names, found "),
        ({"parameters": {"NO": ["a"]}}, "'NO' is not a valid Verdict"),
        (
            {"failure": {"moment": "engine", "type": "E", "message": 7}},
            "failure must be a moment, a type and a message",
        ),
        ({"failure": {"moment": "engine"}}, "failure must be a moment, a type and a message"),
        ({"failure": "E"}, "failure must be a moment, a type and a message"),
        ({"case": 7}, "case must be a text, found 7"),
        ({"verdict": ["HANG"]}, "verdict must be a text, found ['HANG']"),
        ({"world": -2, "case": None}, "case must be a text, found None; world must be a number of ranks"),
    ],
)
def test_outcomes_with_a_fault(tmp_path: Path, change: dict[str, Any], fault: str) -> None:
    (found,) = faults(tmp_path / "a.jsonl", changed(2, change))
    assert found.startswith(f"2: is no outcome: {fault}")


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    head = json.dumps({"observed": 1, "stack": "a"})
    assert faults(tmp_path / "a.jsonl", f'{head}\n{{"world": 2}}\n') == [
        "1: harness, measured, device, lock, versions missing",
        "2: is no outcome: case, verdict, variants missing",
    ]


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "1e5", "2.0"])
def test_numbers_that_count_nothing(tmp_path: Path, number: str) -> None:
    text = changed(2, {}).replace('"world": 2', f'"world": {number}')
    (found,) = faults(tmp_path / "a.jsonl", text)
    assert found.startswith("2: is no outcome: world must be a number of ranks, 1 or more, found ")


def test_deep_lines(tmp_path: Path) -> None:
    """That no reader can follow; and such as it just can, but no message shows whole."""
    path = tmp_path / "a.jsonl"
    assert faults(path, changed(2, {}) + nested(200_000)) == [f"3: is nested too deeply; {AGAIN}"]
    for depth in (50, 400, 800, 900, 950):
        for line, key in ((1, "measured"), (1, "versions"), (2, "world"), (2, "verdict"), (2, "failure")):
            found = faults(path, changed(line, {key: "HERE"}).replace('"HERE"', nested(depth)))
            assert [one[:2] for one in found] == [f"{line}:"]
            assert len(found[0]) < 200


def test_a_stack_without_solution_has_no_outcomes(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    assert faults(path, changed(1, {"unsolvable": "no wheel", "versions": {}})) == [
        f"2: has an outcome, but line 1 says that the stack is unsolvable; {AGAIN}"
    ]
    observed("a", unsolvable="no wheel", versions={}).write(path)
    assert read_observed(path).unsolvable == "no wheel"


def test_messages_with_other_ends_of_lines_read_back(tmp_path: Path) -> None:
    failure = Failure("engine", "E", "a\u2028b\u0085c\x0bd\r\ne")
    whole = observed("a", outcome("late", Verdict.RAISES, 0, failure=failure))
    whole.write(tmp_path / "a.jsonl")
    assert read_observed(tmp_path / "a.jsonl").outcomes == whole.outcomes


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ('"device":"cpu"', '"device":"tpu"', 1),
        ('"world":2', '"world":1e999', 2),
        ('"message":"out of range"', '"message":7', 2),
        ('"world":2', f'"world":{nested(200_000)}', 2),
    ],
    ids=["device", "world", "message", "deep"],
)
def test_every_reader_refuses_them_with_file_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], before: str, after: str, line: int
) -> None:
    folder = tmp_path / "matrix"
    make_matrix(folder)
    path = folder / "observed" / "a.jsonl"
    WHOLE.write(path)
    path.write_text(path.read_text(encoding="utf-8").replace(before, after), encoding="utf-8")
    for arguments in (
        ["expect", "--matrix", str(folder)],
        ["expect", "--matrix", str(folder), "--update"],
        ["lint", "--matrix", str(folder)],
        ["table", "--matrix", str(folder)],
        ["merge", str(path), "--into", str(tmp_path / "into")],
    ):
        assert main(arguments) == Exit.USAGE
        assert f"{path}:{line}: " in capsys.readouterr().err
