"""accelerate, set up for DeepSpeed on ranks without a GPU; importing this imports accelerate."""

from __future__ import annotations

import os
from unittest import mock

from accelerate.state import AcceleratorState, PartialState

__all__ = ["deepspeed_on_cpu"]


def deepspeed_on_cpu() -> PartialState:
    """What accelerate knows of the ranks, as it is set up on GPUs, but on CPU.

    A Trainer's arguments with ``use_cpu`` have it set up for plain CPU ranks.  Some releases of accelerate make
    DeepSpeed's engine all the same, older ones then never make one; all of them take a state that
    was set up for DeepSpeed, and the device from the environment.  Newer ones have to be told the
    backend too: without one that they know, they take each rank for the only one.
    """
    AcceleratorState._reset_state(reset_partial_state=True)  # noqa: SLF001  # as the Trainer's arguments do
    with mock.patch.dict(os.environ, ACCELERATE_USE_DEEPSPEED="true", ACCELERATE_TORCH_DEVICE="cpu"):
        return PartialState(backend="gloo")
