"""Axolotl's ``train``, from a YAML file to weights on disk.

The user's files are written by rank 0 into ``run.folder``: a base model with a tokenizer of its own, a few texts, the
DeepSpeed JSON of the variant and ``config.yml``.  Then each rank does what it does under ``axolotl train config.yml``:
reads and validates the YAML, prepares the texts, loads the model (under ``zero.Init`` at stage 3), freezes, trains
and saves.  Verdicts come from the engine that this makes, and from what lies on disk afterwards.

What Axolotl does otherwise than a plain loop, and a case may be surprised by (0.19.0):

- It rescales the loss as the Trainer does.
- Norms, biases, and where one of the ``embedding_lr`` settings is given embeddings and head too, are without weight
  decay, as in the Trainer (``create_optimizer`` in axolotl/core/trainers/mixins/optimizer.py).
- A pattern that has ``embed_tokens`` or ``lm_head`` in it makes the outputs of the embedding require gradients, so
  that reentrant checkpointing has some to hand on (``setup_model_and_tokenizer`` in axolotl/train.py).

Nothing may reach the network meanwhile; who tries makes the run NOT_RUN.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from unittest import mock

from harness.cell._case import MalformedCase
from harness.cell._hyper import Group
from harness.drivers._axolotl_files import write_files
from harness.drivers._offline import offline
from harness.drivers.axolotl import absent
from harness.drivers.axolotl_config import config_faults
from harness.drivers.disk import GATHER, weights_in

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from harness.cell._hyper import Hyper
    from harness.cell._patterns import Patterns
    from harness.cell._run import Run
    from harness.cell.models import Model

__all__ = ["NEEDS", "train_with_axolotl"]

#: For ``case(needs=...)``: beside Axolotl what only its own dependencies bring.
NEEDS = ("axolotl.cli.train", "datasets", "posthog", "trl", "yaml")

#: Texts in a micro-batch.
_TEXTS = 2

#: What every run has beside what its variant says; a case may give any of it anew.
_SETTINGS: dict[str, Any] = {
    "sequence_len": 16,
    "micro_batch_size": _TEXTS,
    "num_epochs": 1,
    # the twin has one constant rate, and torch's AdamW
    "optimizer": "adamw_torch",
    "lr_scheduler": "constant",
    # nothing but the weights on disk, and no processes beside the ranks
    "save_strategy": "no",
    "val_set_size": 0,
    "logging_steps": 1000,
    "dataset_num_proc": 0,
    "dataloader_num_workers": 0,
    "dataloader_pin_memory": False,
    "special_tokens": {"pad_token": "<pad>"},
    "fp16": False,
    "tf32": False,
}


def train_with_axolotl(
    run: Run,
    unfrozen: Sequence[str],
    *,
    intent: Patterns,
    source: Model | Callable[[], torch.nn.Module] | None = None,
    rows: Mapping[str, slice] = MappingProxyType({}),
    steps: int = 2,
    hyper: Hyper | None = None,
    settings: Mapping[str, Any] = MappingProxyType({}),
    zero: Mapping[str, Any] = MappingProxyType(GATHER),
    back: Callable[[Run, Path], Mapping[str, torch.Tensor]] = weights_in,
    checked: bool = True,
) -> None:
    """Train by Axolotl, and read back what it saved.

    :param unfrozen: its ``unfrozen_parameters``.
    :param intent: patterns over parameter names: what is meant to train.  All else must stay.
    :param source: as for ``run.model``; a model of transformers.
    :param rows: as for ``run.train``.
    :param steps: optimizer steps; each takes ``options.accumulation`` micro-batches.
    :param hyper: hyper-parameters, for the twin as well.
    :param settings: of the YAML, beside or in place of those that every run has.
    :param zero: merged into ``zero_optimization`` of the DeepSpeed JSON.
    :param back: reads what was saved, in the folder of the output.
    :param checked: refuse a configuration with faults that are known before anything runs; a case that is to show
        what they lead to is not.
    :raises LibraryMissing: where Axolotl is here without its dependencies, or cannot be imported with them.
    :raises MalformedCase: for such faults.
    """
    if hyper is not None:
        run.hyper = hyper
    _refuse(run, steps, settings)
    with offline():
        try:
            from harness.drivers._axolotl_steering import settings_for, train_as_the_command_does
        except Exception as error:  # a release that does not suit the stack fails on import in every way there is
            raise absent("axolotl.cli.train", error, "with its dependencies") from error

        def write(reference: Any) -> Any:
            config = {**_config(run, unfrozen, steps), **settings_for(run), **settings}
            _write(run, reference, config, steps, zero)
            if checked:
                _check(run, config)
            # Axolotl makes the model that trains, from these files; this one only stands for it.
            return copy.deepcopy(reference)

        model = run.model(source, load=write)
        run.hyper = dataclasses.replace(run.hyper, split=(*run.hyper.split, Group(_undecayed(model), weight_decay=0.0)))
        with run.watching(rescales=True), _meaning(run, intent, rows):
            train_as_the_command_does(run, run.folder / "config.yml")
    run.saved(back(run, run.folder / "out"))


def _meaning(run: Run, intent: Patterns, rows: Mapping[str, slice]) -> Any:
    """As soon as there is an engine, the intent holds: Axolotl takes no callback without a plugin."""
    import deepspeed

    watched = deepspeed.initialize

    def initialize(*args: Any, **kwargs: Any) -> Any:
        made = watched(*args, **kwargs)
        run.intend(made[0], intent, rows=rows)
        return made

    return mock.patch.object(deepspeed, "initialize", initialize)


def _refuse(run: Run, steps: int, settings: Mapping[str, Any]) -> None:
    options = run.options
    faults = []
    if not isinstance(steps, int) or steps < 1:
        faults.append(f"steps must be 1 or more, found {steps!r}")
    if options.stage != 3:
        faults.append("Axolotl is driven at stage 3 only: below, it loads the model onto a device by its number")
    elif options.init == "plain":
        faults.append("at stage 3 Axolotl loads the model under zero.Init; give the variant that init")
    if options.precision == "bf16" and run.device == "cpu":
        faults.append("Axolotl passes bf16 on as it is, and the Trainer then wants a GPU that has it")
    if options.offload != "none":
        faults.append("offload is not driven through Axolotl")
    if run.hyper.optimizer != "AdamW":
        faults.append(f"Axolotl is driven with AdamW only, found {run.hyper.optimizer}")
    if "deepspeed" in settings:
        faults.append("the ZeRO stage would be given twice, by the variant and by settings['deepspeed']; give zero=")
    if faults:
        raise MalformedCase(f"case on {options.id}", *faults)


def _check(run: Run, config: Mapping[str, Any]) -> None:
    """On all ranks alike, from the same files."""
    if found := config_faults(config, folder=run.folder, stage=run.options.stage, offline=True):
        raise MalformedCase(f"case on {run.options.id}", *found)


def _config(run: Run, unfrozen: Sequence[str], steps: int) -> dict[str, Any]:
    options, hyper = run.options, run.hyper
    config = {
        **_SETTINGS,
        "base_model": str(run.folder / "base"),
        "datasets": [{"path": str(run.folder / "data.jsonl"), "ds_type": "json", "type": "completion"}],
        "dataset_prepared_path": str(run.folder / "prepared"),
        "output_dir": str(run.folder / "out"),
        "unfrozen_parameters": [*unfrozen],
        "deepspeed": str(run.folder / "deepspeed.json"),
        "max_steps": steps,
        "gradient_accumulation_steps": options.accumulation,
        "max_grad_norm": options.clipping,
        "bf16": options.precision == "bf16",
        "learning_rate": hyper.lr,
        "weight_decay": hyper.weight_decay,
        "adam_beta1": hyper.betas[0],
        "adam_beta2": hyper.betas[1],
        "adam_epsilon": hyper.eps,
    }
    if options.checkpointing != "none":
        reentrant = options.checkpointing == "reentrant"
        config |= {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": reentrant}}
    return config


def _write(run: Run, reference: Any, config: Mapping[str, Any], steps: int, zero: Mapping[str, Any]) -> None:
    import torch.distributed as dist

    if run.rank == 0:
        changes = {"gradient_accumulation_steps": "auto", "train_micro_batch_size_per_gpu": "auto"}
        deepspeed = run.config(zero_optimization=dict(zero), **changes)
        del deepspeed["optimizer"]  # Axolotl makes its own
        texts = steps * run.options.accumulation * run.world * _TEXTS
        write_files(run.folder, reference, rows=texts, config=config, deepspeed=deepspeed)
    dist.barrier()


def _undecayed(model: Any) -> tuple[str, ...]:
    """Norms and biases, by their own words for them."""
    from transformers import Trainer

    # It asks nothing of the Trainer, which there is none of yet.
    decayed = set(Trainer.get_decay_parameter_names(None, model))
    return tuple(name for name, _ in model.named_parameters() if name not in decayed)
