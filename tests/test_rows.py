"""Parameters that are meant to train in part: which rows moved, and which should have."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest
import torch
from honest_run import HonestRun
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import rows

from harness.cell import Case, CaseRecord, Hyper, Options, ParameterVerdict, Verdict
from harness.cell.outcome._show import parameter_table
from harness.cell.ranks._launch import Request, ZygoteLauncher

_WEIGHT, _BIAS = "second.weight", "second.bias"
_MEANT = slice(1, 3)
_OTHERS = (0, 3, 4)
#: Neither decays nor remembers, so that other rows keep still by themselves.
_HYPER = Hyper("SGD", lr=0.5, weight_decay=0.0)

both = pytest.mark.parametrize("precision", ["fp32", "bf16"])


def run_of(precision: str = "fp32", *steps: Mapping[str, slice]) -> HonestRun:
    """Three honest steps; by default rows 1 and 2 of a matrix and of a vector train in each."""
    return HonestRun(precision, hyper=_HYPER, rows=steps or ({_WEIGHT: _MEANT, _BIAS: _MEANT},) * 3)


def nudge(run: HonestRun, name: str, row: int, number: int) -> None:
    """From step ``number`` on, one element of the row is off by as little as can be."""
    changed = run.steps[number - 1].weights[name][row].clone()
    element = changed.view(-1)[:1]
    element.copy_(torch.nextafter(element, torch.full_like(element, 9.0)))
    later = run.steps[number:]
    for tensors in (run.steps[number - 1].weights, *(one.before for one in later), *(one.weights for one in later)):
        tensors[name] = tensors[name].clone()
        tensors[name][row] = changed


# -- judged ------------------------------------------------------------------------------------


@both
def test_an_honest_run_moves_the_rows_that_are_meant_and_no_other(precision: str) -> None:
    judged = run_of(precision).judged()

    assert {one.verdict for one in judged.values()} == {Verdict.TRAINS, Verdict.FROZEN}
    for name in (_WEIGHT, _BIAS):
        assert (judged[name].rows, judged[name].moved_rows) == ("1:3", "1:3")
    assert (judged["scale"].rows, judged["scale"].moved_rows) == ("", "")


@both
@settings(deadline=None, max_examples=20)
@given(st.sampled_from([_WEIGHT, _BIAS]), st.sampled_from(_OTHERS), st.integers(1, 3), st.data())
def test_no_bit_of_another_row_may_change(precision: str, name: str, row: int, step: int, more: st.DataObject) -> None:
    with_grad = more.draw(st.booleans())
    run = run_of(precision)
    nudge(run, name, row, step)
    if with_grad:
        run.steps[step - 1].grads[name][row] = 1e-3

    one = run.judged()[name]

    assert one.verdict is (Verdict.EXTRA_TRAINED if with_grad else Verdict.FROZEN_DRIFT)
    assert (one.moment, one.expected) == (f"step {step}", "bit-equal weights outside rows 1:3")
    assert one.found.startswith(f"rows {row} moved by ")
    assert one.found.endswith(", with a gradient" if with_grad else ", with no gradient")
    assert one.rows == "1:3"
    assert one.moved_rows == {0: "0:3", 3: "1:4", 4: "1:3, 4"}[row]


def test_a_row_whose_master_moves_has_moved() -> None:
    run = run_of("bf16")
    run.steps[1].masters[_WEIGHT][4] += 1e-6
    for later in run.steps[2:]:
        later.masters[_WEIGHT][4] += 1e-6

    one = run.judged()[_WEIGHT]

    assert (one.verdict, one.moment) == (Verdict.FROZEN_DRIFT, "step 2")
    assert one.found.endswith(" in their fp32 master, with no gradient")
    assert one.moved_rows == "1:3, 4"


def test_a_gradient_in_another_row_that_does_nothing_is_no_fault() -> None:
    run = run_of()
    run.steps[0].grads[_WEIGHT][4] = 1.0

    assert run.judged()[_WEIGHT].verdict is Verdict.TRAINS


@both
def test_meant_rows_are_judged_as_whole_parameters_are(precision: str) -> None:
    wrong = run_of(precision)
    wrong.steps[0].grads[_WEIGHT][2] *= 3
    assert wrong.judged()[_WEIGHT].verdict is Verdict.WRONG_GRAD

    none = run_of(precision)
    none.steps[0].grads[_WEIGHT].zero_()
    assert none.judged()[_WEIGHT].verdict is Verdict.NO_GRAD

    far = run_of(precision)
    for tensors in (far.steps[2].weights, far.steps[2].masters):
        if _WEIGHT in tensors:
            tensors[_WEIGHT][2] += 0.5
    assert far.judged()[_WEIGHT].verdict is Verdict.WRONG_UPDATE

    still = run_of(precision)
    for step in still.steps:
        for tensors in (step.before, step.weights, step.masters):
            if _WEIGHT in tensors:
                tensors[_WEIGHT] = still.first[_WEIGHT].to(tensors[_WEIGHT])
    assert still.judged()[_WEIGHT].verdict is Verdict.NO_UPDATE
    assert still.judged()[_WEIGHT].moved_rows == "none"


def test_rows_count_in_the_steps_that_have_them() -> None:
    partly: Mapping[str, slice] = {_WEIGHT: _MEANT}

    later = run_of("fp32", {}, partly, partly).judged()[_WEIGHT]
    assert (later.verdict, later.rows, later.moved_rows) == (Verdict.TRAINS, "1:3", "1:3")

    earlier = run_of("fp32", partly, partly, {})
    assert earlier.judged()[_WEIGHT].verdict is Verdict.TRAINS
    # In the last step all rows are meant to train, and to be looked at.
    earlier.steps[2].weights[_WEIGHT][0] += 0.5
    assert earlier.judged()[_WEIGHT].verdict is Verdict.WRONG_UPDATE


def test_another_shape_than_the_twins_is_a_verdict_and_the_only_one() -> None:
    run = HonestRun()
    for name in ("first.weight", "second.weight"):
        run.first[name] = run.first[name][:3]

    judged = run.judged()

    assert {name: one.verdict for name, one in judged.items()} == {
        "first.weight": Verdict.FROZEN_DRIFT,
        "second.weight": Verdict.WRONG_UPDATE,
    }
    assert judged["second.weight"].expected == "shape (5, 5), as the twin's"
    assert judged["second.weight"].moment == "engine"


# -- shown -------------------------------------------------------------------------------------


def record_with(*parameters: ParameterVerdict) -> CaseRecord:
    return CaseRecord("one", "E", {}, "one[x]", Verdict.TRAINS, "", 2, "cpu", "here", parameters=[*parameters])


def test_the_table_has_rows_where_a_parameter_trains_in_part() -> None:
    whole = ParameterVerdict("whole", Verdict.TRAINS, intended=True, flag=True, local_shape=[8], full_shape=[8])
    part = dataclasses.replace(whole, name="part", verdict=Verdict.FROZEN_DRIFT, rows="2:5", moved_rows="0:8")

    assert "rows" not in parameter_table(record_with(whole))
    head, _, *lines = parameter_table(record_with(whole, part)).splitlines()
    assert head.split()[-4:] == ["rows", "meant", "rows", "moved"]
    assert [line.split()[-2:] for line in lines] == [["-", "-"], ["2:5", "0:8"]]


# -- in real ranks -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "verdict", "moved"),
    [
        (rows.as_meant, Verdict.TRAINS, "2:5"),
        (rows.one_too_many, Verdict.EXTRA_TRAINED, "2:6"),
        (rows.one_too_few, Verdict.WRONG_GRAD, "2:4"),
        (rows.none_of_them, Verdict.NO_GRAD, "5:8"),
        (rows.decayed, Verdict.FROZEN_DRIFT, "0:8"),
    ],
    ids=lambda one: one.name if isinstance(one, Case) else "",
)
def test_a_planted_fault_is_told_by_row(launcher: ZygoteLauncher, case: Case, verdict: Verdict, moved: str) -> None:
    asked = [launcher.submit(Request(case, options, 2)) for options in case.variants]
    for ticket in asked:
        outcome = launcher.result(ticket)
        assert not outcome.malformed
        head = next(one for one in outcome.record.parameters if one.name == rows.HEAD)
        assert (outcome.record.verdict, head.verdict) == (verdict, verdict), outcome.record.headline
        assert (head.rows, head.moved_rows) == ("2:5", moved)


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (rows.none_meant, "rows of 'head.weight': 8:12 is none of shape (8, 32)"),
        (rows.of_what_is_not_meant, "rows of 'stem.weight': the intent does not name it"),
    ],
    ids=["none", "not meant"],
)
def test_rows_that_make_no_sense_are_refused(launcher: ZygoteLauncher, case: Case, said: str) -> None:
    options: Options = case.variants[0]
    assert said in launcher.result(launcher.submit(Request(case, options, 2))).malformed
