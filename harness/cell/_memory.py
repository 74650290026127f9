"""What an optimizer keeps for the weights that it steps, counted rather than measured."""

from __future__ import annotations

from typing import Any

__all__ = ["optimizer_elements"]


def optimizer_elements(engine: Any) -> int:
    """Elements of optimizer state on all ranks together; Adam has two for each weight.  Collective."""
    import torch
    import torch.distributed as dist

    kept = [one for state in engine.optimizer.state.values() for one in state.values() if isinstance(one, torch.Tensor)]
    # a step count may be a tensor, too, without dimensions
    mine = torch.tensor(sum(one.numel() for one in kept if one.dim()))
    theirs = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(theirs, mine)
    return int(sum(theirs))
