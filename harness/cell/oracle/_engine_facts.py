"""What DeepSpeed knows of a parameter, read without changing it.

DeepSpeed has no public way to ask most of this; every attribute name used is here, with the
releases it was read in (0.10.3, 0.14.4, 0.16.9, 0.19.8 unless said).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

__all__ = ["full_shape", "group_index", "is_partitioned", "master_weight", "reduced_grad"]

#: Lists of parameter lists that an optimizer really steps: ZeRO-3 (sub-groups), ZeRO-1/2, the
#: half-precision optimizers of stage 0.
_GROUP_LISTS = ("fp16_groups", "bit16_groups", "bf16_groups")


def is_partitioned(parameter: torch.nn.Parameter) -> bool:
    """Under ZeRO-3's care and not whole on this rank at the moment."""
    status = getattr(parameter, "ds_status", None)
    return status is not None and status.name != "AVAILABLE"


def full_shape(parameter: torch.nn.Parameter) -> tuple[int, ...]:
    """The shape when gathered."""
    return tuple(getattr(parameter, "ds_shape", parameter.shape))


def group_index(optimizer: Any) -> dict[int, int]:
    """``id(parameter)`` -> index of the optimizer group (ZeRO-3: sub-group) that steps it."""
    groups: Iterable[Iterable[torch.nn.Parameter]] = ()
    for name in _GROUP_LISTS:
        if groups := getattr(optimizer, name, ()):
            break
    else:
        # Stage 0 in fp32 steps the parameters themselves.
        groups = [group["params"] for group in getattr(optimizer, "param_groups", ())]
    return {id(parameter): index for index, group in enumerate(groups) for parameter in group}


def reduced_grad(parameter: torch.nn.Parameter, optimizer: Any) -> torch.Tensor | None:
    """The gradient over all ranks that the optimizer holds.  Collective at stages 1 to 3.

    Not ``safe_get_full_grad``: that hands back a local, unreduced ``.grad`` wherever one exists,
    which for a parameter unfrozen after the engine is all there is.
    """
    # BF16_Optimizer partitions weights, but every rank keeps whole gradients; asked for one whose weight lies in
    # two ranks' partitions, it puts the whole where the part belongs (read in 0.16.9).
    for group, grads, there in zip(
        getattr(optimizer, "bf16_groups", ()),
        getattr(optimizer, "fp32_groups_gradients", ()),
        getattr(optimizer, "fp32_groups_has_gradients", ()),
        strict=False,
    ):
        for one, grad, has in zip(group, grads, there, strict=True):
            if one is parameter:
                return grad.view(parameter.shape) if has else None
    if hasattr(parameter, "ds_id"):
        zero_3: Any = parameter._z3_optimizer  # type: ignore[attr-defined]  # noqa: SLF001
        return zero_3.get_fp32_grad_for_param(parameter)  # type: ignore[no-any-return]
    if getattr(parameter, "_hp_mapping", None) is not None or hasattr(parameter, "get_full_hp_grad"):
        return parameter.get_full_hp_grad()  # type: ignore[attr-defined,no-any-return]
    # Without ZeRO the half-precision optimizers divide by their loss scale while they step; bf16 too has one of 65536
    # in some releases (read in 0.17.6).
    scale = getattr(optimizer, "cur_scale", 1)
    return parameter.grad if parameter.grad is None or scale == 1 else parameter.grad.float() / scale


def master_weight(parameter: torch.nn.Parameter, optimizer: Any) -> torch.Tensor | None:
    """The fp32 weight that the optimizer steps, where it keeps one.  Collective at stages 1 to 3."""
    # Below fp32, stage 0 keeps whole masters in lists beside those of the model's own weights;
    # safe_get_full_fp32_param does not know of them (read in 0.19.8).
    halves, masters = getattr(optimizer, "fp16_groups", ()), getattr(optimizer, "fp32_groups", None)
    for group, of_group in zip(halves, masters, strict=True) if masters else ():
        for one, master in zip(group, of_group, strict=True):
            if one is parameter:
                return master  # type: ignore[no-any-return]
    from deepspeed.utils import safe_get_full_fp32_param

    flag = parameter.requires_grad
    # ZeRO-3 has no answer where the flag is off, and does not ask the ranks where it is on.
    parameter.requires_grad = True
    try:
        return safe_get_full_fp32_param(parameter)  # type: ignore[no-any-return]
    finally:
        parameter.requires_grad = flag
