"""``run.alter``, and the models whose batch says what of them runs."""

from __future__ import annotations

import alter_cases
import pytest
import torch

from harness.cell import Case, CaseRecord, Options, Verdict
from harness.cell.models import branches, experts
from harness.cell.ranks._launch import Request, ZygoteLauncher

_VARIANTS = alter_cases.altered_alike.variants


def _record(launcher: ZygoteLauncher, case: Case, options: Options) -> CaseRecord:
    return launcher.result(launcher.submit(Request(case, options, world=2))).record


@pytest.mark.parametrize("options", _VARIANTS, ids=lambda one: one.id)
def test_what_is_added_starts_alike_on_all_ranks_and_in_the_twin(launcher: ZygoteLauncher, options: Options) -> None:
    record = _record(launcher, alter_cases.altered_alike, options)
    assert record.verdict is Verdict.TRAINS, record.headline
    trained = {one.name for one in record.parameters if one.verdict is Verdict.TRAINS}
    assert trained == {"layers.2.down.weight", "layers.2.up.weight"}


@pytest.mark.parametrize("options", _VARIANTS, ids=lambda one: one.id)
def test_what_is_added_without_the_twin_is_no_part_of_it(launcher: ZygoteLauncher, options: Options) -> None:
    """Else a case could change its model and be judged by a twin that never heard of it."""
    record = _record(launcher, alter_cases.altered_behind_the_twins_back, options)
    assert record.verdict is Verdict.NO_UPDATE, record.headline


@pytest.mark.parametrize("options", _VARIANTS, ids=lambda one: one.id)
def test_what_is_added_under_zero_init_is_partitioned(launcher: ZygoteLauncher, options: Options) -> None:
    record = _record(launcher, alter_cases.altered_under_zero_init, options)
    assert record.verdict is Verdict.TRAINS, record.headline


def _loss(model: torch.nn.Module, batch: dict[str, torch.Tensor], **extra: torch.Tensor) -> float:
    return float(model(**batch, **extra).detach())


def test_a_route_says_which_layers_run() -> None:
    model = branches.build()
    batch = branches.batch(torch.Generator())
    whole = _loss(model, batch)
    assert _loss(model, batch, route=torch.tensor([0, 1, 2, 3])) == whole
    assert _loss(model, batch, route=torch.tensor([0, 1, 3])) != whole
    dropped = _loss(model, batch, shares=torch.tensor([1.0, 1.0, 0.0, 1.0]))
    assert dropped == _loss(model, batch, route=torch.tensor([0, 1, 3]))


def test_an_image_that_counts_for_nothing_changes_nothing() -> None:
    model = branches.build()
    batch = branches.batch(torch.Generator())
    image = torch.ones(4, 16)
    assert _loss(model, batch, image=image, image_share=torch.tensor(0.0)) == _loss(model, batch)
    assert _loss(model, batch, image=image) != _loss(model, batch)


def test_an_expert_without_rows_runs_only_when_told_to() -> None:
    model = experts.build()
    idle, busy = model.get_parameter("moe.experts.3.weight"), model.get_parameter("moe.experts.2.weight")
    batch = {**experts.batch(torch.Generator()), "choice": torch.tensor([0, 1, 2, 2])}
    model(**batch).backward()
    assert [one.grad is None for one in (idle, busy)] == [True, False]
    model(**batch, everyone=torch.tensor(1)).backward()
    assert [one.grad is not None and bool(one.grad.any()) for one in (idle, busy)] == [False, True]
    assert [one.grad is None for one in (idle, busy)] == [False, False]
