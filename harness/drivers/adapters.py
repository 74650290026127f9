"""PEFT adapters: put around a model, saved as PEFT saves them, and loaded into a fresh base model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cell._case import LibraryMissing

if TYPE_CHECKING:
    import torch

    from harness.cell._run import Run

__all__ = ["adapted", "lora", "reloaded"]

#: Two linear layers of a block, by model.
_TARGETS = {"mlp": ["layers.1", "layers.2"], "tiny_llama": ["q_proj", "up_proj"]}


def lora(run: Run, **settings: Any) -> Callable[[Any], Any]:
    """For ``run.model(wrap=...)``: LoRA of rank 4 around the variant's model.

    :param settings: of ``LoraConfig``, beside or in place of rank and targets.
    """
    from peft import LoraConfig, get_peft_model

    config = {"r": 4, "target_modules": _TARGETS[run.options.model], **settings}
    return lambda model: get_peft_model(model, LoraConfig(**config))


def adapted(config: str, **settings: Any) -> Callable[[Any], Any]:
    """For ``run.model(wrap=...)``: any adapter that PEFT has, by the name of its configuration's class.

    :param settings: of that class.
    :raises LibraryMissing: where this release of PEFT has no such class, setting or initialization.
    """
    import peft

    who = f"peft {peft.__version__}"
    kind = getattr(peft, config, None)
    if kind is None:
        raise LibraryMissing(f"{who} has no {config}")
    if unknown := sorted(settings.keys() - {one.name for one in dataclasses.fields(kind)}):
        raise LibraryMissing(f"{who}: {config} has no {', '.join(unknown)}")

    def wrap(model: Any) -> Any:
        try:
            return peft.get_peft_model(model, kind(**settings))
        except ValueError as error:
            if "Unknown initialization" in str(error):
                raise LibraryMissing(f"{who}: {error}") from error
            raise

    return wrap


def reloaded(run: Run, folder: Path) -> dict[str, torch.Tensor]:
    """The parameters of a fresh base model, without ZeRO, and the adapter in ``folder`` loaded into it."""
    import torch.distributed as dist
    from peft import PeftModel

    from harness.cell.models import find_model

    dist.barrier()
    run.reach("reloaded")
    base = run.bystander(find_model(run.options.model), under="plain")
    return dict(PeftModel.from_pretrained(base, str(folder)).named_parameters())
