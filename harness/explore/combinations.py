"""One generic case for each recipe, moment and optimizer; its variants are those that the environment asks for.

Ranks import this file, too, so it works nothing out: `thawcheck explore` chooses, and hands over the choice.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from harness.cell import Case, Options, case, freeze_all_then_unfreeze, freeze_except, unfreeze
from harness.explore.names import ASKED, HYPERS, parse

if TYPE_CHECKING:
    from harness.cell._run import Run

__all__: list[str] = []


def _generic(recipe: str, moment: str, optimizer: str) -> Callable[[Run], None]:
    def combination(run: Run) -> None:
        """A recipe at a moment."""
        model = run.model()
        intent = _before(recipe, run, model)
        if moment == "loaded":
            intent = _thaw(recipe, run, model)
        engine = run.engine(model, hyper=HYPERS[optimizer])
        if moment == "stepped":
            run.train(engine, intent=intent, steps=1)
        if moment != "loaded":
            intent = _thaw(recipe, run, engine.module)
        run.train(engine, intent=intent)

    combination.__name__ = f"{recipe}__{moment}__{optimizer}"
    return combination


def _before(recipe: str, run: Run, model: Any) -> tuple[str, ...]:
    """The flags before a recipe that may come late, and what trains until then."""
    if recipe in ("thaw_more", "switch"):
        freeze_except(model, run.part("embedding"))
        return run.part("embedding")
    return ("*",)


def _thaw(recipe: str, run: Run, model: Any) -> tuple[str, ...]:
    """Set the flags by a recipe; what is meant to train from then on."""
    first, second = run.part("embedding"), run.part("block")
    if recipe == "thaw_more":
        unfreeze(model, second)
        return (*first, *second)
    if recipe == "exclusion":
        freeze_except(model, second)
    else:
        freeze_all_then_unfreeze(model, second)
    return second


def _cases() -> dict[str, Case]:
    variants: dict[tuple[str, str, str], list[Options]] = defaultdict(list)
    for text in os.environ.get(ASKED, "").split():
        *what, options = parse(text)
        variants[what[0], what[1], what[2]].append(options)
    made = (
        case(kind="CONTROL", recipe=recipe, moment=f"{moment}, {optimizer}", variants=options)(
            _generic(recipe, moment, optimizer)
        )
        for (recipe, moment, optimizer), options in variants.items()
    )
    return {one.name: one for one in made}


# Ranks look a case up by its name in its module.
globals().update(_cases())
