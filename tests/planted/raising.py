"""Errors: on one rank, on all, and at which moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.cell import Options, case
from planted.scene import block_engine

if TYPE_CHECKING:
    from harness.cell._run import Run

_VARIANTS = (Options(stage=0), Options(stage=3))


@case(kind="CONTROL", variants=_VARIANTS)
def forward_on_one_rank(run: Run) -> None:
    """The second forward raises on rank 1 alone."""
    engine = block_engine(run)
    run.train(engine, intent=run.part("block"), steps=1)

    def refuse(*_: Any) -> None:
        msg = "planted: no such token"
        raise ValueError(msg)

    if run.rank == 1:
        engine.module.register_forward_pre_hook(refuse)
    run.train(engine, intent=run.part("block"), steps=1)


@case(kind="CONTROL", variants=[Options(stage=0)], needs=["no_such_library"])
def needs_what_nobody_has(run: Run) -> None:
    """Asks for a library that is not there, so that no rank ever starts."""
    run.note("started all the same")


@case(kind="CONTROL", variants=_VARIANTS)
def step_on_every_rank(run: Run) -> None:
    """The optimizer's step raises everywhere."""
    engine = block_engine(run)

    def refuse(*_: Any, **__: Any) -> None:
        msg = "planted: no step"
        raise RuntimeError(msg)

    engine.basic_optimizer.step = refuse
    run.train(engine, intent=run.part("block"))
