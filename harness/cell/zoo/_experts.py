"""A plain-torch mixture of experts: a router sends each row of a batch to one expert."""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["Experts", "MoeMlp"]


class Experts(nn.Module):
    """Only the experts that some row chose run, unless all are told to."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(32, 4)
        self.experts = nn.ModuleList(nn.Linear(32, 32) for _ in range(4))

    def forward(self, hidden: torch.Tensor, choice: torch.Tensor, *, everyone: bool) -> tuple[torch.Tensor, ...]:
        """``choice`` of each row, which a real router would make: a case says which ranks use which experts.

        :param everyone: experts without rows run, too, on none.
        """
        logits = self.router(hidden)
        weight = torch.softmax(logits, dim=-1).gather(1, choice[:, None])
        out = torch.zeros_like(hidden)
        for index in range(len(self.experts)) if everyone else sorted(set(choice.tolist())):
            rows = (choice == index).nonzero().flatten()
            out = out.index_add(0, rows, torch.tanh(self.experts[index](hidden[rows])) * weight[rows])
        return out, logits


class MoeMlp(nn.Module):
    """Inputs (batch, 16) -> targets (batch, 8); calls return the mean squared error, and a share of the router's."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(16, 32)
        self.moe = Experts()
        self.head = nn.Linear(32, 8)

    def forward(
        self,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        choice: torch.Tensor,
        everyone: torch.Tensor | None = None,
    ) -> torch.Tensor:
        hidden = torch.tanh(self.stem(inputs))
        change, logits = self.moe(hidden, choice, everyone=everyone is not None)
        error = (self.head(hidden + change) - targets).square().mean()
        loss: torch.Tensor = error + 0.1 * logits.square().mean()
        return loss
