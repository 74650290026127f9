"""Weights that should have stayed as they were."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.cell import Hyper, Options, case, freeze_except
from planted import sabotage
from planted.scene import EVERYWHERE, FEW, block_engine, frozen

if TYPE_CHECKING:
    from harness.cell._run import Run


@case(kind="CONTROL", variants=EVERYWHERE)
def nudged_in_a_step(run: Run) -> None:
    """In the second step, one frozen weight moves by one unit in the last place, on the last rank."""
    engine = block_engine(run)
    if run.rank == run.world - 1:
        victim = frozen(run, engine.module)
        sabotage.after_step(engine, 2, lambda: sabotage.in_place(victim, sabotage.next_float))
    run.train(engine, intent=run.part("block"))


@case(kind="CONTROL", variants=FEW)
def nudged_between_two_stretches(run: Run) -> None:
    """The same while nobody trains, between two calls of ``run.train``."""
    engine = block_engine(run)
    run.train(engine, intent=run.part("block"), steps=1)
    if run.rank == run.world - 1:
        sabotage.in_place(frozen(run, engine.module), sabotage.next_float)
    run.train(engine, intent=run.part("block"), steps=1)


@case(kind="CONTROL", variants=FEW)
def trained_outside_the_intent(run: Run) -> None:
    """The head trains, too; nobody meant it to."""
    model = run.model()
    freeze_except(model, run.part("block") + run.part("head"))
    run.train(run.engine(model), intent=run.part("block"))


@case(kind="CONTROL", variants=[Options(stage=1, precision="bf16"), Options(stage=3, precision="bf16")])
def master_drifts_alone(run: Run) -> None:
    """Frozen after the engine: weight decay moves the fp32 masters, too little for bf16 to show it."""
    model = run.model()
    engine = run.engine(model, hyper=Hyper(lr=1e-6))
    freeze_except(engine.module, run.part("block"))
    run.train(engine, intent=run.part("block"))
