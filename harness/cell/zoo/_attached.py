"""What people put around a layer of a model that exists already."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

__all__ = ["Adapted", "Delegating", "Holding"]


class Adapted(nn.Module):
    """A linear layer of 32 x 32 and a low-rank adapter beside it, which starts at zero."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(32, 4, bias=False)
        self.up = nn.Linear(4, 32, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.base(hidden) + self.up(self.down(hidden))
        return out


class Holding(nn.Module):
    """Calls the layer that it holds, and has nothing of it but that."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.inner(hidden)
        return out


class Delegating(Holding):
    """Hands on what it lacks, so that code which asks for the layer's attributes goes on working."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)
