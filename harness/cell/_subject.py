"""The model that a run is about, and its whole copy in plain torch, from which the twin is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from harness.cell._build import checkpoint_activations, give_weights, under_zero_init
from harness.cell._case import MalformedCase
from harness.cell._options import Init, Options
from harness.cell._patterns import nearest
from harness.cell.models import Batch, Model, find_model

__all__ = ["Subject"]


def _copies(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: one.detach().clone() for name, one in model.state_dict().items()}


class Subject:
    """Builds, wraps and changes the model and the reference alike.

    :ivar reference: the same model, whole and never trained by a run.
    :ivar start: its starting weights and buffers, by every name that they have.
    """

    reference: torch.nn.Module

    def __init__(self, options: Options, seed: int, who: str, config: Callable[[], dict[str, Any]]) -> None:
        """:param config: gives the DeepSpeed JSON by which ``zero.Init`` partitions."""
        self.start: dict[str, torch.Tensor] = {}
        self._options = options
        self._seed = seed
        self._who = who
        self._config = config
        self._spec = find_model(options.model)
        self._build: Callable[[], torch.nn.Module] = self._spec.build

    def part(self, name: str) -> tuple[str, ...]:
        """Name patterns of a part of the model.  Raises MalformedCase."""
        try:
            return self._spec.parts[name]
        except KeyError:
            hint = nearest(name, self._spec.parts)
            raise MalformedCase(self._who, f"model {self._spec.name} has no part {name!r}; {hint}") from None

    @property
    def batch(self) -> Callable[[torch.Generator], Batch] | None:
        """How the model draws a micro-batch; None of one that a case builds by itself."""
        return self._spec.batch if self._build is self._spec.build else None

    def make(
        self,
        source: Model | Callable[[], torch.nn.Module] | None,
        under: Init | None,
        wrap: Callable[[Any], Any],
        load: Callable[[torch.nn.Module], torch.nn.Module | None] | None,
        *,
        as_made: bool,
    ) -> Any:
        """The model that trains; what the arguments mean, ``Run.model`` says."""
        if isinstance(source, Model):
            self._spec = source
        self._build = source if source is not None and not isinstance(source, Model) else self._spec.build
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed)
            reference = self._build()
            start = _copies(reference)
            # A driver's library loads the model as it is before anything is put around it.
            model = load(reference) if load is not None else None
            torch.manual_seed(self._seed)
            self.reference = wrap(reference)
        self.start = _copies(self.reference)
        if model is None:
            model = self._made(self._build, start, under)
        there = {id(one) for one in (*model.parameters(), *model.buffers())}
        with torch.random.fork_rng(devices=[]):
            # What wrap draws is then the same as for the twin.
            torch.manual_seed(self._seed)
            model = wrap(model)
        if not as_made:
            give_weights(model, self.start, but=there)
        checkpoint_activations(model, self._options.checkpointing)
        model.train()
        return model

    def alter(self, model: Any, how: Callable[[Any], object], under: Init) -> None:
        """Change the model and the reference alike."""
        there = {id(one) for one in (*model.parameters(), *model.buffers())}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed)
            how(self.reference)
            if self._partitions(under):
                under_zero_init(lambda: how(model), self._config())
            else:
                how(model)
        self.start = _copies(self.reference)
        give_weights(model, self.start, but=there)

    def another(self, source: Model | Callable[[], torch.nn.Module], under: Init | None) -> Any:
        """A model beside it, with the same weights on every rank."""
        build = source.build if isinstance(source, Model) else source
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed)
            start = _copies(build())
        return self._made(build, start, under)

    def other_names(self) -> dict[str, list[str]]:
        """Of each parameter that a state dict has more than once, all names but its first."""
        names: dict[int, list[str]] = {}
        for name, one in self.reference.named_parameters(remove_duplicate=False):
            names.setdefault(id(one), []).append(name)
        return {first: others for first, *others in names.values() if others}

    def _partitions(self, init: Init) -> bool:
        return init == "zero_init" and self._options.stage == 3

    def _made(self, build: Callable[[], torch.nn.Module], start: dict[str, torch.Tensor], under: Init | None) -> Any:
        partitioned = self._partitions(under or self._options.init)
        model = under_zero_init(build, self._config()) if partitioned else build()
        give_weights(model, start)
        return model
