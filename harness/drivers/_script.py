"""What a training script does, whatever it reaches the engine by; and what such a way must be able to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

    from harness.cell._hyper import Hyper
    from harness.cell._patterns import Patterns
    from harness.cell._run import Run
    from harness.cell.models import Batch

__all__ = ["Driver", "Recipe", "Script", "as_it_is"]

#: Sets flags of the model that it is called with.
Recipe = Callable[[Any], object]


def as_it_is(model: Any) -> Any:
    return model


@dataclass(frozen=True)
class Script:
    """One training script: the model of the variant, flags before and after the engine, some steps."""

    #: patterns over parameter names: what is meant to train
    intent: Patterns
    #: called with the model before the engine, or what makes it, has seen it
    freeze: Recipe | None = None
    #: called with the model once the engine exists, before the first micro-batch
    after_engine: Recipe | None = None
    #: as for ``run.model``
    wrap: Callable[[Any], Any] = as_it_is
    #: optimizer steps; each takes ``options.accumulation`` micro-batches
    steps: int = 2
    #: hyper-parameters, for the twin as well
    hyper: Hyper | None = None
    #: draws one micro-batch; by default the model's own
    batch: Callable[[torch.Generator], Batch] | None = None


class Driver(Protocol):
    """A way to the engine: a function that builds the variant's model and trains it as the script says."""

    def __call__(self, run: Run, script: Script) -> None: ...
