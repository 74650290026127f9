"""What the Trainer driver hangs into ``transformers.Trainer``; importing it imports transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import Trainer, TrainerCallback

from harness.cell.oracle._observer import loss_of

__all__ = ["AtStepBegin", "AtTrainBegin", "BareLossTrainer"]


class AtTrainBegin(TrainerCallback):  # type: ignore[misc]  # transformers' types are not followed
    """Calls ``action`` once the engine exists and before the first micro-batch."""

    def __init__(self, action: Callable[[torch.nn.Module], object]) -> None:
        self._action = action

    def on_train_begin(self, *_: Any, model: torch.nn.Module, **__: Any) -> None:
        self._action(model)


class AtStepBegin(TrainerCallback):  # type: ignore[misc]  # as above
    """Calls ``action`` with the number of the optimizer step, from 0, before each begins."""

    def __init__(self, action: Callable[[torch.nn.Module, int], object]) -> None:
        self._action = action

    def on_step_begin(self, _: Any, state: Any, *__: Any, model: torch.nn.Module, **___: Any) -> None:
        self._action(model, state.global_step)


class BareLossTrainer(Trainer):  # type: ignore[misc]  # as above
    """For models that return no transformers output, e.g. nothing but the loss."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:  # noqa: FBT001, FBT002
        loss = loss_of(model(**inputs))
        return (loss, {"loss": loss}) if return_outputs else loss
