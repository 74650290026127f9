"""Low-rank adapters around linear layers, as PEFT puts them, in plain torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

__all__ = ["Adapted", "adapt"]


class Adapted(nn.Module):
    """A linear layer and a detour of few dimensions beside it, which may be of another dtype."""

    def __init__(self, base: nn.Linear, dtype: torch.dtype) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(32, 4, bias=False, dtype=dtype)
        self.up = nn.Linear(4, 32, bias=False, dtype=dtype)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.base(hidden)
        detour: torch.Tensor = self.up(self.down(hidden.to(self.down.weight.dtype)))
        return out + detour.to(out.dtype)


def adapt(model: Any, dtype: torch.dtype) -> Any:
    """Every layer of the ``mlp`` gets an adapter.  For ``run.model(wrap=...)``."""
    for number, layer in enumerate(model.layers):
        model.layers[number] = Adapted(layer, dtype)
    return model
