"""A plain-torch model whose batch says which of its layers run, how often and in which order."""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["Branches"]


class Branches(nn.Module):
    """Inputs and perhaps an image (batch, 16) -> targets (batch, 8); calls return the mean squared error."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(16, 32)
        self.tower = nn.Linear(16, 32)
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(4))
        self.head = nn.Linear(32, 8)

    def forward(
        self,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        image: torch.Tensor | None = None,
        image_share: torch.Tensor | None = None,
        route: torch.Tensor | None = None,
        shares: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """``route`` lists the layers as they run, ``shares`` how much of the change that each makes counts."""
        hidden = torch.tanh(self.stem(inputs))
        if image is not None:
            seen = torch.tanh(self.tower(image))
            hidden = hidden + (seen if image_share is None else seen * image_share)
        visits = range(len(self.layers)) if route is None else route.tolist()
        for number, index in enumerate(visits):
            change = torch.tanh(self.layers[index](hidden))
            hidden = hidden + (change if shares is None else change * shares[number])
        loss: torch.Tensor = (self.head(hidden) - targets).square().mean()
        return loss
