"""Build a model as users do, and give it the starting weights that the twin has."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any, TypeVar

import torch

from harness.cell._case import MalformedCase
from harness.cell._options import Checkpointing
from harness.cell.oracle._engine_facts import is_partitioned
from harness.cell.oracle._partitions import fill_partition

__all__ = ["checkpoint_activations", "give_weights", "under_zero_init"]


_T = TypeVar("_T")


def under_zero_init(build: Callable[[], _T], config: Mapping[str, Any]) -> _T:
    """Each parameter is partitioned as soon as it exists; what is in it then is left open."""
    import deepspeed

    with deepspeed.zero.Init(config_dict_or_path=config):
        return build()


@torch.no_grad()
def give_weights(
    model: torch.nn.Module, start: Mapping[str, torch.Tensor], *, but: Container[int] = frozenset()
) -> None:
    """Every parameter, partitioned or whole, and every buffer that is in ``start``.

    :param but: ``id`` of parameters and buffers to leave as they are.
    """
    for name, one in model.named_parameters():
        if id(one) in but:
            continue
        if is_partitioned(one):
            fill_partition(one, start[name])
        elif one.shape == start[name].shape:
            one.copy_(start[name])
        # Else someone copied a partition for the whole of it, and the run is to show what comes of that.
    for name, buffer in model.named_buffers():
        if name in start and id(buffer) not in but:
            buffer.copy_(start[name])


def checkpoint_activations(model: Any, kind: Checkpointing) -> None:
    """As transformers' models are told to, or ours, by a method of the same name.

    :raises MalformedCase: where a model has no such method.
    """
    if kind == "none":
        return
    enable = getattr(model, "gradient_checkpointing_enable", None)
    if enable is None:
        raise MalformedCase(f"model {type(model).__name__}", "it has no gradient_checkpointing_enable to call")
    enable(gradient_checkpointing_kwargs={"use_reentrant": kind == "reentrant"})
