"""Models made of blocks that are worth a checkpoint each: a norm, a linear layer, a way around both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

__all__ = ["Block", "Blocks", "Towers"]

_WIDTH = 32


class Block(nn.Module):
    """A frozen norm before a layer that trains is what adapters and partial training make of most models."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(_WIDTH)
        self.linear = nn.Linear(_WIDTH, _WIDTH)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + torch.tanh(self.linear(self.norm(hidden)))


class Stack(nn.Module):
    """Blocks in a row after a first layer; each is a checkpoint once told so."""

    def __init__(self, *, depth: int, times: int) -> None:
        super().__init__()
        self.stem = nn.Linear(16, _WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(depth))
        self.times = times
        self.call: Callable[..., Any] = lambda layer, hidden: layer(hidden)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.stem(inputs.to(self.stem.weight.dtype)))
        for layer in self.layers:
            for _ in range(self.times):
                hidden = self.call(layer, hidden)
        return hidden


class _Checkpointed(nn.Module):
    """What transformers' models offer, under the same names."""

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: dict[str, bool]) -> None:
        """Each block is a checkpoint from now on."""
        use_reentrant = gradient_checkpointing_kwargs["use_reentrant"]
        self.checkpoint_by(lambda layer, hidden: checkpoint(layer, hidden, use_reentrant=use_reentrant))

    def checkpoint_by(self, call: Callable[..., Any]) -> None:
        """Each block is run by ``call(block, hidden)``, another library's checkpoint function, say."""
        for one in self.modules():
            if isinstance(one, Stack):
                one.call = call

    def enable_input_require_grads(self) -> None:
        """What the first layers give needs a gradient from now on, whatever is frozen."""
        for one in self.modules():
            if isinstance(one, Stack):
                one.stem.register_forward_hook(lambda _, __, output: output.requires_grad_(True))


class Blocks(_Checkpointed):
    """Inputs (batch, 16) -> targets (batch, 8); calls return the mean squared error.

    :param times: how often in a row each block is run.
    """

    def __init__(self, *, times: int = 1) -> None:
        super().__init__()
        self.body = Stack(depth=4, times=times)
        self.head = nn.Linear(_WIDTH, 8)

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return _error(self.head(self.body(inputs)), targets)


class Towers(_Checkpointed):
    """Two stacks beside each other, their outputs added: a vision tower and a language model, in small."""

    def __init__(self) -> None:
        super().__init__()
        self.vision = Stack(depth=2, times=1)
        self.language = Stack(depth=2, times=1)
        self.head = nn.Linear(_WIDTH, 8)

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return _error(self.head(self.vision(inputs) + self.language(inputs)), targets)


def _error(out: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (out - targets.to(out.dtype)).square().mean()
