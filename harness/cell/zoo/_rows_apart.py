"""A head some of whose rows are a parameter of their own."""

from __future__ import annotations

import torch
from torch import nn

from harness.cell.zoo._mlp import Mlp

__all__ = ["RowsApart"]


class RowsApart(Mlp):
    """The small model, its head's rows 2 to 4 in ``head.rows`` and the others in ``head.rest``."""

    def __init__(self) -> None:
        super().__init__()
        self.head = _Head()  # type: ignore[assignment]


class _Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.randn(3, 32) / 8)
        self.rest = nn.Parameter(torch.randn(5, 32) / 8)
        self.bias = nn.Parameter(torch.zeros(8))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        weight = torch.cat([self.rest[:2], self.rows, self.rest[2:]])
        return nn.functional.linear(hidden, weight, self.bias)
