"""The judge on runs made by hand: honest ones, and ones tampered with in places DeepSpeed is hard to break."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from honest_run import HonestRun, start_of
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from harness.cell import Hyper, Verdict
from harness.cell.oracle._judge import bit_equal, judge_saved, relative_error
from harness.cell.oracle._tolerance import TOLERANCES

_INTENT = frozenset({"second.weight", "second.bias", "scale"})
_FROZEN = sorted(frozenset(start_of(0)) - _INTENT)
_TRAINED = sorted(_INTENT)
_NAN = float("nan")

both = pytest.mark.parametrize("precision", ["fp32", "bf16"])


def only(run: HonestRun, name: str) -> tuple[Verdict, str, str]:
    """Verdict, moment and evidence of ``name``, all other parameters being as they should."""
    verdicts = run.judged()
    one = verdicts.pop(name)
    for other in verdicts.values():
        assert other.verdict is (Verdict.TRAINS if other.intended else Verdict.FROZEN), (other.name, other.found)
    return one.verdict, one.moment, one.found


@both
@pytest.mark.parametrize("hyper", [Hyper(), Hyper(optimizer="SGD", lr=0.1, momentum=0.9)], ids=["AdamW", "SGD"])
def test_an_honest_run_is_found_to_be_one(precision: str, hyper: Hyper) -> None:
    verdicts = HonestRun(precision, hyper=hyper).judged()

    assert {name for name, one in verdicts.items() if one.verdict is Verdict.TRAINS} == _INTENT
    assert {name for name, one in verdicts.items() if one.verdict is Verdict.FROZEN} == set(_FROZEN)
    for name, one in verdicts.items():
        assert one.intended is one.flag is (name in _INTENT)
        assert one.group == (0 if name in _INTENT else None)
        assert list(one.full_shape) == list(start_of(0)[name].shape)
        if one.intended:
            assert one.moved is not None
            assert one.twin_moved is not None
            assert one.moved == pytest.approx(one.twin_moved, rel=0.2)
        else:
            assert (one.moved, one.twin_moved, one.grad_error, one.update_error) == (0.0, None, None, None)


# -- outside the intent ------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(data=st.data(), precision=st.sampled_from(["fp32", "bf16"]), towards=st.sampled_from([-math.inf, math.inf]))
def test_no_bit_of_a_frozen_weight_may_change(data: st.DataObject, precision: str, towards: float) -> None:
    run = HonestRun(precision)
    name = data.draw(st.sampled_from(_FROZEN))
    number = data.draw(st.integers(1, 3))
    flag = data.draw(st.booleans())
    weights = run.steps[number - 1].weights[name].clone()
    place = data.draw(st.integers(0, weights.numel() - 1))
    weights.view(-1)[place] = torch.nextafter(weights.view(-1)[place], torch.tensor(towards, dtype=weights.dtype))
    run.steps[number - 1].weights[name] = weights
    for later in run.steps[number:]:
        later.before[name] = later.weights[name] = weights
    for step in run.steps:
        step.flags[name] = flag

    verdict, moment, found = only(run, name)

    assert verdict is (Verdict.EXTRA_TRAINED if flag else Verdict.FROZEN_DRIFT)
    assert moment == f"step {number}"
    assert found.startswith(f"requires_grad={flag} and moved by ")


def test_a_zero_that_changes_its_sign_has_changed() -> None:
    run = HonestRun()
    run.start["first.bias"] = torch.zeros(5)
    run.first["first.bias"] = torch.zeros(5)
    for step in run.steps:
        step.before["first.bias"] = torch.zeros(5)
        step.weights["first.bias"] = torch.zeros(5)
    run.steps[2].weights["first.bias"] = -torch.zeros(5)

    # The others are judged from elsewhere now, as their twin starts with a zero bias; not asked here.
    assert run.judged()["first.bias"].verdict is Verdict.FROZEN_DRIFT


def test_what_changes_between_two_steps_has_changed() -> None:
    run = HonestRun()
    nudged = run.first["last.bias"] + 1.0
    for step in run.steps[1:]:
        step.before["last.bias"] = step.weights["last.bias"] = nudged

    # The twin follows, so the gradients of the others, taken before the change, are not right any more.
    one = run.judged()["last.bias"]
    assert (one.verdict, one.moment) == (Verdict.FROZEN_DRIFT, "step 2")


def test_what_is_frozen_from_later_on_may_move_before() -> None:
    early, late = _INTENT, _INTENT - {"scale"}
    run = HonestRun(intents=(early, early, late))

    assert run.judged()["scale"].verdict is Verdict.TRAINS

    run.steps[2].weights["scale"] = run.steps[2].weights["scale"] + 1e-3
    assert only(run, "scale")[:2] == (Verdict.FROZEN_DRIFT, "step 3")


# -- gradients ---------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    factor=st.floats(-4.0, 4.0),
    name=st.sampled_from(_TRAINED),
    number=st.integers(1, 3),
    precision=st.sampled_from(["fp32", "bf16"]),
)
def test_a_gradient_is_wrong_exactly_beyond_the_tolerance(
    factor: float, name: str, number: int, precision: str
) -> None:
    error, tolerance = abs(factor - 1), TOLERANCES[precision].grad
    assume(not 0.9 * tolerance < error < 1.1 * tolerance)
    assume(factor == 0 or abs(factor) > 1e-30)
    run = HonestRun(precision)
    run.steps[number - 1].grads[name] *= factor

    one = run.judged()[name]

    assert one.grad_error == pytest.approx(error, rel=1e-3, abs=1e-6)
    if factor == 0:
        assert (one.verdict, one.found) == (Verdict.NO_GRAD, "all zero")
        assert one.moment == f"step {number} backward"
    elif error > tolerance:
        assert (one.verdict, one.moment) == (Verdict.WRONG_GRAD, f"step {number} backward")


@pytest.mark.parametrize("value", [_NAN, math.inf])
@pytest.mark.parametrize("number", [1, 3])
def test_a_gradient_that_is_no_number_is_wrong(value: float, number: int) -> None:
    run = HonestRun()
    run.steps[number - 1].grads["second.weight"][0, 0] = value

    verdict, moment, found = only(run, "second.weight")

    assert (verdict, moment) == (Verdict.WRONG_GRAD, f"step {number} backward")
    assert found == f"relative error {value}, largest {value}"
    error = run.judged()["second.weight"].grad_error
    assert error == pytest.approx(value, nan_ok=True)


@pytest.mark.parametrize(("group", "flag"), [(None, True), (None, False), (0, False)])
def test_no_reduced_gradient_where_no_rank_steps_it_is_none(group: int | None, *, flag: bool) -> None:
    run = HonestRun()
    for step in run.steps:
        del step.grads["scale"]
        step.groups["scale"], step.flags["scale"] = group, flag

    assert only(run, "scale") == (Verdict.NO_GRAD, "step 1 backward", f"none (requires_grad={flag})")


def test_a_local_gradient_that_is_never_reduced_is_wrong() -> None:
    run = HonestRun()
    for step in run.steps:
        step.local["scale"] = step.grads.pop("scale") * 1.5

    verdicts = run.judged()

    one = verdicts["scale"]
    assert (one.verdict, one.found) == (Verdict.WRONG_GRAD, "a local gradient, never reduced")
    assert one.grad_error == pytest.approx(0.5, rel=1e-4)


def test_naive_unfreezing_is_known_by_what_never_moves() -> None:
    """A local gradient and no update: the second is what a user sees, the first says why."""
    run = HonestRun()
    for step in run.steps:
        step.local["scale"] = step.grads.pop("scale")
        step.groups["scale"] = None
        step.before["scale"] = step.weights["scale"] = run.first["scale"]

    one = run.judged()["scale"]

    assert (one.verdict, one.moment) == (Verdict.NO_UPDATE, "step 1")
    assert one.found == "bit-equal to the start; in no optimizer group; a local gradient, never reduced"


def test_a_gradient_that_the_twin_has_not_is_not_asked_for() -> None:
    run = HonestRun()
    for step, shards in zip(run.steps, run.shards, strict=True):
        for micros in shards:
            micros[0].scale = 0.0
        step.grads.clear()
        step.weights = step.before = dict(run.first)
    # Without decay: a step on zero gradients goes nowhere.
    run.hyper = Hyper(weight_decay=0.0)

    assert {one.verdict for one in run.judged().values()} == {Verdict.TRAINS, Verdict.FROZEN}


# -- steps -------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    factor=st.floats(-4.0, 4.0),
    name=st.sampled_from(_TRAINED),
    number=st.integers(1, 3),
    precision=st.sampled_from(["fp32", "bf16"]),
)
def test_a_step_is_wrong_exactly_beyond_the_tolerance(factor: float, name: str, number: int, precision: str) -> None:
    error, tolerance = abs(factor - 1), TOLERANCES[precision].update
    assume(not 0.5 * tolerance < error < 2 * tolerance)
    run = HonestRun(precision)
    step = run.steps[number - 1]
    start = run.steps[number - 2].masters.get(name) if number > 1 and precision == "bf16" else None
    start = step.before[name].float() if start is None else start
    end = step.masters.get(name, step.weights[name])
    wanted = start + factor * (end - start)
    step.weights[name] = wanted.to(step.weights[name].dtype)
    if name in step.masters:
        step.masters[name] = wanted
    del run.steps[number:], run.shards[number:]

    one = run.judged()[name]

    if error < tolerance:
        assert one.verdict is Verdict.TRAINS, one.found
    elif number == 1 and torch.equal(wanted.to(run.first[name].dtype), run.first[name]):
        assert one.verdict in (Verdict.NO_UPDATE, Verdict.WRONG_UPDATE)
    else:
        assert (one.verdict, one.moment) == (Verdict.WRONG_UPDATE, f"step {number}"), one.found


@both
def test_what_never_moves_has_no_update(precision: str) -> None:
    run = HonestRun(precision, stuck=("scale", (1, 2, 3)))

    one = run.judged()["scale"]

    assert (one.verdict, one.moment, one.moved) == (Verdict.NO_UPDATE, "step 1", 0.0)
    assert one.found == "bit-equal to the start; in optimizer group 0"
    assert one.twin_moved


@both
@pytest.mark.parametrize("number", [1, 2, 3])
def test_what_stands_still_in_one_step_has_taken_a_wrong_step(precision: str, number: int) -> None:
    run = HonestRun(precision, stuck=("scale", (number,)))

    assert only(run, "scale")[:2] == (Verdict.WRONG_UPDATE, f"step {number}")


def test_a_weight_that_is_no_number_has_taken_a_wrong_step() -> None:
    run = HonestRun()
    run.steps[2].weights["second.bias"] = torch.full((5,), _NAN)

    assert only(run, "second.bias")[:2] == (Verdict.WRONG_UPDATE, "step 3")


@pytest.mark.parametrize("value", [_NAN, 7.0])
def test_the_models_own_copy_must_follow_its_master(value: float) -> None:
    run = HonestRun("bf16")
    run.steps[2].weights["second.bias"] = torch.full((5,), value, dtype=torch.bfloat16)

    assert only(run, "second.bias")[:2] == (Verdict.WRONG_UPDATE, "step 3")


@pytest.mark.parametrize("factor", [0.0, 1.001, _NAN])
def test_the_master_must_move_with_the_models_own_copy(factor: float) -> None:
    run = HonestRun("bf16")
    last, before = run.steps[2].masters, run.steps[1].masters
    last["second.bias"] = before["second.bias"] + factor * (last["second.bias"] - before["second.bias"])

    assert only(run, "second.bias")[:2] == (Verdict.WRONG_UPDATE, "step 3")


def test_a_step_too_small_for_bf16_is_told_by_the_master() -> None:
    tiny = Hyper(lr=1e-6)
    assert HonestRun("bf16", hyper=tiny).judged()["scale"].moved == 0.0
    assert only(HonestRun("bf16", hyper=tiny), "scale")[0] is Verdict.TRAINS

    stuck = HonestRun("bf16", hyper=tiny)
    for step in stuck.steps:
        step.masters["scale"] = stuck.first["scale"].float()

    assert only(stuck, "scale")[:2] == (Verdict.NO_UPDATE, "step 1")


def test_a_master_that_drifts_where_none_should_is_a_drift() -> None:
    run = HonestRun("bf16")
    for step in run.steps:
        step.masters["first.bias"] = run.first["first.bias"].float()
    run.steps[1].masters["first.bias"] = run.steps[2].masters["first.bias"] * (1 + 1e-6)

    verdict, moment, found = only(run, "first.bias")

    assert (verdict, moment) == (Verdict.FROZEN_DRIFT, "step 2")
    assert found.endswith(" in its fp32 master")


def test_a_master_that_stays_where_training_left_it_does_not_drift() -> None:
    all_of_it = frozenset({"second.weight", "scale"})
    run = HonestRun("bf16", intents=(all_of_it, frozenset({"second.weight"}), frozenset({"second.weight"})))
    for step in run.steps[1:]:
        step.masters["scale"] = run.steps[0].masters["scale"]

    assert only(run, "scale")[0] is Verdict.TRAINS

    run.steps[2].masters["scale"] = run.steps[0].masters["scale"] * (1 + 1e-6)

    assert only(run, "scale")[:2] == (Verdict.FROZEN_DRIFT, "step 3")


@pytest.mark.parametrize(("name", "verdict"), [("scale", Verdict.WRONG_UPDATE), ("first.bias", Verdict.FROZEN_DRIFT)])
def test_other_starting_weights_than_were_given_show_at_the_engine(name: str, verdict: Verdict) -> None:
    run = HonestRun()
    run.start[name] = run.start[name] + 0.5

    assert only(run, name) == (verdict, "engine", "other weights")


def test_what_never_was_set_is_known_by_that_and_by_nothing_that_follows() -> None:
    run = HonestRun()
    run.first["scale"] = run.first["scale"] * _NAN
    for step in run.steps:
        for tensors in (step.before, step.weights, step.grads):
            tensors["scale"] = tensors["scale"] * _NAN

    # The others see no number either, in the run as in the twin; not asked here.
    one = run.judged()["scale"]

    assert (one.verdict, one.moment, one.found) == (Verdict.WRONG_UPDATE, "engine", "other weights")


def test_a_parameter_attached_while_training_goes_on_is_no_part_of_the_twin() -> None:
    run = HonestRun()
    adapter = torch.ones(2)
    for step in run.steps[1:]:
        step.before["adapter"] = step.weights["adapter"] = adapter
        step.flags["adapter"], step.groups["adapter"] = True, 0
    run.steps[2].intent |= {"adapter"}

    verdict, moment, found = only(run, "adapter")

    assert (verdict, moment, found) == (Verdict.NO_UPDATE, "step 3", "attached later")


# -- the order of faults -----------------------------------------------------------------------


def test_a_missing_gradient_outranks_a_wrong_step_of_the_same_parameter() -> None:
    run = HonestRun()
    run.steps[0].grads["scale"] *= 0
    run.steps[0].weights["scale"] += 0.5

    assert run.judged()["scale"].verdict is Verdict.NO_GRAD


def test_the_first_of_equal_faults_is_told() -> None:
    run = HonestRun()
    for number in (2, 3):
        run.steps[number - 1].grads["scale"] *= number

    one = run.judged()["scale"]

    assert (one.verdict, one.moment, one.step) == (Verdict.WRONG_GRAD, "step 2 backward", 2)
    assert one.grad_error == pytest.approx(2.0)


# -- files -------------------------------------------------------------------------------------


def test_what_comes_back_whole_loses_nothing() -> None:
    trained = {"one": torch.tensor([1.0, _NAN]), "scalar": torch.tensor(2.0), "none": torch.empty(0)}

    assert judge_saved({**{name: one.clone() for name, one in trained.items()}, "more": torch.ones(1)}, trained) == {}


@pytest.mark.parametrize(
    ("back", "found"),
    [
        (None, "missing"),
        (torch.ones(6), "shape (6,)"),
        (torch.ones(2, 3).double(), "dtype torch.float64"),
        (torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 1.5]]), "off by up to 5.00e-01"),
        (torch.ones(2, 3) * _NAN, "off by up to nan"),
    ],
)
def test_what_comes_back_otherwise_is_lost(back: torch.Tensor | None, found: str) -> None:
    trained = {"hurt": torch.ones(2, 3), "whole": torch.zeros(1)}
    state = {"whole": torch.zeros(1)} | ({} if back is None else {"hurt": back})

    (name, finding), *others = judge_saved(state, trained).items()

    assert others == []
    assert name == "hurt"
    assert dataclasses.asdict(finding) == {
        "verdict": Verdict.SAVE_LOSS,
        "moment": "saved",
        "expected": "(2, 3) torch.float32 as trained",
        "found": found,
        "step": None,
    }


# -- bits --------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.floats(width=32), max_size=4), st.sampled_from([torch.float32, torch.bfloat16]))
def test_every_tensor_is_bit_equal_to_its_copy(values: list[float], dtype: torch.dtype) -> None:
    tensor = torch.tensor(values).to(dtype)

    assert bit_equal(tensor, tensor.clone())
    assert bit_equal(tensor.reshape(-1, 1).expand(-1, 2).t(), tensor.repeat(2, 1))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.tensor([0.0]), torch.tensor([-0.0])),
        (torch.tensor(1.0), torch.tensor([1.0])),
        (torch.tensor([1.0]), torch.tensor([1.0]).double()),
        (torch.tensor(1.0), torch.nextafter(torch.tensor(1.0), torch.tensor(2.0))),
    ],
)
def test_tensors_that_look_alike_are_not_bit_equal(one: torch.Tensor, other: torch.Tensor) -> None:
    assert not bit_equal(one, other)


def test_an_error_is_relative_to_what_was_wanted() -> None:
    wanted = torch.tensor([3.0, 4.0])

    assert relative_error(wanted, wanted) == 0.0
    assert relative_error(torch.tensor([3.0, 4.5]), wanted) == pytest.approx(0.1)
    assert relative_error(torch.tensor([3.0, 4.5]), wanted, torch.tensor([0.5, 0.0])) == pytest.approx(1.0)
    assert relative_error(torch.zeros(2), torch.zeros(2)) == 0.0
    assert relative_error(wanted, torch.zeros(2)) == math.inf
    assert math.isnan(relative_error(torch.tensor([_NAN, 4.0]), wanted))
