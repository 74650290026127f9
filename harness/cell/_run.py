"""The object a case is written against: build, freeze, make the engine, train, save."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from harness.cell._case import MalformedCase
from harness.cell._hyper import Hyper
from harness.cell._intent import intended, intent_faults
from harness.cell._json import deepspeed_json
from harness.cell._judged import CameBack, judged
from harness.cell._options import Init, Options
from harness.cell._patterns import Patterns, select
from harness.cell._subject import Subject
from harness.cell.models import Batch, Model
from harness.cell.oracle._observer import Observer, loss_of
from harness.cell.ranks._wire import Message

__all__ = ["Run"]

#: Settings that no method of a run acts on: they are for :mod:`harness.drivers`.
_LEFT_TO_CASES = ("driver", "adapters", "embeddings")

_NO_BATCH = "a model given as a plain callable needs train(..., batch=...)"


def _as_it_is(model: Any) -> Any:
    return model


class Run:
    """One case on one rank.  Every method is called on all ranks alike.

    :ivar options: the variant.
    :ivar rank: this rank; most cases never look.
    :ivar world: number of ranks.
    :ivar device: torch device of this rank; only drivers need it.
    :ivar folder: a directory shared by the ranks, gone afterwards.
    """

    def __init__(
        self,
        options: Options,
        rank: int,
        world: int,
        device: str,
        folder: Path,
        seed: int,
        tick: Callable[[str], None],
    ) -> None:
        self.options = options
        self.rank = rank
        self.world = world
        self.device = device
        self.folder = folder
        self.hyper = Hyper()
        self.moment = "start"
        self._seed = seed
        self._tick = tick
        self._subject = Subject(options, seed, self._who, self.config)
        self._observer = Observer(self.reach)
        self._drawn = 0
        self._autocast: torch.dtype | None = None
        self._saved: list[CameBack] = []
        self._notes: list[str] = []
        self._heeded: set[str] = set()
        self._began = time.perf_counter()
        self._seconds: dict[str, float] = {}

    # -- what a case calls -------------------------------------------------------------------

    def part(self, name: str) -> tuple[str, ...]:
        """Name patterns of a part of this variant's model, e.g. ``head`` or ``block``."""
        return self._subject.part(name)

    def model(
        self,
        source: Model | Callable[[], torch.nn.Module] | None = None,
        *,
        under: Init | None = None,
        wrap: Callable[[Any], Any] = _as_it_is,
        as_made: bool = False,
        load: Callable[[torch.nn.Module], torch.nn.Module | None] | None = None,
    ) -> Any:
        """Build the model: same starting weights on every rank and in the twin.

        :param source: a :class:`Model`, or any callable that gives an ``nn.Module``; by default
            the variant's model.
        :param under: ``zero_init`` or ``plain``; by default the variant's.
        :param wrap: what is done to the model once it is built, outside ``zero.Init``: adapters put
            around it, say.  Parameters that it adds have the same starting weights everywhere, too.
        :param as_made: leave what ``wrap`` adds as it was made, which shows where it was made wrong.
        :param load: for drivers whose library builds models by itself: gets the whole model, gives
            one with the same weights; None where it cannot and ``under`` is to be followed.
        """
        self.reach("constructed")
        model = self._subject.make(source, under, wrap, load, as_made=as_made)
        self.reach("loaded")
        return model

    def alter(self, model: Any, how: Callable[[Any], object], *, under: Init = "plain") -> None:
        """Change a model that exists already, by ``how(model)``, and the twin's alike: attach, replace, tie.

        Parameters that this adds have the same starting weights everywhere, and count as parts of the
        model from the start.

        :param under: ``zero_init``: what is added is partitioned as it is made.
        """
        self._subject.alter(model, how, under)

    def bystander(self, source: Model | Callable[[], torch.nn.Module], *, under: Init | None = None) -> Any:
        """Another model beside the one that is watched, with the same weights on every rank.

        :param source: as for :meth:`model`.
        :param under: ``zero_init`` or ``plain``; by default the variant's.
        """
        return self._subject.another(source, under)

    def config(self, **changes: Any) -> dict[str, Any]:
        """The DeepSpeed JSON of this variant.  ``changes`` replace top-level blocks; a mapping
        for ``zero_optimization`` is merged into it."""
        return deepspeed_json(self.options, self.hyper, **changes)

    def engine(
        self,
        model: Any,
        *,
        hyper: Hyper | None = None,
        parameters: Any = None,
        client_optimizer: Any = None,
        client_scheduler: Any = None,
        rescales: bool = False,
        **config: Any,
    ) -> Any:
        """``deepspeed.initialize`` on the model.

        :param hyper: optimizer and hyper-parameters, for the twin as well.
        :param parameters: what DeepSpeed is to optimize, parameters or groups of them; by default
            all of the model, in the groups of ``hyper``, those without members among them.
        :param client_optimizer: one made by the case, in place of that of the JSON.
        :param client_scheduler: one made by the case; by default none, or what ``hyper`` schedules, made
            when the engine's optimizer is.
        :param rescales: as for :meth:`watching`.
        :param config: changes to :meth:`config`.
        """
        import deepspeed

        if hyper is not None:
            self.hyper = hyper
        if parameters is None:
            split = self.hyper.split
            parameters = self.hyper.groups(dict(model.named_parameters()), empty=True) if split else None
        if client_scheduler is None and self.hyper.schedule is not None:
            client_scheduler = self.hyper.scheduler
        block = self.config(**config)
        if client_optimizer is not None:
            del block["optimizer"]
        autocast = block.get("torch_autocast", {})
        if autocast.get("enabled"):
            self._autocast = getattr(torch, autocast["dtype"])
        with self.watching(rescales=rescales):
            engine, *_ = deepspeed.initialize(
                model=model,
                model_parameters=list(model.parameters()) if parameters is None else parameters,
                optimizer=client_optimizer,
                lr_scheduler=client_scheduler,
                config=block,
            )
        return engine

    def train(
        self,
        engine: Any,
        *,
        intent: Patterns = (),
        steps: int = 2,
        rows: Mapping[str, slice] = MappingProxyType({}),
        batch: Callable[[torch.Generator], Batch] | None = None,
    ) -> None:
        """Run optimizer steps and watch them.

        :param intent: patterns over parameter names: what is meant to train.  All else must stay.
            There is no default: a run that means nothing cannot be judged.
        :param rows: of parameters by name, the only rows that are meant to.
        :param steps: optimizer steps; each takes ``options.accumulation`` micro-batches.
        :param batch: draws one micro-batch; by default the model's own.
        """
        faults = [] if isinstance(steps, int) and steps >= 1 else [f"steps must be 1 or more, found {steps!r}"]
        draw = batch or self._subject.batch
        if draw is None:
            faults.append(_NO_BATCH)
        self.intend(engine, intent, faults, rows=rows)
        for _ in range(steps * self.options.accumulation):
            inputs = {key: one.to(self.device) for key, one in self.draw(draw).items()}
            loss = loss_of(engine(**inputs))
            engine.backward(loss)
            engine.step()

    def saved(self, state: Mapping[str, torch.Tensor], *, only: Patterns = "*", masters: bool = False) -> None:
        """Say what came back from disk, by parameter name; it must be what was trained until now.

        :param only: patterns over parameter names: what was meant to be saved.
        :param masters: it is the fp32 weights that the optimizer steps that must come back, and
            where there is none, the model's own in fp32.
        """
        self.reach("saved")
        if not self._observer.steps:
            raise MalformedCase(self._who, "saved() before any optimizer step: nothing was trained yet")
        last = self._observer.steps[-1]
        trained = {name: one.float() for name, one in last.weights.items()} if masters else last.weights
        if masters:
            trained |= last.masters
        meant = {name: trained[name] for name in select(trained, only)}
        self._saved.append(CameBack(state, meant, len(self._observer.steps)))
        if strange := [key for key in state if key not in self._subject.start]:
            more = f" and {len(strange) - 1} more" if len(strange) > 1 else ""
            self.note(f"came back, and no part of the model: {strange[0]}{more}")

    def note(self, text: str) -> None:
        """Add a line to the record."""
        if text not in self._notes:
            self._notes.append(text)

    # -- what drivers call -------------------------------------------------------------------

    def weights(self) -> dict[str, torch.Tensor]:
        """Every parameter of the engine's model whole, as it is now, under all its names.  Collective."""
        weights = self._observer.weights()
        return weights | {
            other: weights[name] for name, others in self._subject.other_names().items() for other in others
        }

    def heed(self, axis: str) -> None:
        """This setting of the variant, which only some cases do anything about, was acted on."""
        self._heeded.add(axis)

    def reach(self, moment: str) -> None:
        """The run is on its way to ``moment``; counts as progress."""
        self._seconds[moment] = round(time.perf_counter() - self._began, 4)
        self.moment = moment
        self._tick(moment)

    @property
    def has_engine(self) -> bool:
        """Whether anyone made an engine yet, inside :meth:`watching`."""
        return self._observer.attached

    @contextlib.contextmanager
    def watching(self, *, rescales: bool = False) -> Iterator[None]:
        """Observe every engine that is created inside, whoever creates it.

        :param rescales: the library hands backward another loss than the model gave (by token
            counts, say), and the twin is to do the same.
        """
        import deepspeed

        if unheeded := [axis for axis in _LEFT_TO_CASES if axis not in self._heeded and self._asks(axis)]:
            # It measured something else than its name says.
            asked = ", ".join(f"{axis}={getattr(self.options, axis)}" for axis in unheeded)
            raise MalformedCase(self._who, f"nothing in it heeds {asked}; train by harness.drivers.train")
        self._observer.rescales = rescales
        original = deepspeed.initialize

        def initialize(*args: Any, **kwargs: Any) -> Any:
            self.reach("engine")
            made = original(*args, **kwargs)
            self._observer.attach(made[0], self.options.stage)
            self.reach("after engine")
            return made

        deepspeed.initialize = initialize
        try:
            yield
        finally:
            deepspeed.initialize = original

    def intend(
        self,
        engine: Any,
        intent: Patterns,
        faults: list[str] | None = None,
        *,
        rows: Mapping[str, slice] = MappingProxyType({}),
    ) -> None:
        """From here on, ``intent`` must train and all else must stay.  Raises MalformedCase."""
        if found := [*(faults or ()), *intent_faults(engine.module, intent, rows)]:
            raise MalformedCase(self._who, *found)
        self._observer.begin(intended(engine.module, intent), rows)

    def draw(self, batch: Callable[[torch.Generator], Batch] | None = None) -> Batch:
        """The next micro-batch of this rank; different on every rank.

        :param batch: draws it; by default the model's own.
        """
        batch = batch or self._subject.batch
        if batch is None:
            raise MalformedCase(self._who, _NO_BATCH)
        generator = torch.Generator()
        generator.manual_seed(hash((self._seed, self.rank, self._drawn)) % 2**63)
        self._drawn += 1
        return batch(generator)

    # -- what the rank calls -----------------------------------------------------------------

    def finish(self) -> Message:
        """Judge what was observed; the body of the outcome."""
        self.reach("judged")
        if not self._observer.steps:
            raise MalformedCase(self._who, "it ended without an optimizer step: nothing was measured")
        verdicts = judged(
            self._observer,
            self._subject,
            self._saved,
            hyper=self.hyper,
            options=self.options,
            device=self.device,
            world=self.world,
            autocast=self._autocast,
        )
        return {
            "parameters": [one.as_dict() for one in verdicts],
            "notes": self._notes,
            "seconds": self._seconds | {"judged": round(time.perf_counter() - self._began, 4)},
        }

    def _asks(self, axis: str) -> bool:
        return bool(getattr(self.options, axis) != getattr(Options(), axis))

    @property
    def _who(self) -> str:
        return f"case on {self.options.id}"
