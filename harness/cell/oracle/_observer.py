"""Watch an engine: what each parameter had before and after every optimizer step.

Attached to the engine object itself (its ``forward``, ``backward`` and ``step``), so that it
sees the same whether a plain loop, accelerate or the Trainer drives it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
import torch.distributed as dist

from harness.cell._case import JudgeFailed, MalformedCase
from harness.cell.oracle import _engine_facts as facts
from harness.cell.oracle._partitions import gather

__all__ = ["Micro", "Observer", "Step", "fingerprint"]

# What one parameter is on one rank, as bits; ranks exchange them before anything collective.
_FLAG, _LOCAL_GRAD, _STEPPED, _PARTITIONED = 1, 2, 4, 8


@dataclass
class Micro:
    """One micro-batch as this rank's engine saw it."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    #: what backward really differentiates over the loss of the model; apart from the mean over
    #: micro-batches, which the engine takes unless told not to (the Trainer rescales the loss)
    scale: float = 1.0


@dataclass
class Step:
    """One optimizer step, on this rank."""

    intent: frozenset[str]
    micros: list[Micro] = field(default_factory=list)
    #: of parameters that train in part: the rows that do
    rows: Mapping[str, slice] = field(default_factory=dict)
    flags: dict[str, bool] = field(default_factory=dict)
    groups: dict[str, int | None] = field(default_factory=dict)
    #: reduced over all ranks; what a local, unreduced gradient looks like is in ``local``
    grads: dict[str, torch.Tensor] = field(default_factory=dict)
    local: dict[str, torch.Tensor] = field(default_factory=dict)
    #: those whose reduced gradient all ranks agreed to read
    asked: set[str] = field(default_factory=set)
    before: dict[str, torch.Tensor] = field(default_factory=dict)
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    masters: dict[str, torch.Tensor] = field(default_factory=dict)


def fingerprint(tensor: torch.Tensor) -> str:
    """Of the bits."""
    flat = tensor.detach().reshape(-1).contiguous().view(torch.uint8).cpu()
    return hashlib.blake2b(bytes(flat.numpy().data), digest_size=8).hexdigest()


class Observer:
    """Collects :class:`Step` records of one engine."""

    def __init__(self, tick: Callable[[str], None]) -> None:
        self.steps: list[Step] = []
        self.intent: frozenset[str] = frozenset()
        self.rows: Mapping[str, slice] = {}
        self.shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        self.first_weights: dict[str, torch.Tensor] = {}
        self.buffers: dict[str, torch.dtype] = {}
        self._tick = tick
        self._micros: list[Micro] = []
        self._last_loss: torch.Tensor | None = None
        self._engine: Any = None
        self._before: dict[str, torch.Tensor] | None = None
        #: a driver's library hands another loss to backward than the model gave, and means it
        self.rescales = False

    def attach(self, engine: Any, stage: int) -> None:
        """Wrap the engine's methods on the instance; its class stays as it is."""
        self._engine = engine
        self._stage = stage
        self._low_precision = any(one.dtype != torch.float32 for one in engine.module.parameters())
        for name in ("forward", "backward", "step"):
            original = getattr(engine, name)
            wrapped = functools.wraps(original)(functools.partial(getattr(self, f"_{name}"), original))
            setattr(engine, name, wrapped)

    @property
    def attached(self) -> bool:
        """Whether there is an engine to watch."""
        return self._engine is not None

    def begin(self, intent: frozenset[str], rows: Mapping[str, slice] = MappingProxyType({})) -> None:
        """A stretch of training with this intent starts; look at the weights as they stand."""
        if self._engine is None:
            raise MalformedCase("run", "the engine is not watched: make it by run.engine, or inside run.watching()")
        self.intent = intent
        self.rows = rows
        self._same_parameters()
        weights = self.weights()
        if not self.first_weights:
            self.first_weights = weights
            self.buffers = {name: one.dtype for name, one in self._engine.module.named_buffers()}
        self._before = weights

    def parameters(self) -> dict[str, torch.nn.Parameter]:
        return dict(self._engine.module.named_parameters())

    def weights(self) -> dict[str, torch.Tensor]:
        """Every parameter whole, as a copy.  Collective at stage 3."""
        parameters = self.parameters()
        codes = self._agreed(parameters)
        apart = {name: one for name, one in parameters.items() if codes[name] & _PARTITIONED}
        for name, one in parameters.items():
            self.shapes.setdefault(name, (tuple(one.shape), facts.full_shape(one)))
        gathered = gather(apart) if apart else {}
        return {name: gathered[name] if name in gathered else one.detach().clone() for name, one in parameters.items()}

    def fingerprints(self) -> list[dict[str, dict[str, str]]]:
        """Per step, of the gradients and weights that are one and the same on all ranks."""
        return [
            {
                "gradient": {name: fingerprint(one) for name, one in step.grads.items()},
                "weight": {name: fingerprint(one) for name, one in step.weights.items()},
            }
            for step in self.steps
        ]

    def _forward(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._tick("forward")
        output = original(*args, **kwargs)
        loss = loss_of(output)
        if loss is not None and loss.requires_grad:
            self._micros.append(Micro(_copied(args), _copied(kwargs)))
            # A copy, since the Trainer multiplies the loss in place.
            self._last_loss = loss.detach().clone()
        return output

    def _backward(self, original: Callable[..., Any], loss: Any, *args: Any, **kwargs: Any) -> Any:
        self._tick("backward")
        # What a loop of one's own does to the loss is its fault, and the twin must not repeat it.
        if self.rescales and self._micros and self._last_loss is not None and float(self._last_loss) != 0.0:
            scale = float(loss.detach()) / float(self._last_loss)
            if kwargs.get("scale_wrt_gas") is False:
                scale *= self._engine.gradient_accumulation_steps()
            self._micros[-1].scale = scale
        return original(loss, *args, **kwargs)

    def _step(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not self._engine.is_gradient_accumulation_boundary():
            return original(*args, **kwargs)
        self._tick("stepped")
        if self._before is None:
            raise MalformedCase("run", "an optimizer step before run.train or run.intend said what is meant to train")
        if not self._micros:
            raise MalformedCase("run", "an optimizer step, but no forward gave a loss: let the model's call return it")
        step = Step(self.intent, self._micros, self.rows, before=self._before)
        self._micros = []
        with _our_own_fault():
            self._see_gradients(step)
        result = original(*args, **kwargs)
        with _our_own_fault():
            step.weights = self._before = self.weights()
            if self._low_precision:
                self._see_masters(step)
        self.steps.append(step)
        return result

    def _see_gradients(self, step: Step) -> None:
        parameters = self.parameters()
        groups = facts.group_index(self._engine.optimizer)
        codes = self._agreed(parameters)
        for name, one in parameters.items():
            step.flags[name] = one.requires_grad
            step.groups[name] = groups.get(id(one))
            code = codes[name]
            if code & _STEPPED and code & _FLAG:
                step.asked.add(name)
                grad = facts.reduced_grad(one, self._engine.optimizer)
                if grad is not None:
                    step.grads[name] = grad.detach().float().clone()
            elif one.grad is not None:
                step.local[name] = one.grad.detach().float().clone()
                if self._stage == 0:
                    # No partitioning: what .grad holds is what was all-reduced, if anything was.
                    step.grads[name] = step.local[name]

    def _see_masters(self, step: Step) -> None:
        parameters = self.parameters()
        codes = self._agreed(parameters)
        for name, one in parameters.items():
            if codes[name] & _STEPPED:
                master = facts.master_weight(one, self._engine.optimizer)
                if master is not None:
                    step.masters[name] = master.detach().clone()

    def _same_parameters(self) -> None:
        """Raises MalformedCase where ranks have different models: nothing of them can be compared."""
        names = "\n".join(self.parameters())
        theirs: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(theirs, names)
        if any(one != names for one in theirs):
            raise MalformedCase("run", "the model has other parameters on one rank than on another")

    def _agreed(self, parameters: Mapping[str, torch.nn.Parameter]) -> dict[str, int]:
        """For each parameter the bits that hold on *every* rank.

        A collective that only some ranks enter hangs; so what is asked of a parameter is
        decided from what all ranks say of it.
        """
        groups = facts.group_index(self._engine.optimizer)
        mine = torch.tensor(
            [
                _FLAG * one.requires_grad
                | _LOCAL_GRAD * (one.grad is not None)
                | _STEPPED * (id(one) in groups)
                | _PARTITIONED * facts.is_partitioned(one)
                for one in parameters.values()
            ],
            dtype=torch.uint8,
            device=next(iter(parameters.values())).device,
        )
        theirs = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(theirs, mine)
        agreed = functools.reduce(torch.bitwise_and, theirs)
        if any(not torch.equal(mine & _PARTITIONED, one & _PARTITIONED) for one in theirs):
            raise RuntimeError("ranks disagree on which parameters are partitioned; weights cannot be read")
        return dict(zip(parameters, agreed.tolist(), strict=True))


@contextlib.contextmanager
def _our_own_fault() -> Iterator[None]:
    """What fails while we look is no finding about what we look at."""
    try:
        yield
    except MalformedCase:
        raise
    except Exception as error:
        raise JudgeFailed(f"the run cannot be observed: {type(error).__name__}: {error}") from error


def loss_of(output: Any) -> torch.Tensor | None:
    """The loss in what a model returned: a scalar tensor, ``.loss``, or the first of a tuple."""
    if isinstance(output, Mapping):
        output = output.get("loss")
    elif isinstance(output, tuple):
        output = output[0] if output else None
    else:
        output = getattr(output, "loss", output)
    return output if isinstance(output, torch.Tensor) and output.numel() == 1 else None


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, Mapping):
        return {key: _copied(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_copied(one) for one in value)
    return value
