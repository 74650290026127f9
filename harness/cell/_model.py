"""What a case needs to know of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["Batch", "Model"]

Batch = dict[str, Any]


@dataclass(frozen=True)
class Model:
    """What a case needs to know of a model.

    :param build: gives an ``nn.Module`` whose call returns the loss or has it as ``.loss``.
    :param batch: gives one rank's micro-batch, as keyword arguments, from a CPU generator.
    :param parts: part name -> globs over parameter names.
    :param needs: import names of what it is built with.
    """

    name: str
    build: Callable[[], torch.nn.Module]
    batch: Callable[[torch.Generator], Batch]
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
