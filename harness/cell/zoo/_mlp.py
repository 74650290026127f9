"""The plain-torch model; a module of its own since defining it imports torch."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

__all__ = ["Mlp"]


class Mlp(nn.Module):
    """Inputs (batch, 16) -> targets (batch, 8); calls return the mean squared error."""

    def __init__(self, layers: int = 4) -> None:
        super().__init__()
        self.stem = nn.Linear(16, 32)
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(layers))
        self.head = nn.Linear(32, 8)
        self._use_reentrant: bool | None = None

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: dict[str, bool]) -> None:
        """Each layer is a checkpoint from now on; named and called as in transformers."""
        self._use_reentrant = gradient_checkpointing_kwargs["use_reentrant"]

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.stem(inputs.to(self.stem.weight.dtype)))
        for layer in self.layers:
            if self._use_reentrant is None:
                change = layer(hidden)
            else:
                change = checkpoint(layer, hidden, use_reentrant=self._use_reentrant)
            hidden = hidden + torch.tanh(change)
        # Not mse_loss: on CPU it had no bf16 kernel in torch 2.2.
        loss: torch.Tensor = (self.head(hidden) - targets.to(hidden.dtype)).square().mean()
        return loss
