"""Break a real DeepSpeed engine at one spot, for one parameter.

Each function wraps the place of DeepSpeed's own code where such a fault would sit, read in 0.19.8,
on this engine alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch

from harness.cell.oracle import _engine_facts as facts

__all__ = [
    "after_step",
    "in_place",
    "next_float",
    "scale_gradient",
    "scale_step",
    "skip_reduction",
]

Change = Callable[[torch.Tensor], object]


def scale_gradient(parameter: torch.nn.Parameter, factor: float, micro_batches: range | None = None) -> None:
    """Multiply what this rank's backward gives for ``parameter``, before anything reduces it.

    :param micro_batches: of which calls of backward; all unless given.
    """
    calls = itertools.count()

    def scaled(gradient: torch.Tensor) -> torch.Tensor:
        call = next(calls)
        return gradient * factor if micro_batches is None or call in micro_batches else gradient

    parameter.register_hook(scaled)  # type: ignore[no-untyped-call]


def skip_reduction(engine: Any, stage: int, parameter: torch.nn.Parameter) -> None:
    """Let this rank keep its own gradient of ``parameter`` where it should take the mean over ranks."""
    if stage == 3:
        _keep_local_partition(engine.optimizer, parameter)
    else:
        # Both reduce into ``.grad``, which at stages 1 and 2 is a view of the reduction bucket.
        owner, name = (engine, "buffered_allreduce_fallback") if stage == 0 else (engine.optimizer, "average_tensor")
        reduce = getattr(owner, name)

        def reduce_all_but_one(*args: Any, **kwargs: Any) -> None:
            own = parameter.grad
            kept = None if own is None else own.clone()
            reduce(*args, **kwargs)
            if own is not None and kept is not None:
                own.copy_(kept)

        setattr(owner, name, reduce_all_but_one)


def _keep_local_partition(optimizer: Any, parameter: torch.nn.Parameter) -> None:
    partition_grads = optimizer.partition_grads

    def keep(parameters: list[torch.nn.Parameter], partitions: list[torch.Tensor]) -> Any:
        for number, one in enumerate(parameters):
            if one is parameter and one.grad is not None:
                size = partitions[number].numel()
                start = size * torch.distributed.get_rank()
                partitions[number] = one.grad.flatten()[start : start + size].clone()
        return partition_grads(parameters, partitions)

    optimizer.partition_grads = keep


def scale_step(engine: Any, stage: int, parameter: torch.nn.Parameter, factor: float) -> None:
    """Have the optimizer's step carry ``parameter`` ``factor`` times as far, as a wrong learning rate does."""
    step = engine.basic_optimizer.step

    def stepped(*args: Any, **kwargs: Any) -> Any:
        stepping = _stepped_tensor(engine, stage, parameter)
        before = None if stepping is None else stepping.detach().clone()
        result = step(*args, **kwargs)
        if stepping is not None and before is not None:
            with torch.no_grad():
                # not lerp, which need not give ``before`` back bit by bit at factor 0
                stepping.copy_(before if factor == 0.0 else before + factor * (stepping - before))
        return result

    engine.basic_optimizer.step = stepped


def after_step(engine: Any, number: int, change: Callable[[], None]) -> None:
    """Do something else, too, when the optimizer takes its ``number``-th step (from 1)."""
    step = engine.optimizer.step
    numbers = itertools.count(1)

    def stepped(*args: Any, **kwargs: Any) -> Any:
        result = step(*args, **kwargs)
        if next(numbers) == number:
            change()
        return result

    engine.optimizer.step = stepped


def _stepped_tensor(engine: Any, stage: int, parameter: torch.nn.Parameter) -> torch.Tensor | None:
    """This rank's share of what the optimizer steps for ``parameter``; None where it has no share."""
    optimizer = engine.optimizer
    if stage == 3:
        group, offset, size = optimizer.grad_position[optimizer.get_param_id(parameter)]
        return optimizer.fp32_partitioned_groups_flat[group].narrow(0, offset, size)  # type: ignore[no-any-return]
    if stage == 0:
        return facts.master_weight(parameter, optimizer) if hasattr(optimizer, "fp32_groups") else parameter
    mapping = parameter._hp_mapping  # type: ignore[attr-defined]
    return None if mapping is None else mapping.get_hp_fragment()


def in_place(parameter: torch.nn.Parameter, change: Change) -> None:
    """Change this rank's own copy of a weight, or its partition where the weight is partitioned."""
    with torch.no_grad():
        change(parameter.ds_tensor if facts.is_partitioned(parameter) else parameter.data)  # type: ignore[attr-defined]


def next_float(weights: torch.Tensor) -> None:
    """Move the first weight by one unit in the last place."""
    first = weights.view(-1)[:1]
    first.copy_(torch.nextafter(first, torch.full_like(first, float("inf"))))
