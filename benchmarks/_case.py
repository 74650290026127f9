"""The case that every design runs, and the same with a look at its own memory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from benchmarks._memory import private_bytes
from harness.cell import Options, case, freeze_except

if TYPE_CHECKING:
    from harness.cell._run import Run

__all__ = ["MEMORY_NOTE", "VARIANT", "WORLD", "exclusion", "weighed"]

WORLD: Final = 2
#: Built under ``zero.Init`` with every parameter partitioned: the dearest of the stage-3 variants, so
#: the one on which starting ranks quickly is worth least.
VARIANT: Final = Options(model="tiny_llama", stage=3, init="zero_init", persistence="zero")
#: What the note of a rank that weighed itself starts with; bytes by rank as JSON follow.
MEMORY_NOTE: Final = "private bytes: "


def _train_block(run: Run) -> None:
    """Freeze all but one block, make the engine, take two steps."""
    model = run.model()
    freeze_except(model, run.part("block"))
    engine = run.engine(model)
    run.train(engine, intent=run.part("block"), steps=2)


@case(kind="CONTROL", recipe="exclusion freezing", moment="before the engine", variants=[VARIANT], world=WORLD)
def exclusion(run: Run) -> None:
    """Exclusion freezing before the engine trains exactly what is meant to train."""
    _train_block(run)


@case(kind="CONTROL", recipe="exclusion freezing", moment="before the engine", variants=[VARIANT], world=WORLD)
def weighed(run: Run) -> None:
    """The same; each rank notes how much memory it has for itself when it has the most."""
    _train_block(run)
    # The twin and the judge are part of what a rank costs, and come after the case: have them now.
    run.finish()
    run.note(MEMORY_NOTE + json.dumps({run.rank: private_bytes()}))
