"""Optimizer hyper-parameters, given alike to DeepSpeed, to a driver and to the twin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch

__all__ = ["Hyper"]


@dataclass(frozen=True)
class Hyper:
    """Every value is always passed on: DeepSpeed, torch and transformers differ in defaults.

    ``eps`` is larger than anyone's default on purpose.  Adam divides a gradient by its own size,
    so an element whose gradient is rounding noise still moves by a full learning rate, in a
    random direction; ``eps`` well above that noise keeps run and twin comparable.
    """

    optimizer: Literal["AdamW", "SGD"] = "AdamW"
    lr: float = 1e-2
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-5
    weight_decay: float = 0.1
    momentum: float = 0.0
    #: Names of the parameters that get no weight decay.  A driver fills it in whose library
    #: sorts parameters so (the Trainer: biases and norms); the plain engine decays all alike.
    undecayed: tuple[str, ...] = ()

    def deepspeed(self) -> dict[str, Any]:
        """The ``optimizer`` block of a DeepSpeed JSON."""
        params: dict[str, Any] = {"lr": self.lr, "weight_decay": self.weight_decay}
        if self.optimizer == "AdamW":
            # torch_adam: the fused and CPU variants are compiled on first use
            params |= {"betas": list(self.betas), "eps": self.eps, "torch_adam": True}
        else:
            params |= {"momentum": self.momentum}
        return {"type": self.optimizer, "params": params}

    def groups(self, named: Mapping[str, torch.nn.Parameter]) -> list[dict[str, Any]]:
        """``named`` as optimizer groups, those without weight decay apart; none is empty."""
        split = (
            (self.weight_decay, [one for name, one in named.items() if name not in self.undecayed]),
            (0.0, [one for name, one in named.items() if name in self.undecayed]),
        )
        return [{"params": held, "weight_decay": decay} for decay, held in split if held]

    def torch(self, named: Mapping[str, torch.nn.Parameter]) -> torch.optim.Optimizer:
        """The same in plain torch."""
        import torch

        groups = self.groups(named)
        if self.optimizer == "SGD":
            return torch.optim.SGD(groups, lr=self.lr, momentum=self.momentum)
        return torch.optim.AdamW(groups, lr=self.lr, betas=self.betas, eps=self.eps)
