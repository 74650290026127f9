"""Optimizer hyper-parameters, given alike to DeepSpeed, to a driver and to the twin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from harness.cell._patterns import Patterns, matches

if TYPE_CHECKING:
    import torch

__all__ = ["Group", "Hyper"]


@dataclass(frozen=True)
class Group:
    """An optimizer group of its own; what is None is as in the rest.

    :param names: patterns over parameter names.  One that no parameter matches makes a group
        without members, as users have them.
    """

    names: Patterns
    lr: float | None = None
    weight_decay: float | None = None


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
    #: Groups beside the first, which has all parameters that none of these names.  A driver adds
    #: one whose library sorts parameters so (the Trainer: no decay for biases and norms).
    split: tuple[Group, ...] = ()
    #: Learning rate of optimizer step n (from 0), as a factor; None: always 1.
    schedule: Callable[[int], float] | None = None

    def deepspeed(self, *, torch_adam: bool = True) -> dict[str, Any]:
        """The ``optimizer`` block of a DeepSpeed JSON.

        :param torch_adam: torch's own Adam; the fused and CPU variants are compiled on first use.
        """
        params: dict[str, Any] = {"lr": self.lr, "weight_decay": self.weight_decay}
        if self.optimizer == "AdamW":
            params |= {"betas": list(self.betas), "eps": self.eps, "torch_adam": torch_adam}
        else:
            params |= {"momentum": self.momentum}
        return {"type": self.optimizer, "params": params}

    def groups(self, named: Mapping[str, torch.nn.Parameter], *, empty: bool = False) -> list[dict[str, Any]]:
        """``named`` as optimizer groups: the first, then those of ``split``.

        :param empty: keep groups without members, as a user's own code does.
        """
        rest = dict(named)
        apart = []
        for group in self.split:
            held = [rest.pop(name) for name in [*rest] if matches(name, group.names)]
            apart.append((group, held))
        made = []
        for group, held in [(Group(()), [*rest.values()]), *apart]:
            if held or empty:
                lr = self.lr if group.lr is None else group.lr
                decay = self.weight_decay if group.weight_decay is None else group.weight_decay
                made.append({"params": held, "lr": lr, "weight_decay": decay})
        return made

    def torch(self, named: Mapping[str, torch.nn.Parameter], *, empty: bool = False) -> torch.optim.Optimizer:
        """The same in plain torch."""
        import torch

        groups = self.groups(named, empty=empty)
        if self.optimizer == "SGD":
            return torch.optim.SGD(groups, lr=self.lr, momentum=self.momentum)
        return torch.optim.AdamW(groups, lr=self.lr, betas=self.betas, eps=self.eps)

    def scheduler(self, optimizer: Any) -> Any:
        """``schedule`` as the learning-rate scheduler that people use, for an optimizer as it is now."""
        import torch

        return torch.optim.lr_scheduler.LambdaLR(optimizer, self.schedule or (lambda _: 1.0))
