"""The real ``transformers.Trainer`` with the real engine, in the order in which people use it.

Arguments (before the model under ``zero.Init``), model, freezing, Trainer, ``train()``; accelerate
creates the engine inside the last, and ``on_train_begin`` is the first moment after it.

What the Trainer does otherwise than a plain loop, and a case may be surprised by (transformers
5.16.1, accelerate 1.15.0, DeepSpeed 0.19.8):

- Its optimizer gets the parameters that are trainable just before the engine, in two groups, the
  second without weight decay.  So what is unfrozen later is in none, at stage 0 either.
- It sums a causal model's loss over tokens and divides by their number on all ranks and in all
  micro-batches of the step, then multiplies by the number of ranks (in place), and tells
  DeepSpeed not to divide by the number of micro-batches.  The observer follows that, and what older
  releases do instead.

What single releases do otherwise is in :mod:`harness.drivers._releases`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from harness.cell._case import MalformedCase, NoEngine
from harness.cell._hyper import Group
from harness.drivers._batches import batches_of_all_ranks, only
from harness.drivers._script import as_it_is

if TYPE_CHECKING:
    import torch

    from harness.cell._hyper import Hyper
    from harness.cell._patterns import Patterns
    from harness.cell._run import Run
    from harness.cell.models import Batch, Model
    from harness.drivers._script import Recipe, Script

__all__ = ["Flavour", "at_step_begin", "at_train_begin", "train", "train_by", "train_with_trainer"]

#: Training arguments that every run has; all releases from 4.36.2 to 5.24.0 take them as they are.
_ARGUMENTS: dict[str, Any] = {
    # the twin has one constant rate, and torch's AdamW
    "lr_scheduler_type": "constant",
    "optim": "adamw_torch",
    # a micro-batch of ours is one item of the data set, and the model takes all of it: older
    # releases find no argument of that name in an adapted model's signature, and drop it
    "per_device_train_batch_size": 1,
    "remove_unused_columns": False,
    # nothing on disk, on the network or on the terminal
    "save_strategy": "no",
    "logging_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
    "dataloader_pin_memory": False,
}


def train(run: Run, script: Script) -> None:
    """By :func:`train_with_trainer`."""
    train_by(_Plain(), run, script)


def train_by(flavour: Flavour, run: Run, script: Script) -> None:
    """What is done after the engine is done by a callback."""
    after = script.after_engine
    train_with_trainer(
        run,
        intent=script.intent,
        freeze=script.freeze,
        wrap=script.wrap,
        callbacks=[] if after is None else [at_train_begin(after)],
        steps=script.steps,
        hyper=script.hyper,
        batch=script.batch,
        flavour=flavour,
    )


class Flavour(Protocol):
    """Which of the Trainers it is: transformers' own, or that of a library on top."""

    def arguments(self, settings: dict[str, Any]) -> Any:
        """Its training arguments."""

    def trainer(self, *, model: Any, arguments: Any, batches: list[Batch], callbacks: list[Any]) -> Any:
        """It, with every micro-batch of ``batches`` whole."""


class _Plain:
    """transformers' own."""

    def arguments(self, settings: dict[str, Any]) -> Any:
        from transformers import TrainingArguments

        return TrainingArguments(**settings)

    def trainer(self, *, model: Any, arguments: Any, batches: list[Batch], callbacks: list[Any]) -> Any:
        from transformers import PreTrainedModel, Trainer

        from harness.drivers._trainer_parts import BareLossTrainer

        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        kind = Trainer if isinstance(inner, PreTrainedModel) else BareLossTrainer
        return kind(model=model, args=arguments, train_dataset=batches, data_collator=only, callbacks=callbacks)


def at_train_begin(recipe: Callable[..., object], *arguments: Any) -> Any:
    """A Trainer callback that applies ``recipe(model, *arguments)`` in ``on_train_begin``.

    That is after the engine was made: ``at_train_begin(unfreeze, "model.layers.2.*")`` is how
    gradual unfreezing is usually written.
    """
    from harness.drivers._trainer_parts import AtTrainBegin

    return AtTrainBegin(lambda model: recipe(model, *arguments))


def at_step_begin(recipe: Callable[..., object], arguments: Callable[[int], Any]) -> Any:
    """A Trainer callback that applies ``recipe(model, arguments(n))`` in ``on_step_begin`` of step n,
    counted from 0: how block rotation is usually written."""
    from harness.drivers._trainer_parts import AtStepBegin

    return AtStepBegin(lambda model, step: recipe(model, arguments(step)))


def train_with_trainer(
    run: Run,
    source: Model | Callable[[], torch.nn.Module] | None = None,
    *,
    intent: Patterns | Callable[[int], Patterns],
    freeze: Recipe | None = None,
    wrap: Callable[[Any], Any] = as_it_is,
    callbacks: Sequence[Any] = (),
    steps: int = 2,
    hyper: Hyper | None = None,
    batch: Callable[[torch.Generator], Batch] | None = None,
    arguments: Mapping[str, Any] = MappingProxyType({}),
    config: Mapping[str, Any] = MappingProxyType({}),
    resume: bool = False,
    flavour: Flavour | None = None,
) -> Any:
    """Build, freeze and train a model as a Trainer script does; gives the Trainer.

    :param source: as for ``run.model``.
    :param intent: patterns over parameter names: what is meant to train.  All else must stay.
        A callable is asked for them at the start of every optimizer step, by its number from 0.
    :param freeze: called with the model before the Trainer exists.
    :param wrap: as for ``run.model``.
    :param callbacks: given to the Trainer; the intent holds from after their ``on_train_begin``.
    :param steps: optimizer steps; each takes ``options.accumulation`` micro-batches.
    :param hyper: hyper-parameters, for the twin as well.
    :param batch: draws one micro-batch; by default the model's own.
    :param arguments: training arguments beside, or in place of, those that every run has.
    :param config: changes to the DeepSpeed JSON, as for ``run.config``.
    :param resume: from the last checkpoint that an earlier call saved, and on from there; what
        was trained by then must have come back.
    :param flavour: by default transformers' own Trainer.
    """
    from harness.drivers._trainer_parts import AtStepBegin, AtTrainBegin
    from harness.drivers.pretrained import loader

    if hyper is not None:
        run.hyper = hyper
    _refuse(run, steps)
    if resume:
        # The batches of the first steps are not drawn again, so there are none to skip.
        arguments = {**arguments, "max_steps": _taken(run) + steps, "ignore_data_skip": True}
    # While arguments with a stage-3 config exist, transformers builds models under zero.Init.
    flavour = flavour or _Plain()
    early = _arguments(run, steps, config, flavour, **arguments) if run.options.init == "zero_init" else None
    model = run.model(source, wrap=wrap, load=loader(run))
    if freeze is not None:
        freeze(model)

    def begin(_: Any) -> None:
        if not run.has_engine:
            raise NoEngine("the Trainer was to use DeepSpeed, has made no engine, and would train each rank by itself")
        if resume:
            run.saved(run.weights())
        run.intend(trainer.model_wrapped, intent(0) if callable(intent) else intent)

    def begin_step(_: Any, step: int) -> None:
        if callable(intent):
            run.intend(trainer.model_wrapped, intent(step))

    trainer = flavour.trainer(
        model=model,
        arguments=early or _arguments(run, steps, config, flavour, **arguments),
        batches=batches_of_all_ranks(run, steps, batch),
        callbacks=[*callbacks, AtTrainBegin(begin), AtStepBegin(begin_step)],
    )
    decayed = set(trainer.get_decay_parameter_names(model))
    undecayed = tuple(name for name, _ in model.named_parameters() if name not in decayed)
    run.hyper = dataclasses.replace(run.hyper, split=(*run.hyper.split, Group(undecayed, weight_decay=0.0)))
    with run.watching(rescales=True):
        trainer.train(resume_from_checkpoint=resume)
    return trainer


def _taken(run: Run) -> int:
    """How many optimizer steps the last checkpoint has behind it, as its name says."""
    from transformers.trainer_utils import get_last_checkpoint

    folder = run.folder / "trainer"
    last = get_last_checkpoint(str(folder)) if folder.exists() else None
    if last is None:
        raise MalformedCase(f"case on {run.options.id}", "resume: no earlier call saved a checkpoint")
    return int(last.rpartition("-")[2])


def _refuse(run: Run, steps: int) -> None:
    faults = []
    if not isinstance(steps, int) or steps < 1:
        faults.append(f"steps must be 1 or more, found {steps!r}")
    if run.hyper.optimizer != "AdamW":
        faults.append(f"the Trainer is driven with AdamW only, found {run.hyper.optimizer}")
    if faults:
        raise MalformedCase(f"case on {run.options.id}", *faults)


def _arguments(
    run: Run,
    steps: int,
    changes: Mapping[str, Any] = MappingProxyType({}),
    flavour: Flavour | None = None,
    **more: Any,
) -> Any:
    """The training arguments of this variant; the DeepSpeed JSON leaves to them what it can."""
    config = run.config(gradient_accumulation_steps="auto", train_micro_batch_size_per_gpu="auto", **changes)
    del config["optimizer"]  # the Trainer makes its own
    hyper = run.hyper
    arguments = (flavour or _Plain()).arguments(
        {
            **_ARGUMENTS,
            "output_dir": str(run.folder / "trainer"),
            "deepspeed": config,
            "use_cpu": run.device == "cpu",
            "bf16": run.options.precision == "bf16",
            "max_steps": steps,
            "gradient_accumulation_steps": run.options.accumulation,
            "max_grad_norm": run.options.clipping,
            "learning_rate": hyper.lr,
            "weight_decay": hyper.weight_decay,
            "adam_beta1": hyper.betas[0],
            "adam_beta2": hyper.betas[1],
            "adam_epsilon": hyper.eps,
            **more,
        }
    )
    if run.device == "cpu":
        from harness.drivers._on_cpu import deepspeed_on_cpu

        arguments.distributed_state = deepspeed_on_cpu()
    if arguments.world_size != run.world:
        # Every rank would train on the same data, and all verdicts would look the same.
        raise MalformedCase(
            f"case on {run.options.id}", f"accelerate counts {arguments.world_size} ranks, and there are {run.world}"
        )
    return arguments
