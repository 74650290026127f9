"""Gradients that are lost, wrong, or wrong on one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from harness.cell import Options, case
from planted import sabotage
from planted.scene import EVERYWHERE, FEW, TRAINED, block_engine, trained

if TYPE_CHECKING:
    from harness.cell._run import Run


@case(kind="CONTROL", variants=EVERYWHERE)
def muted_on_one_rank(run: Run) -> None:
    """The last rank's share of one parameter's gradient never reaches the sum."""
    engine = block_engine(run)
    if run.rank == run.world - 1:
        sabotage.scale_gradient(trained(run, engine.module), 0.0)
    run.train(engine, intent=run.part("block"))


@case(kind="CONTROL", variants=[*FEW, Options(stage=1, precision="bf16")])
def reduction_swallowed(run: Run) -> None:
    """One parameter's reduction does not take place."""
    engine = block_engine(run)
    # Whichever rank owns the parameter's partition at stages 1 and 2, so that it hits there; at
    # stage 0 one rank is enough to part the two.
    if run.options.stage in (1, 2) or run.rank == run.world - 1:
        sabotage.skip_reduction(engine, run.options.stage, trained(run, engine.module))
    run.train(engine, intent=run.part("block"))


@case(
    kind="CONTROL",
    variants=[
        Options(stage=0, accumulation=2, clipping=0.01),
        Options(stage=2, accumulation=2, precision="bf16"),
        Options(stage=3, accumulation=2, clipping=0.01),
        Options(stage=3, accumulation=2, precision="bf16"),
    ],
)
def micro_batch_lost(run: Run) -> None:
    """The first of two micro-batches leaves no gradient of one parameter behind, in the second step."""
    engine = block_engine(run)
    sabotage.scale_gradient(trained(run, engine.module), 0.0, range(2, 3))
    run.train(engine, intent=run.part("block"))


@case(kind="CONTROL", variants=EVERYWHERE)
def zeroed(run: Run) -> None:
    """One parameter's gradient is zero on every rank."""
    engine = block_engine(run)
    sabotage.scale_gradient(trained(run, engine.module), 0.0)
    run.train(engine, intent=run.part("block"))


@case(kind="CONTROL", variants=[one for one in FEW if one.precision == "fp32"])
def communicated_in_bf16(run: Run) -> None:
    """Weights are fp32, yet ranks are told to exchange gradients in bf16: the smallest fault of all."""
    run.train(block_engine(run, communication_data_type="bf16"), intent=run.part("block"))


@case(kind="CONTROL", variants=FEW)
def detached(run: Run) -> None:
    """One parameter takes part in forward, but nothing flows back to it."""
    engine = block_engine(run)
    owner = engine.module.get_submodule(TRAINED[run.options.model].rpartition(".")[0])

    def forward(inputs: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(inputs, owner.weight.detach(), owner.bias)

    owner.forward = forward
    run.train(engine, intent=run.part("block"))


@case(kind="CONTROL", variants=FEW)
def not_a_number(run: Run) -> None:
    """One parameter's gradient is NaN on one rank."""
    engine = block_engine(run)
    if run.rank == 0:
        sabotage.scale_gradient(trained(run, engine.module), float("nan"))
    run.train(engine, intent=run.part("block"))


@case(kind="CONTROL", variants=[Options(stage=3)])
def two_faults(run: Run) -> None:
    """One parameter's gradient is lost, and another's step is too long."""
    engine = block_engine(run)
    sabotage.scale_gradient(trained(run, engine.module), 0.0)
    other = engine.module.get_parameter("model.layers.2.mlp.down_proj.weight")
    sabotage.scale_step(engine, run.options.stage, other, 1.5)
    run.train(engine, intent=run.part("block"))
