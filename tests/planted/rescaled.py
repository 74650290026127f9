"""A loss that is not the model's own, and computation in another precision than the weights'."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.cell import Options, case, freeze_except

if TYPE_CHECKING:
    from harness.cell._run import Run

_FEW = (Options(model="mlp", stage=2), Options(model="mlp", stage=3))


@case(kind="CONTROL", variants=_FEW)
def three_times_the_loss_as_said(run: Run) -> None:
    """The loop multiplies the loss, and the twin is told."""
    _train_three_times(run, rescales=True)


@case(kind="CONTROL", variants=_FEW)
def three_times_the_loss_unsaid(run: Run) -> None:
    """The loop multiplies the loss, by mistake."""
    _train_three_times(run, rescales=False)


def _train_three_times(run: Run, *, rescales: bool) -> None:
    model = run.model()
    freeze_except(model, run.part("block"))
    engine = run.engine(model, rescales=rescales)
    run.intend(engine, run.part("block"))
    for _ in range(2):
        engine.backward(engine(**run.draw()) * 3)
        engine.step()


@case(kind="CONTROL", variants=[Options(model="mlp", stage=0)])
def autocast(run: Run) -> None:
    """DeepSpeed computes in bf16; at stage 0 it exchanges gradients in fp32, so they must be the twin's to the bit."""
    model = run.model()
    freeze_except(model, run.part("block"))
    block = {"enabled": True, "dtype": "bfloat16"}
    run.train(run.engine(model, torch_autocast=block), intent=run.part("block"))
