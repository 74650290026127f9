"""The object a case is written against: build, freeze, make the engine, train, save."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
import torch.distributed as dist

from harness.cell._build import checkpoint_activations, give_weights, under_zero_init
from harness.cell._case import MalformedCase
from harness.cell._hyper import Hyper
from harness.cell._json import deepspeed_json
from harness.cell._options import Init, Options
from harness.cell._patterns import Patterns, as_patterns, nearest, select
from harness.cell.models import Batch, Model, find_model
from harness.cell.oracle._engine_facts import full_shape
from harness.cell.oracle._judge import judge, judge_saved
from harness.cell.oracle._observer import Observer, loss_of
from harness.cell.oracle._tolerance import TOLERANCES
from harness.cell.oracle._twin import Twin
from harness.cell.ranks._wire import Message

__all__ = ["Run"]

#: Settings that no method of a run acts on: they are for :mod:`harness.drivers`.
_LEFT_TO_CASES = ("driver", "adapters", "embeddings")

_NO_BATCH = "a model given as a plain callable needs train(..., batch=...)"


def _as_it_is(model: Any) -> Any:
    return model


def _copies(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: one.detach().clone() for name, one in model.state_dict().items()}


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
        self._spec = find_model(options.model)
        self._build: Callable[[], torch.nn.Module] = self._spec.build
        self._start: dict[str, torch.Tensor] = {}
        self._observer = Observer(self.reach)
        self._drawn = 0
        self._autocast: torch.dtype | None = None
        #: what came back from disk, what had been trained by then, and in how many steps
        self._saved: list[tuple[Mapping[str, torch.Tensor], Mapping[str, torch.Tensor], int]] = []
        self._notes: list[str] = []
        self._heeded: set[str] = set()
        self._began = time.perf_counter()
        self._seconds: dict[str, float] = {}

    # -- what a case calls -------------------------------------------------------------------

    def part(self, name: str) -> tuple[str, ...]:
        """Name patterns of a part of this variant's model, e.g. ``head`` or ``block``."""
        try:
            return self._spec.parts[name]
        except KeyError:
            hint = nearest(name, self._spec.parts)
            raise MalformedCase(self._who, f"model {self._spec.name} has no part {name!r}; {hint}") from None

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
        if isinstance(source, Model):
            self._spec = source
        self._build = source if source is not None and not isinstance(source, Model) else self._spec.build
        self.reach("constructed")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed)
            reference = self._build()
            start = _copies(reference)
            # A driver's library loads the model as it is before anything is put around it.
            model = load(reference) if load is not None else None
            torch.manual_seed(self._seed)
            self._reference = wrap(reference)
        self._start = _copies(self._reference)
        if model is None:
            model = self._made(self._build, start, under)
        there = {id(one) for one in (*model.parameters(), *model.buffers())}
        with torch.random.fork_rng(devices=[]):
            # What wrap draws is then the same as for the twin.
            torch.manual_seed(self._seed)
            model = wrap(model)
        if not as_made:
            give_weights(model, self._start, but=there)
        checkpoint_activations(model, self.options.checkpointing)
        model.train()
        self.reach("loaded")
        return model

    def alter(self, model: Any, how: Callable[[Any], object], *, under: Init = "plain") -> None:
        """Change a model that exists already, by ``how(model)``, and the twin's alike: attach, replace, tie.

        Parameters that this adds have the same starting weights everywhere, and count as parts of the
        model from the start.

        :param under: ``zero_init``: what is added is partitioned as it is made.
        """
        there = {id(one) for one in (*model.parameters(), *model.buffers())}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed)
            how(self._reference)
            if self._partitions(under):
                under_zero_init(lambda: how(model), self.config())
            else:
                how(model)
        self._start = _copies(self._reference)
        give_weights(model, self._start, but=there)

    def bystander(self, source: Model | Callable[[], torch.nn.Module], *, under: Init | None = None) -> Any:
        """Another model beside the one that is watched, with the same weights on every rank.

        :param source: as for :meth:`model`.
        :param under: ``zero_init`` or ``plain``; by default the variant's.
        """
        build = source.build if isinstance(source, Model) else source
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed)
            start = _copies(build())
        return self._made(build, start, under)

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
        draw = batch or self._own_batch
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
        self._saved.append((state, {name: trained[name] for name in select(trained, only)}, len(self._observer.steps)))
        if strange := [key for key in state if key not in self._start]:
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
        return weights | {other: weights[name] for name, others in self._other_names().items() for other in others}

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
        faults = faults or []
        patterns = as_patterns(intent)
        names = [name for name, _ in engine.module.named_parameters()]
        chosen = frozenset(select(names, patterns))
        if not patterns:
            faults.append("no intent: name the parameters that are meant to train")
        for pattern in patterns:
            if not select(names, pattern):
                faults.append(f"intent {pattern!r} matches no parameter; {nearest(pattern, names)}")
        faults += [f"rows of {name!r}: the intent does not name it" for name in rows if name not in chosen]
        whole = {name: full_shape(one) for name, one in engine.module.named_parameters()}
        for name, meant in rows.items():
            if name in chosen and not range(*meant.indices(whole[name][0] if whole[name] else 0)):
                faults.append(f"rows of {name!r}: {meant.start}:{meant.stop} is none of shape {whole[name]}")
        if dropping := sorted({type(one).__name__ for one in engine.module.modules() if _drops_out(one)}):
            # The twin cannot draw the same mask, and every gradient would look wrong.
            faults.append(f"the model drops out at random ({', '.join(dropping)}); build it with p=0")
        if faults:
            raise MalformedCase(self._who, *faults)
        self._observer.begin(chosen, rows)

    def draw(self, batch: Callable[[torch.Generator], Batch] | None = None) -> Batch:
        """The next micro-batch of this rank; different on every rank.

        :param batch: draws it; by default the model's own.
        """
        batch = batch or self._own_batch
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
        steps = self._observer.steps
        if not steps:
            raise MalformedCase(self._who, "it ended without an optimizer step: nothing was measured")
        verdicts = judge(
            steps,
            self._all_shards(),
            first=self._observer.first_weights,
            start=self._start,
            shapes=self._observer.shapes,
            twin=Twin(
                lambda: self._reference,  # built already, and needed for nothing else any more
                self._start,
                hyper=self.hyper,
                dtypes={name: one.dtype for name, one in self._observer.first_weights.items()},
                autocast=self._autocast,
                clipping=self.options.clipping,
                device=self.device,
                buffers=self._observer.buffers,
            ),
            tolerance=TOLERANCES[self.options.precision],
            apart=self._apart(),
        )
        other_names = self._other_names()
        for state, trained, taken in self._saved:
            lost = judge_saved(state, trained, known=self._start, other_names=other_names)
            # What training on from there then does to a weight that came back wrong is no other fault.
            verdicts = [
                dataclasses.replace(one, **vars(lost[one.name]))
                if one.name in lost and (one.verdict.value in ("TRAINS", "FROZEN") or (one.step or 0) > taken)
                else one
                for one in verdicts
            ]
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

    @property
    def _own_batch(self) -> Callable[[torch.Generator], Batch] | None:
        return self._spec.batch if self._build is self._spec.build else None

    def _other_names(self) -> dict[str, list[str]]:
        """Of each parameter that a state dict has more than once, all names but its first."""
        names: dict[int, list[str]] = {}
        for name, one in self._reference.named_parameters(remove_duplicate=False):
            names.setdefault(id(one), []).append(name)
        return {first: others for first, *others in names.values() if others}

    def _partitions(self, init: Init) -> bool:
        return init == "zero_init" and self.options.stage == 3

    def _made(self, build: Callable[[], torch.nn.Module], start: dict[str, torch.Tensor], under: Init | None) -> Any:
        partitioned = self._partitions(under or self.options.init)
        model = under_zero_init(build, self.config()) if partitioned else build()
        give_weights(model, start)
        return model

    def _apart(self) -> list[dict[str, str]]:
        """Per step, by parameter: which of its ``gradient`` and ``weight`` differs between ranks.
        Collective."""
        mine = self._observer.fingerprints()
        theirs: list[Any] = [None] * self.world
        dist.all_gather_object(theirs, mine)
        return [
            {
                name: what
                for what in ("weight", "gradient")  # the gradient comes first, and is named where both differ
                for name, print_ in step[what].items()
                if any(print_ != ranks[number][what].get(name, print_) for ranks in theirs)
            }
            for number, step in enumerate(mine)
        ]

    def _all_shards(self) -> list[list[Any]]:
        """Per step, per rank: the micro-batches that each rank's engine saw.  Collective."""
        mine = [step.micros for step in self._observer.steps]
        theirs: list[Any] = [None] * self.world
        dist.all_gather_object(theirs, mine)
        return [[ranks[number] for ranks in theirs] for number in range(len(mine))]


def _drops_out(module: torch.nn.Module) -> bool:
    return "Dropout" in type(module).__name__ and bool(getattr(module, "p", 0)) and module.training
