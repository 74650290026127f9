"""Nothing planted: what stands beside every fault and must give TRAINS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planted.scene import COMPOSED, EVERYWHERE, SGD, block_engine

from harness.cell import Hyper, Options, case

if TYPE_CHECKING:
    from harness.cell._run import Run

_STAGE_0_BF16 = Options(stage=0, precision="bf16")


@case(kind="CONTROL", variants=[*EVERYWHERE, *COMPOSED])
def adamw(run: Run) -> None:
    """AdamW, exclusion freezing before the engine."""
    run.train(block_engine(run), intent=run.part("block"), steps=3)


@case(kind="CONTROL", variants=[Options(stage=1), *COMPOSED])
def sgd(run: Run) -> None:
    """SGD with momentum."""
    run.train(block_engine(run, hyper=SGD), intent=run.part("block"), steps=3)


@case(kind="CONTROL", variants=[Options(model="mlp", stage=3, precision=p) for p in ("fp32", "bf16")])
def small_steps(run: Run) -> None:
    """Steps far below what a bf16 weight can show, so that only its fp32 master moves."""
    run.train(block_engine(run, hyper=Hyper(lr=1e-6)), intent=run.part("block"))


@case(kind="CONTROL", variants=[_STAGE_0_BF16])
def stage_0_bf16_sgd(run: Run) -> None:
    """SGD without decay takes no harm from the step that DeepSpeed takes when it makes the optimizer."""
    hyper = Hyper(optimizer="SGD", lr=0.1, momentum=0.9, weight_decay=0.0)
    run.train(block_engine(run, hyper=hyper), intent=run.part("block"))


@case(kind="CONTROL", variants=[_STAGE_0_BF16])
def stage_0_bf16_adamw(run: Run) -> None:
    """AdamW does: its first real step is corrected as if it were the second."""
    run.train(block_engine(run), intent=run.part("block"))
