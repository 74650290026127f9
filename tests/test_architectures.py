"""The tiny models of real architectures: their parts are there, and blocks are what the cases take them for."""

from __future__ import annotations

import re

import pytest

from harness.cases import architectures
from harness.cell import CaseRecord, Model, Options, Verdict
from harness.cell._patterns import matches
from harness.cell._real_models import REAL
from harness.cell.models import MODELS
from harness.cell.ranks._launch import Request, ZygoteLauncher


def test_the_architectures_that_people_fine_tune_are_there() -> None:
    assert {one.name for one in REAL} == {
        *("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "mixtral", "gpt2", "llava")
    }
    assert all(MODELS[one.name] is one for one in REAL)


@pytest.fixture(scope="module")
def records(launcher: ZygoteLauncher) -> dict[str, CaseRecord]:
    """Of each, what a run at stage 1 saw."""
    case = architectures.architectures_freeze_except
    wanted = [Request(case, Options(model=one.name, stage=1), 2) for one in REAL]
    found = (launcher.result(launcher.submit(one)).record for one in wanted)
    return {one.options["model"]: one for one in found}


@pytest.mark.parametrize("model", REAL, ids=lambda one: one.name)
def test_each_part_has_parameters_and_a_block_is_one_layer(records: dict[str, CaseRecord], model: Model) -> None:
    record = records[model.name]
    assert record.verdict is Verdict.TRAINS, record.headline
    names = [one.name for one in record.parameters]
    parts = {part: [name for name in names if matches(name, globs)] for part, globs in model.parts.items()}
    assert all(parts.values()), parts
    for part, number in {"block": "2", "other block": "1"}.items():
        # The layer's number is the first there is, so that no tower's and no expert's is taken for it.
        assert {re.findall(r"\.(\d+)\.", name)[0] for name in parts[part]} == {number}
    assert {one.name for one in record.parameters if one.verdict is Verdict.TRAINS} == {*parts["block"]}
