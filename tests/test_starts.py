"""Starting weights that a library or a case has made, not the harness: right ones pass and wrong ones show."""

from __future__ import annotations

import pytest
from planted import starts

from harness.cell import Case, CaseRecord, Options, Verdict
from harness.cell.ranks._launch import Request, ZygoteLauncher


def measure(launcher: ZygoteLauncher, case: Case, options: Options | None = None) -> CaseRecord:
    outcome = launcher.result(launcher.submit(Request(case, options or case.variants[0], 2)))
    assert not outcome.malformed
    return outcome.record


def wrong_at_start(record: CaseRecord) -> list[str]:
    return [one.name for one in record.parameters if one.moment == "engine"]


def test_what_a_wrap_draws_is_the_same_for_the_twin(launcher: ZygoteLauncher) -> None:
    assert measure(launcher, starts.drawn).verdict is Verdict.TRAINS


def test_what_a_wrap_makes_wrong_shows_unless_weights_are_given(launcher: ZygoteLauncher) -> None:
    record = measure(launcher, starts.drawn_otherwise)
    assert (record.verdict, wrong_at_start(record)) == (Verdict.WRONG_UPDATE, ["head.bias"])
    assert measure(launcher, starts.drawn_otherwise_and_given).verdict is Verdict.TRAINS


@pytest.mark.parametrize("options", starts.told.variants, ids=lambda one: one.id)
def test_transformers_is_told_of_a_partitioned_model_and_of_no_other(
    launcher: ZygoteLauncher, options: Options
) -> None:
    record = measure(launcher, starts.told, options)
    assert record.verdict is not Verdict.RAISES, record.headline


@pytest.mark.parametrize("case", [starts.saved_in_part, starts.made_at_random], ids=lambda one: one.name)
def test_only_what_the_library_made_can_be_wrong(launcher: ZygoteLauncher, case: Case) -> None:
    record = measure(launcher, case)
    assert (record.verdict, wrong_at_start(record)) == (Verdict.WRONG_UPDATE, ["lm_head.weight"])


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (starts.no_such_adapter, "has no NoSuchConfig"),
        (starts.no_such_setting, "LoraConfig has no no_such_setting"),
        (starts.no_such_initialization, "Unknown initialization"),
    ],
    ids=["class", "setting", "initialization"],
)
def test_what_this_release_of_peft_lacks_is_not_run(launcher: ZygoteLauncher, case: Case, said: str) -> None:
    record = measure(launcher, case)
    assert record.verdict is Verdict.NOT_RUN
    assert said in record.headline
