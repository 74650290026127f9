"""How people set ``requires_grad``: the recipes under test, as they are written in the wild."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.cell._patterns import Patterns, matches

if TYPE_CHECKING:
    import torch
    from torch import nn

__all__ = ["freeze_all", "freeze_all_then_unfreeze", "freeze_except", "train_rows", "unfreeze"]


def freeze_except(model: nn.Module, keep: Patterns) -> None:
    """Exclusion freezing: touch nothing but what must be frozen."""
    for name, parameter in model.named_parameters():
        if not matches(name, keep):
            parameter.requires_grad = False


def freeze_all(model: nn.Module) -> None:
    """Turn every flag off."""
    for parameter in model.parameters():
        parameter.requires_grad = False


def unfreeze(model: nn.Module, train: Patterns) -> None:
    """Turn the flags of what matches on; naive when an engine already exists."""
    for name, parameter in model.named_parameters():
        if matches(name, train):
            parameter.requires_grad = True


def freeze_all_then_unfreeze(model: nn.Module, train: Patterns) -> None:
    """The report's literal loop: everything off, then what matches on."""
    freeze_all(model)
    unfreeze(model, train)


def train_rows(parameter: nn.Parameter, rows: slice) -> None:
    """A gradient hook that leaves other rows nothing: element-wise freezing, as it is usually written."""

    def only_those(gradient: torch.Tensor) -> torch.Tensor:
        kept = gradient.clone()
        kept[: rows.start] = 0
        kept[rows.stop :] = 0
        return kept

    parameter.register_hook(only_those)  # type: ignore[no-untyped-call]
