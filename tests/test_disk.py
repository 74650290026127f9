"""What was saved and read back: the disk, adapter and Trainer drivers, and how a resumed run is judged."""

from __future__ import annotations

import subprocess
import sys

import disk_cases
import pytest
from planted.scene import FROZEN, TRAINED

from harness.cell import Case, CaseRecord, Options, Verdict
from harness.cell.ranks._launch import Outcome, Request, ZygoteLauncher

_CLEAN = (
    disk_cases.resumes,
    disk_cases.tied_weights,
    disk_cases.trainer_saves_nothing_unasked,
    disk_cases.trainer_resumes,
    disk_cases.adapter_comes_back,
)


def _outcome(launcher: ZygoteLauncher, case: Case, options: Options) -> Outcome:
    return launcher.result(launcher.submit(Request(case, options, world=2)))


def _record(launcher: ZygoteLauncher, case: Case, options: Options) -> CaseRecord:
    outcome = _outcome(launcher, case, options)
    assert not outcome.malformed
    return outcome.record


def _each(*cases: Case) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("case", "options"),
        [pytest.param(case, one, id=f"{case.name}-{one.id}") for case in cases for one in case.variants],
    )


def _odd(record: CaseRecord) -> dict[str, Verdict]:
    """The parameters that are not as in a clean run."""
    clean = (Verdict.TRAINS, Verdict.FROZEN)
    return {one.name: one.verdict for one in record.parameters if one.verdict not in clean}


@_each(*_CLEAN)
def test_what_was_saved_comes_back_and_trains_on(launcher: ZygoteLauncher, case: Case, options: Options) -> None:
    record = _record(launcher, case, options)

    assert record.verdict is Verdict.TRAINS, record.headline
    assert _odd(record) == {}


@_each(disk_cases.frozen_weight_lost)
def test_a_frozen_weight_that_does_not_come_back_is_a_save_loss(
    launcher: ZygoteLauncher, case: Case, options: Options
) -> None:
    """And no drift, though it differs from what it was before."""
    record = _record(launcher, case, options)

    assert _odd(record) == {FROZEN["mlp"]: Verdict.SAVE_LOSS}
    assert record.worst()[0].found.startswith("off by up to ")


@_each(disk_cases.trained_weight_lost)
def test_a_trained_weight_that_does_not_come_back_is_a_save_loss(
    launcher: ZygoteLauncher, case: Case, options: Options
) -> None:
    record = _record(launcher, case, options)

    assert _odd(record) == {TRAINED["mlp"]: Verdict.SAVE_LOSS}


@_each(disk_cases.master_lost, disk_cases.momentum_lost)
def test_an_optimizer_that_does_not_come_back_shows_in_the_next_step(
    launcher: ZygoteLauncher, case: Case, options: Options
) -> None:
    record = _record(launcher, case, options)

    assert record.verdict is Verdict.WRONG_UPDATE, record.headline
    assert {one.step for one in record.worst()} == {3}
    assert all(one.intended for one in record.worst())


@_each(disk_cases.another_model_is_another)
def test_another_model_has_no_weight_in_common(launcher: ZygoteLauncher, case: Case, options: Options) -> None:
    record = _record(launcher, case, options)

    assert set(_odd(record).values()) == {Verdict.SAVE_LOSS}
    assert len(_odd(record)) == len(record.parameters)


@_each(disk_cases.resumes_from_nothing)
def test_a_checkpoint_that_is_not_there_is_told(launcher: ZygoteLauncher, case: Case, options: Options) -> None:
    record = _record(launcher, case, options)

    assert record.verdict is Verdict.RAISES
    assert record.failure is not None
    assert (record.failure.moment, record.failure.type) == ("resumed", "AssertionError")
    assert record.failure.message == "DeepSpeed found no checkpoint to load"


@_each(disk_cases.no_file_is_written)
def test_no_file_is_a_loss_of_all(launcher: ZygoteLauncher, case: Case, options: Options) -> None:
    record = _record(launcher, case, options)

    assert set(_odd(record).values()) == {Verdict.SAVE_LOSS}
    assert len(_odd(record)) == len(record.parameters)
    assert record.notes == ["save_16bit_model wrote no file, and returned False"]


@_each(disk_cases.trainer_resumes_from_a_spoilt_file)
def test_the_trainer_resumes_from_what_is_on_disk(launcher: ZygoteLauncher, case: Case, options: Options) -> None:
    record = _record(launcher, case, options)

    assert _odd(record) == {"lm_head.weight": Verdict.SAVE_LOSS}


@_each(disk_cases.trainer_resumes_from_nothing)
def test_the_trainer_cannot_resume_from_nothing(launcher: ZygoteLauncher, case: Case, options: Options) -> None:
    outcome = _outcome(launcher, case, options)

    assert outcome.record.verdict is Verdict.NOT_RUN
    assert "resume: no earlier call saved a checkpoint" in outcome.malformed


@_each(disk_cases.adapter_spoilt)
def test_an_adapter_is_read_from_its_file(launcher: ZygoteLauncher, case: Case, options: Options) -> None:
    record = _record(launcher, case, options)

    assert _odd(record) == {"base_model.model.layers.2.lora_B.default.weight": Verdict.SAVE_LOSS}


@_each(disk_cases.head_is_copied)
def test_a_copy_of_an_empty_partition_is_the_runs_own_fault(
    launcher: ZygoteLauncher, case: Case, options: Options
) -> None:
    """The harness gives it no weights, and lets the model fail as it does without the harness."""
    record = _record(launcher, case, options)

    if options.stage == 2:
        assert record.verdict is Verdict.TRAINS, record.headline
    else:
        assert record.verdict is Verdict.RAISES, record.headline
        assert record.failure is not None
        assert record.failure.moment == "forward"


def test_the_drivers_import_no_library_until_called() -> None:
    code = (
        "import sys; import harness.drivers.adapters, harness.drivers.disk; "
        "print(sorted({'torch', 'transformers', 'deepspeed', 'peft', 'safetensors'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
