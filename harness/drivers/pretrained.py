"""transformers under ZeRO-3: what it does otherwise once it has been told, and models that it makes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from harness.cell._patterns import Patterns
    from harness.cell._run import Run

__all__ = ["as_told", "from_config", "from_pretrained", "loader", "told_of_zero_3"]


@contextlib.contextmanager
def told_of_zero_3(run: Run) -> Iterator[None]:
    """transformers and PEFT know of ZeRO-3, as they do while a ``HfDeepSpeedConfig`` lives.

    Those who call ``deepspeed.zero.Init`` by themselves often never tell them; a Trainer's arguments do, and
    then this changes nothing.
    """
    from transformers.integrations import HfDeepSpeedConfig
    from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled, unset_hf_deepspeed_config

    if is_deepspeed_zero3_enabled():
        yield
        return
    alive = HfDeepSpeedConfig(run.config())
    try:
        yield
    finally:
        del alive
        unset_hf_deepspeed_config()


@contextlib.contextmanager
def _untold() -> Iterator[None]:
    """They know nothing of it, whoever told them."""
    if "transformers" not in sys.modules:
        yield
        return
    from transformers.integrations import deepspeed as told

    known = told._hf_deepspeed_config_weak_ref  # noqa: SLF001  # there is no other way to ask for it
    told.unset_hf_deepspeed_config()
    try:
        yield
    finally:
        told._hf_deepspeed_config_weak_ref = known  # noqa: SLF001


def as_told(run: Run, how: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``how`` for ``run.model(wrap=...)``: done to a partitioned model, it finds transformers told of ZeRO-3."""
    from harness.cell.oracle._engine_facts import is_partitioned

    def done(model: Any) -> Any:
        # Not to the twin's, which is whole: what transformers then adds to it would be partitioned.
        partitioned = any(is_partitioned(one) for one in model.parameters())
        with told_of_zero_3(run) if partitioned else _untold():
            return how(model)

    return done


def from_pretrained(run: Run, reference: Any, *, saved: Any = None) -> torch.nn.Module:
    """A model like ``reference`` as people load it: written by rank 0, loaded by all.

    :param saved: the part of it that is written, where not all is.
    """
    import torch.distributed as dist
    from transformers.utils import logging

    logging.disable_progress_bar()
    folder = run.folder / "pretrained"
    if run.rank == 0:
        (reference if saved is None else saved).save_pretrained(folder)
    dist.barrier()
    with _told_if_partitioned(run):
        loaded: torch.nn.Module = type(reference).from_pretrained(folder)
    return loaded


def loader(run: Run) -> Callable[[Any], torch.nn.Module | None]:
    """For ``run.model(load=...)``: as :func:`from_pretrained`, for what is a transformers model."""

    def load(reference: Any) -> torch.nn.Module | None:
        # Where nobody imported transformers, nothing is a model of its.
        transformers = sys.modules.get("transformers")
        is_one = transformers is not None and isinstance(reference, transformers.PreTrainedModel)
        return from_pretrained(run, reference) if is_one else None

    return load


def from_config(run: Run, reference: Any, *, keep: Patterns) -> torch.nn.Module:
    """A model like ``reference``, made from its configuration alone.

    :param keep: what starts from no random numbers; all else is given the weights of ``reference``.
    """
    from harness.cell._build import give_weights
    from harness.cell._patterns import matches

    with _told_if_partitioned(run):
        made: torch.nn.Module = type(reference)._from_config(reference.config)  # noqa: SLF001  # AutoModel.from_config
    kept = {id(one) for name, one in made.named_parameters() if matches(name, keep)}
    give_weights(made, reference.state_dict(), but=kept)
    return made


def _told_if_partitioned(run: Run) -> contextlib.AbstractContextManager[None]:
    partitioned = run.options.stage == 3 and run.options.init == "zero_init"
    return told_of_zero_3(run) if partitioned else contextlib.nullcontext()
