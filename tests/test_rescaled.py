"""What ``run.engine`` tells the twin of the loss and of autocast; and the models made of blocks."""

from __future__ import annotations

import pytest
import torch
from planted import rescaled

from harness.cell import Options, Verdict
from harness.cell.models import find_model
from harness.cell.ranks._launch import Request, ZygoteLauncher


@pytest.mark.parametrize(
    ("case", "options", "verdict"),
    [
        pytest.param(case, options, verdict, id=f"{case.name}-{options.id}")
        for case, verdict in (
            (rescaled.three_times_the_loss_as_said, Verdict.TRAINS),
            (rescaled.three_times_the_loss_unsaid, Verdict.WRONG_GRAD),
            (rescaled.autocast, Verdict.TRAINS),
        )
        for options in case.variants
    ],
)
def test_the_twin_knows_what_it_is_told(
    launcher: ZygoteLauncher, case: object, options: Options, verdict: Verdict
) -> None:
    record = launcher.result(launcher.submit(Request(case, options, 2))).record  # type: ignore[arg-type]

    assert record.verdict is verdict, record.headline


@pytest.mark.parametrize("use_reentrant", [True, False], ids=["reentrant", "non-reentrant"])
@pytest.mark.parametrize(("name", "runs"), [("normed", 1), ("reused", 2), ("towers", 1)])
def test_every_block_is_recomputed_as_often_as_it_is_run(name: str, runs: int, use_reentrant: bool) -> None:  # noqa: FBT001
    spec = find_model(name)
    model = spec.build()
    blocks = [one for name, one in model.named_modules() if name.split(".")[-2:-1] == ["layers"]]
    assert len(blocks) == 4
    count = dict.fromkeys(blocks, 0)
    for block in blocks:
        block.register_forward_pre_hook(lambda one, *_: count.update({one: count[one] + 1}))
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": use_reentrant})  # type: ignore[operator]

    loss = model(**spec.batch(torch.Generator().manual_seed(0)))
    assert set(count.values()) == {runs}
    loss.backward()

    assert set(count.values()) == {2 * runs}


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_input_gradients_reach_reentrant_blocks_behind_frozen_layers() -> None:
    spec = find_model("normed")
    grads = []
    for enabled in (False, True):
        torch.manual_seed(0)
        model = spec.build()
        for parameter_name, parameter in model.named_parameters():
            parameter.requires_grad = parameter_name.startswith(("head", "body.layers.2.linear"))
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})  # type: ignore[operator]
        if enabled:
            model.enable_input_require_grads()  # type: ignore[operator]
        model(**spec.batch(torch.Generator().manual_seed(0))).backward()
        grads.append(model.get_parameter("body.layers.2.linear.weight").grad)

    assert grads[0] is None
    assert grads[1] is not None
