"""A student that has its teacher with it."""

from __future__ import annotations

import torch
from torch import nn

from harness.cell.zoo._mlp import Mlp

__all__ = ["Distilled"]


class Distilled(nn.Module):
    """Each call runs the teacher without gradients and the student on targets that depend on its loss."""

    def __init__(self, student: nn.Module) -> None:
        super().__init__()
        self.student = student
        self.teacher = Mlp()

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            taught = self.teacher(inputs=inputs, targets=targets)
        loss: torch.Tensor = self.student(inputs=inputs, targets=targets * taught)
        return loss
