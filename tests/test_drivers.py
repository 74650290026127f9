"""Drivers: the Trainer and Axolotl on two real ranks."""

from __future__ import annotations

import subprocess
import sys
from fnmatch import fnmatchcase
from importlib import metadata

import driver_cases
import pytest

from harness.cell import Case, CaseRecord, Group, Hyper, Options, Verdict
from harness.cell.ranks._launch import Outcome, Request, ZygoteLauncher, missing_libraries
from harness.drivers.axolotl import absent

_HEAD = "lm_head.weight"


def _outcome(launcher: ZygoteLauncher, case: Case, options: Options) -> Outcome:
    return launcher.result(launcher.submit(Request(case, options, world=2)))


def _named(record: CaseRecord, verdict: Verdict) -> set[str]:
    return {one.name for one in record.parameters if one.verdict is verdict}


def _block(record: CaseRecord) -> set[str]:
    """The parameters of the block that the cases train; of a Llama block there are nine."""
    found = {one.name for one in record.parameters if fnmatchcase(one.name, "*layers.2.*")}
    assert len(found) == (9 if record.options["model"] == "tiny_llama" else 2)
    return found


def _only_the_block_trains(record: CaseRecord) -> None:
    assert record.verdict is Verdict.TRAINS, record.headline
    assert _named(record, Verdict.TRAINS) == _block(record)
    assert len(_named(record, Verdict.FROZEN)) == len(record.parameters) - len(_block(record))


@pytest.mark.parametrize("options", driver_cases.freezes_before_the_trainer.variants, ids=lambda one: one.id)
def test_exclusion_freezing_before_the_trainer_trains(launcher: ZygoteLauncher, options: Options) -> None:
    _only_the_block_trains(_outcome(launcher, driver_cases.freezes_before_the_trainer, options).record)


@pytest.mark.parametrize("options", driver_cases.trains_all.variants, ids=lambda one: one.id)
def test_every_hyper_parameter_reaches_trainer_and_twin(launcher: ZygoteLauncher, options: Options) -> None:
    record = _outcome(launcher, driver_cases.trains_all, options).record
    assert record.verdict is Verdict.TRAINS, record.headline
    assert len(_named(record, Verdict.TRAINS)) == 39


def test_accelerate_is_set_up_for_deepspeed_on_cpu(launcher: ZygoteLauncher) -> None:
    case = driver_cases.tells_accelerate_of_deepspeed
    record = _outcome(launcher, case, case.variants[0]).record
    assert record.verdict is Verdict.TRAINS, record.headline


@pytest.mark.parametrize("options", driver_cases.stays_told_of_zero_3.variants, ids=lambda one: one.id)
def test_transformers_stays_told_of_zero_3(launcher: ZygoteLauncher, options: Options) -> None:
    record = _outcome(launcher, driver_cases.stays_told_of_zero_3, options).record
    assert record.verdict is Verdict.TRAINS, record.headline


@pytest.mark.parametrize("options", driver_cases.unfreezes_at_train_begin.variants, ids=lambda one: one.id)
def test_unfreezing_in_on_train_begin_is_silent_at_every_stage(launcher: ZygoteLauncher, options: Options) -> None:
    """At stage 0 too: the Trainer gives its optimizer only what is trainable before."""
    record = _outcome(launcher, driver_cases.unfreezes_at_train_begin, options).record
    assert record.verdict is Verdict.NO_UPDATE, record.headline
    assert _named(record, Verdict.NO_UPDATE) == _block(record)
    assert _named(record, Verdict.TRAINS) == {_HEAD}
    for one in record.parameters:
        if one.verdict is Verdict.NO_UPDATE:
            assert (one.flag, one.group, one.moved) == (True, None, 0.0), one.name
            assert one.moment == "step 1", one.name


def test_a_callback_and_the_intent_may_change_with_every_step(launcher: ZygoteLauncher) -> None:
    """Stage 0, where flags alone say who moves: a callback that is not called, or late, shows."""
    record = _outcome(launcher, driver_cases.rotates_blocks_at_step_begin, Options(stage=0)).record
    assert record.verdict is Verdict.TRAINS, record.headline
    trained = {name.rpartition("layers.")[2][0] for name in _named(record, Verdict.TRAINS)}
    assert trained == {"1", "2"}
    assert len(_named(record, Verdict.TRAINS)) == 18


@pytest.mark.parametrize("options", driver_cases.freezes_all_before_the_trainer.variants, ids=lambda one: one.id)
def test_freezing_all_before_the_trainer_fails_when_the_engine_is_made(
    launcher: ZygoteLauncher, options: Options
) -> None:
    record = _outcome(launcher, driver_cases.freezes_all_before_the_trainer, options).record
    assert record.verdict is Verdict.RAISES, record.headline
    assert record.failure is not None
    assert (record.failure.moment, record.failure.type) == ("engine", "IndexError")


@pytest.mark.parametrize(
    ("case", "options"),
    [
        (case, options)
        for case in (driver_cases.weighs_tokens, driver_cases.averages_micro_batches)
        for options in case.variants
    ],
    ids=lambda one: one.name if isinstance(one, Case) else one.id,
)
def test_the_twin_weighs_micro_batches_as_the_trainer_does(
    launcher: ZygoteLauncher, case: Case, options: Options
) -> None:
    _only_the_block_trains(_outcome(launcher, case, options).record)


def test_a_trainer_that_makes_no_engine_is_found_out(launcher: ZygoteLauncher) -> None:
    case = driver_cases.makes_no_engine
    record = _outcome(launcher, case, case.variants[0]).record
    assert record.verdict is Verdict.RAISES
    assert record.failure is not None
    assert (record.failure.type, record.failure.moment, record.failure.ranks) == ("NoEngine", "loaded", [0, 1])
    assert record.failure.message.startswith("the Trainer was to use DeepSpeed, has made no engine")


def test_all_that_makes_no_sense_to_the_trainer_is_told_at_once(launcher: ZygoteLauncher) -> None:
    outcome = _outcome(launcher, driver_cases.asks_for_nonsense, Options(model="mlp", stage=0))
    assert outcome.record.verdict is Verdict.NOT_RUN
    assert "steps must be 1 or more, found 0" in outcome.malformed
    assert "driven with AdamW only, found SGD" in outcome.malformed


@pytest.mark.parametrize(
    ("case", "options"),
    [
        (case, options)
        for case in (driver_cases.axolotl_freezes, driver_cases.axolotl_freezes_before_the_trainer)
        for options in case.variants
    ],
    ids=lambda one: one.name if isinstance(one, Case) else one.id,
)
def test_axolotl_freezes_before_the_engine(launcher: ZygoteLauncher, case: Case, options: Options) -> None:
    _only_the_block_trains(_outcome(launcher, case, options).record)


def test_axolotl_takes_a_partition_for_an_empty_parameter(launcher: ZygoteLauncher) -> None:
    record = _outcome(launcher, driver_cases.axolotl_counts_rows_of_a_partition, Options(init="zero_init")).record
    assert record.verdict is Verdict.RAISES, record.headline
    assert record.failure is not None
    assert (record.failure.moment, record.failure.type) == ("loaded", "ValueError")
    assert record.failure.message == "invalid unfreeze range: start=32, end=0"


def test_axolotl_of_the_past_is_remade_as_it_was(launcher: ZygoteLauncher) -> None:
    case = driver_cases.remakes_axolotl
    record = _outcome(launcher, case, case.variants[0]).record
    assert record.verdict is Verdict.TRAINS, record.headline


def test_axolotl_that_cannot_be_imported_is_no_finding(launcher: ZygoteLauncher) -> None:
    case = driver_cases.axolotl_cannot_be_imported
    outcome = _outcome(launcher, case, case.variants[0])
    assert outcome.record.verdict is Verdict.NOT_RUN
    assert not outcome.malformed
    assert "importing axolotl.utils.freeze fails" in outcome.record.headline
    assert "install a release that suits this stack" in outcome.record.headline


def test_what_axolotl_is_given_can_be_read(launcher: ZygoteLauncher) -> None:
    case = driver_cases.reads_back_texts_and_tokenizer
    record = _outcome(launcher, case, case.variants[0]).record
    assert record.verdict is Verdict.TRAINS, record.headline


def test_axolotls_train_is_not_run_without_its_dependencies(launcher: ZygoteLauncher) -> None:
    """This stack has Axolotl's code alone; on the one that has all, catalogued cases say what it does."""
    case = driver_cases.axolotl_trains
    assert "posthog" in missing_libraries(Request(case, case.variants[0], world=2))

    case = driver_cases.axolotl_trains_without_its_dependencies
    outcome = _outcome(launcher, case, case.variants[0])
    assert outcome.record.verdict is Verdict.NOT_RUN
    assert not outcome.malformed
    assert "but importing axolotl.cli.train fails (ModuleNotFoundError: No module named " in outcome.record.headline
    assert "install a release that suits this stack, with its dependencies" in outcome.record.headline


def test_no_axolotl_at_all_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", nowhere)

    assert str(absent("axolotl.cli.train", ImportError("no"), "whole")) == (
        "axolotl.cli.train cannot be imported, since axolotl is not installed (ImportError: no); "
        "install a release that suits this stack, whole"
    )


def test_all_that_makes_no_sense_to_axolotl_is_told_at_once(launcher: ZygoteLauncher) -> None:
    of_all, of_stage_3 = (
        _outcome(launcher, driver_cases.asks_for_nonsense_of_axolotl, options).malformed
        for options in driver_cases.asks_for_nonsense_of_axolotl.variants
    )
    assert of_all.count("; ") == 6, "one is in the last fault"
    for fault in (
        "steps must be 1 or more, found 0",
        "driven at stage 3 only",
        "passes bf16 on",
        "offload is not driven",
        "driven with AdamW only, found SGD",
        "the ZeRO stage would be given twice",
    ):
        assert fault in of_all
    assert "loads the model under zero.Init; give the variant that init" in of_stage_3


def test_drivers_import_no_library_until_called() -> None:
    code = (
        "import sys; import harness.drivers.axolotl, harness.drivers.axolotl_config, harness.drivers.axolotl_train; "
        "import harness.drivers.accelerated, harness.drivers.dress, harness.drivers.plain; "
        "import harness.drivers.sft_trainer, harness.drivers.trainer, harness.cases.axolotl_train; "
        "print(sorted({'torch', 'transformers', 'deepspeed', 'accelerate', 'axolotl', 'datasets'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("decay", [0.1, 0.0])
def test_no_parameter_is_left_out_of_the_groups(decay: float) -> None:
    """With no decay at all, both groups have the same one."""
    named = {"layer.weight": object(), "layer.bias": object(), "norm.weight": object()}
    hyper = Hyper(weight_decay=decay, split=(Group(("layer.bias", "norm.weight"), weight_decay=0.0),))
    assert hyper.groups(named) == [  # type: ignore[arg-type]  # what is grouped does not matter
        {"params": [named["layer.weight"]], "lr": 0.01, "weight_decay": decay},
        {"params": [named["layer.bias"], named["norm.weight"]], "lr": 0.01, "weight_decay": 0.0},
    ]
