"""What an oracle that follows the run could miss, and runs that it must refuse to judge."""

from __future__ import annotations

import pytest
from planted import blind_spots

from harness.cell import Case, Options, Verdict
from harness.cell.ranks._launch import Outcome, Request, ZygoteLauncher


def run(launcher: ZygoteLauncher, case: Case, options: Options | None = None) -> Outcome:
    return launcher.result(launcher.submit(Request(case, options or case.variants[0], 2)))


@pytest.mark.parametrize("options", blind_spots.STAGES, ids=lambda options: options.id)
def test_a_gradient_that_the_twin_has_not_is_wrong(launcher: ZygoteLauncher, options: Options) -> None:
    record = run(launcher, blind_spots.gradient_from_nowhere, options).record

    assert record.verdict is Verdict.WRONG_GRAD, record.headline
    assert [one.name for one in record.worst()] == ["idle"]
    assert record.worst()[0].expected == "no gradient"


@pytest.mark.parametrize("options", blind_spots.STAGES, ids=lambda options: options.id)
def test_the_twin_does_not_repeat_what_a_loop_does_to_the_loss(launcher: ZygoteLauncher, options: Options) -> None:
    record = run(launcher, blind_spots.loss_rescaled_on_one_rank, options).record

    assert record.verdict is Verdict.WRONG_GRAD, record.headline
    assert {one.name for one in record.worst()} == {"layers.2.weight", "layers.2.bias"}


def test_a_gradient_that_is_none_is_missing(launcher: ZygoteLauncher) -> None:
    record = run(launcher, blind_spots.gradient_taken_away).record

    assert record.verdict is Verdict.NO_GRAD, record.headline
    assert [(one.name, one.found) for one in record.worst()] == [("layers.2.weight", "none (requires_grad=True)")]


def test_ranks_that_drift_apart_are_seen_within_any_tolerance(launcher: ZygoteLauncher) -> None:
    record = run(launcher, blind_spots.ranks_a_rounding_apart).record

    assert record.verdict is Verdict.WRONG_UPDATE, record.headline
    assert [one.name for one in record.worst()] == ["layers.2.weight"]


def test_a_module_that_goes_is_no_failure_of_the_harness(launcher: ZygoteLauncher) -> None:
    record = run(launcher, blind_spots.module_replaced).record

    gone = {one.name: one.found for one in record.parameters if one.found == "gone from it"}
    assert set(gone) == {"head.weight", "head.bias"}
    assert record.verdict is Verdict.NO_UPDATE, record.headline


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (blind_spots.drops_out, "drops out at random (Dropout)"),
        (blind_spots.returns_no_loss, "no forward gave a loss"),
        (blind_spots.never_says_what_is_meant, "no intent"),
        (blind_spots.steps_by_itself, "before run.train or run.intend"),
        (blind_spots.makes_its_own_engine, "the engine is not watched"),
        (blind_spots.another_model_on_one_rank, "other parameters on one rank"),
    ],
    ids=lambda one: getattr(one, "name", None),
)
def test_a_run_that_cannot_be_judged_is_malformed(launcher: ZygoteLauncher, case: Case, said: str) -> None:
    outcome = run(launcher, case)

    assert outcome.record.verdict is Verdict.NOT_RUN, outcome.record.headline
    assert said in outcome.malformed
