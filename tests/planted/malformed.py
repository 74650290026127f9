"""Cases that ask for what makes no sense, told only once a rank runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.cell import Options, case
from harness.cell.models import mlp
from planted.scene import block_engine

if TYPE_CHECKING:
    from harness.cell._run import Run

_VARIANTS = (Options(model="mlp", stage=3),)


@case(kind="CONTROL", variants=_VARIANTS)
def no_intent(run: Run) -> None:
    """Says nothing of what is meant to train."""
    run.train(block_engine(run), intent=())


@case(kind="CONTROL", variants=_VARIANTS)
def intent_matches_nothing(run: Run) -> None:
    """Forgets the prefix of the names."""
    run.train(block_engine(run), intent=["layers.2.*", "model.layers.1.*"])


@case(kind="CONTROL", variants=_VARIANTS)
def no_step(run: Run) -> None:
    """Trains for no step at all, and makes a mistake in the intent besides."""
    run.train(block_engine(run), intent="heads.*", steps=0)


@case(kind="CONTROL", variants=_VARIANTS)
def unknown_part(run: Run) -> None:
    """Asks for a part that the model does not have."""
    run.part("heads")


@case(kind="CONTROL", variants=_VARIANTS)
def no_batch(run: Run) -> None:
    """Brings a model of its own, but nothing to feed it."""
    run.train(run.engine(run.model(lambda: mlp.build())), intent="*")  # noqa: PLW0108  # not the model's own build


@case(kind="CONTROL", variants=_VARIANTS)
def never_trains(run: Run) -> None:
    """Ends before anything could be measured."""
    block_engine(run)


@case(kind="CONTROL", variants=_VARIANTS)
def saves_untrained(run: Run) -> None:
    """Hands over what came back from disk before anything was trained."""
    engine = block_engine(run)
    run.saved(engine.module.state_dict())


@case(kind="CONTROL", variants=[Options(model="mlp", driver="accelerate", adapters="lora")])
def goes_its_own_way(run: Run) -> None:
    """Its variant names a driver and adapters, and it uses neither."""
    run.train(block_engine(run), intent="layers.2.*")
