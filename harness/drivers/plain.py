"""A loop of one's own around ``deepspeed.initialize``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.cell._run import Run
    from harness.drivers._script import Script

__all__ = ["train"]


def train(run: Run, script: Script) -> None:
    """Model, freezing, engine, freezing, loop."""
    model = run.model(wrap=script.wrap)
    if script.freeze is not None:
        script.freeze(model)
    engine = run.engine(model, hyper=script.hyper)
    if script.after_engine is not None:
        script.after_engine(model)
    run.train(engine, intent=script.intent, steps=script.steps, batch=script.batch)
