"""The small model with a scale whose tensor asks for a gradient before it is a parameter."""

from __future__ import annotations

import torch
from torch import nn

from harness.cell.zoo._mlp import Mlp

__all__ = ["Scaled"]


class Scaled(Mlp):
    """Inputs are scaled element by element."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(16, requires_grad=True))

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs * self.scale, targets)
