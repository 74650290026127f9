"""What the Trainer driver hangs into ``transformers.Trainer``; importing it imports transformers."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from accelerate.state import AcceleratorState, PartialState
from transformers import Trainer, TrainerCallback

from harness.cell.oracle._observer import loss_of

__all__ = ["AtStepBegin", "AtTrainBegin", "BareLossTrainer", "deepspeed_on_cpu"]


def deepspeed_on_cpu() -> PartialState:
    """What accelerate knows of the ranks, as the Trainer has it set up on GPUs, but on CPU.

    Arguments with ``use_cpu`` have it set up for plain CPU ranks.  Some releases of accelerate make
    DeepSpeed's engine all the same, older ones then never make one; all of them take a state that
    was set up for DeepSpeed, and the device from the environment.  Newer ones have to be told the
    backend too: without one that they know, they take each rank for the only one.
    """
    AcceleratorState._reset_state(reset_partial_state=True)  # noqa: SLF001  # as TrainingArguments does
    with mock.patch.dict(os.environ, ACCELERATE_USE_DEEPSPEED="true", ACCELERATE_TORCH_DEVICE="cpu"):
        return PartialState(backend="gloo")


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
