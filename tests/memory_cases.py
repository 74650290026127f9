"""Cases that count what an optimizer keeps, for ``test_memory``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.cell import Hyper, Options, case, freeze_except
from harness.cell._memory import optimizer_elements

if TYPE_CHECKING:
    from harness.cell._run import Run

#: Weights of the block that trains.
SIZE = 32 * 32 + 32


@case(kind="CONTROL", variants=[Options(model="mlp", stage=stage) for stage in (0, 1, 3)])
def counts_what_adam_keeps(run: Run) -> None:
    _count(run, Hyper())


@case(kind="CONTROL", variants=[Options(model="mlp", stage=2)])
def counts_what_momentum_keeps(run: Run) -> None:
    _count(run, Hyper(optimizer="SGD", momentum=0.9))


def _count(run: Run, hyper: Hyper) -> None:
    model = run.model()
    freeze_except(model, run.part("block"))
    engine = run.engine(model, hyper=hyper)
    run.train(engine, intent=run.part("block"))
    run.note(f"counted {optimizer_elements(engine)}")
