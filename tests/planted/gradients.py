"""Gradients that are lost, wrong, or wrong on one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from planted import sabotage
from planted.scene import BF16, EVERYWHERE, FP32, TRAINED, block_engine, trained

from harness.cell import Options, case

if TYPE_CHECKING:
    from harness.cell._run import Run


@case(kind="CONTROL", variants=EVERYWHERE)
def muted_on_one_rank(run: Run) -> None:
    """The last rank's share of one parameter's gradient never reaches the sum."""
    engine = block_engine(run)
    if run.rank == run.world - 1:
        sabotage.scale_gradient(trained(run, engine), 0.0)
    run.train(engine, intent=run.part("block"))


@case(kind="CONTROL", variants=[*FP32, *BF16])
def reduction_swallowed(run: Run) -> None:
    """One parameter's reduction does not take place."""
    engine = block_engine(run)
    # Whichever rank owns the parameter's partition at stages 1 and 2, so that it hits there; at
    # stage 0 one rank is enough to part the two.
    if run.options.stage in (1, 2) or run.rank == run.world - 1:
        sabotage.skip_reduction(engine, run.options.stage, trained(run, engine))
    run.train(engine, intent=run.part("block"))


@case(
    kind="CONTROL",
    variants=[
        Options(stage=stage, precision=precision, accumulation=2)
        for stage, precision in ((0, "fp32"), (2, "fp32"), (2, "bf16"), (3, "fp32"), (3, "bf16"))
    ],
)
def micro_batch_lost(run: Run) -> None:
    """The first of two micro-batches leaves no gradient of one parameter behind, in the second step."""
    engine = block_engine(run)
    sabotage.scale_gradient(trained(run, engine), 0.0, range(2, 3))
    run.train(engine, intent=run.part("block"))


@case(kind="CONTROL", variants=EVERYWHERE)
def zeroed(run: Run) -> None:
    """One parameter's gradient is zero on every rank."""
    engine = block_engine(run)
    sabotage.scale_gradient(trained(run, engine), 0.0)
    run.train(engine, intent=run.part("block"))


@case(kind="CONTROL", variants=EVERYWHERE)
def detached(run: Run) -> None:
    """One parameter takes part in forward, but nothing flows back to it."""
    engine = block_engine(run)
    owner = engine.module.get_submodule(TRAINED[run.options.model].rpartition(".")[0])

    def forward(inputs: torch.Tensor) -> torch.Tensor:
        bias = owner.bias
        return torch.nn.functional.linear(inputs, owner.weight.detach(), bias)

    owner.forward = forward
    run.train(engine, intent=run.part("block"))


@case(kind="CONTROL", variants=[Options(stage=3), Options(stage=0)])
def two_faults(run: Run) -> None:
    """A gradient is lost, and a step too long elsewhere."""
    engine = block_engine(run)
    sabotage.scale_gradient(trained(run, engine), 0.0)
    others: dict[str, Any] = dict(engine.module.named_parameters())
    sabotage.scale_step(engine, run.options.stage, others["model.layers.2.mlp.down_proj.weight"], 1.5)
    run.train(engine, intent=run.part("block"))
