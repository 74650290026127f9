"""One generic case for each recipe, moment and optimizer; its variants are combinations that were chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from harness.cell import Case, Options, case, freeze_all_then_unfreeze, freeze_except, unfreeze
from harness.cell._kinds import CONTROL
from harness.explore.names import HYPERS, parse

if TYPE_CHECKING:
    from harness.cell._run import Run

__all__ = ["cases_of"]


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


def case_of(recipe: str, moment: str, optimizer: str, variants: Sequence[Options] | None = None) -> Case:
    """The generic case."""
    made = _generic(recipe, moment, optimizer)
    return case(kind=CONTROL, recipe=recipe, moment=f"{moment}, {optimizer}", variants=variants)(made)


def cases_of(chosen: Iterable[str]) -> Iterator[tuple[Case, Options]]:
    """Each combination as a variant of its case, in their order."""
    variants: dict[tuple[str, str, str], list[Options]] = {}
    for text in chosen:
        *what, options = parse(text)
        variants.setdefault((what[0], what[1], what[2]), []).append(options)
    cases = {what: case_of(*what, options) for what, options in variants.items()}
    for text in chosen:
        recipe, moment, optimizer, options = parse(text)
        yield cases[recipe, moment, optimizer], options


def __getattr__(name: str) -> Case:
    """Ranks look a case up by its name in its module; which variants there are is nothing to them."""
    try:
        recipe, moment, optimizer, _ = parse(f"{name}[{Options().id}]")
    except ValueError:
        raise AttributeError(name) from None
    return case_of(recipe, moment, optimizer)
