"""Read and write ZeRO-3 partitions as they are stored, without gathering a parameter.

``deepspeed.zero.GatheredParameters`` would do, but it changes the state of what it reads (a
parameter that ZeRO-3 keeps whole is partitioned again at its end) and takes a collective per
parameter, on gloo four tenths of a whole case.  Here all partitions go into one.  Attributes used
(read in 0.10.3 to 0.19.8): ``ds_tensor``, this rank's share, padded to the same size on every
rank; ``ds_numel`` and ``ds_shape``, the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist

__all__ = ["fill_partition", "gather"]


def gather(parameters: Mapping[str, torch.nn.Parameter]) -> dict[str, torch.Tensor]:
    """Copies of whole weights by name.  Collective: one all-gather for each dtype."""
    if not all(map(_is_stored_plainly, parameters.values())):
        return _gather_by_deepspeed(parameters)
    whole: dict[str, torch.Tensor] = {}
    for dtype in sorted({_share(one).dtype for one in parameters.values()}, key=str):
        group = {name: one for name, one in parameters.items() if _share(one).dtype == dtype}
        whole |= _gather_flat(group)
    return {name: whole[name] for name in parameters}


def fill_partition(parameter: torch.nn.Parameter, value: torch.Tensor) -> None:
    """Give a partitioned parameter its share of ``value``, the whole weight.  Not collective."""
    share = _share(parameter)
    start = dist.get_rank() * share.numel()
    mine = value.reshape(-1)[start : start + share.numel()]
    share[: mine.numel()].copy_(mine)


def _share(parameter: torch.nn.Parameter) -> torch.Tensor:
    return parameter.ds_tensor  # type: ignore[attr-defined,no-any-return]


def _is_stored_plainly(parameter: Any) -> bool:
    """Not swapped to disk, not quantised, and partitioned over all ranks."""
    share = parameter.ds_tensor
    return (
        share.status.name == "AVAILABLE"
        and not hasattr(share, "ds_quant_scale")
        and 0 <= share.numel() * dist.get_world_size() - parameter.ds_numel < dist.get_world_size()
    )


def _gather_flat(parameters: Mapping[str, torch.nn.Parameter]) -> dict[str, torch.Tensor]:
    shares = [_share(one).detach().reshape(-1).to(one.device) for one in parameters.values()]
    sizes = [share.numel() for share in shares]
    flat = torch.cat(shares)
    theirs = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(theirs, flat)
    pieces = zip(*(torch.split(one, sizes) for one in theirs), strict=True)
    return {name: _whole(one, piece) for (name, one), piece in zip(parameters.items(), pieces, strict=True)}


def _whole(parameter: Any, shares: Iterable[torch.Tensor]) -> torch.Tensor:
    return torch.cat(tuple(shares))[: parameter.ds_numel].view(parameter.ds_shape)


def _gather_by_deepspeed(parameters: Mapping[str, torch.nn.Parameter]) -> dict[str, torch.Tensor]:
    import deepspeed

    with deepspeed.zero.GatheredParameters(list(parameters.values())):
        return {name: one.detach().clone() for name, one in parameters.items()}
