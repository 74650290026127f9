"""Parameters of unusual size: none that ranks can divide, or no element at all."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

__all__ = ["with_odd_sizes", "with_tail"]


class OddHead(nn.Module):
    """A head between two parameters of 33 and 7 elements, which are fetched together."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(33))
        self.shift = nn.Parameter(torch.rand(7))
        self.head = head

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(hidden * self.scale[:32] + self.scale[32])
        return out + self.shift.sum()


def with_odd_sizes(model: Any) -> Any:
    """For ``run.model(wrap=...)`` on the ``mlp``."""
    model.head = OddHead(model.head)
    return model


class TailedHead(nn.Module):
    """A head, and behind it a layer whose sum is added to what comes out."""

    def __init__(self, head: nn.Module, rows: int) -> None:
        super().__init__()
        self.head = head
        self.tail = nn.Linear(8, rows)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(hidden)
        tail: torch.Tensor = self.tail(out)
        return out + tail.sum(-1, keepdim=True)


def with_tail(model: Any, rows: int) -> Any:
    """As :func:`with_odd_sizes`; ``rows`` may be 0."""
    model.head = TailedHead(model.head, rows)
    return model
