"""A run without faults, made in plain torch: what the observer would have seen, for the judge to judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import torch
from torch import nn

from harness.cell import Hyper, ParameterVerdict
from harness.cell.oracle._judge import judge
from harness.cell.oracle._observer import Micro, Step
from harness.cell.oracle._tolerance import TOLERANCES
from harness.cell.oracle._twin import Twin

__all__ = ["HonestRun", "Small", "micro", "start_of", "twin_of"]


class Small(nn.Module):
    """Three layers of a few weights each, and a scale without dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 5)
        self.second = nn.Linear(5, 5)
        self.last = nn.Linear(5, 3)
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(inputs.to(self.scale.dtype)))
        hidden = torch.tanh(self.second(hidden)) * self.scale
        return nn.functional.mse_loss(self.last(hidden), targets.to(self.scale.dtype))


def start_of(seed: int) -> dict[str, torch.Tensor]:
    """Starting weights of :class:`Small`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return {name: one.detach().clone() for name, one in Small().state_dict().items()}


def micro(seed: int) -> Micro:
    """One micro-batch."""
    generator = torch.Generator()
    generator.manual_seed(seed)
    return Micro((torch.randn(3, 4, generator=generator), torch.randn(3, 3, generator=generator)), {})


def twin_of(
    start: Mapping[str, torch.Tensor],
    hyper: Hyper,
    precision: str = "fp32",
    *,
    build: Callable[[], nn.Module] = Small,
    clipping: float = 0.0,
    buffers: Mapping[str, torch.dtype] = MappingProxyType({}),
) -> Twin:
    """A twin on the CPU."""
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    return Twin(
        build, start, hyper=hyper, dtypes=dict.fromkeys(start, dtype), clipping=clipping, device="cpu", buffers=buffers
    )


@dataclass
class HonestRun:
    """Two ranks and three steps of it; tests tamper with ``steps`` before they call :meth:`judged`."""

    precision: str = "fp32"
    #: of each step
    intents: Sequence[frozenset[str]] = (frozenset({"second.weight", "second.bias", "scale"}),) * 3
    hyper: Hyper = field(default_factory=lambda: Hyper(lr=0.05))
    seed: int = 0
    #: a parameter that the steps with these numbers (from 1) leave where it is
    stuck: tuple[str, Sequence[int]] = ("", ())
    #: of each step: the rows of parameters that train in part
    rows: Sequence[Mapping[str, slice]] = ({},) * 3

    def __post_init__(self) -> None:
        self.start = start_of(self.seed)
        engine = self.twin()
        low = self.precision != "fp32"
        self.shards = [[[micro(10 * number + rank)] for rank in (0, 1)] for number, _ in enumerate(self.intents)]
        self.steps = []
        stuck, numbers = self.stuck
        for number, (shards, intent, rows) in enumerate(zip(self.shards, self.intents, self.rows, strict=True), 1):
            before = self._weights(engine)
            kept = {stuck: engine.masters[stuck].detach().clone()} if number in numbers else {}
            engine.step(shards, intent, {}, rows)
            engine.follow(kept)
            self.steps.append(
                Step(
                    intent=intent,
                    micros=shards[0],
                    rows=rows,
                    flags={name: name in intent for name in before},
                    groups={name: 0 if name in intent else None for name in before},
                    grads={name: engine.grads[name].clone() for name in intent},
                    before=before,
                    weights=self._weights(engine),
                    masters={name: engine.masters[name].detach().clone() for name in intent} if low else {},
                )
            )
        self.first = dict(self.steps[0].before)

    def twin(self) -> Twin:
        return twin_of(self.start, self.hyper, self.precision)

    def _weights(self, engine: Twin) -> dict[str, torch.Tensor]:
        dtype = torch.float32 if self.precision == "fp32" else torch.bfloat16
        return {name: one.detach().to(dtype).clone() for name, one in engine.masters.items()}

    def judged(self) -> dict[str, ParameterVerdict]:
        """The verdicts by parameter name."""
        known = self.first | {name: one for step in self.steps for name, one in step.weights.items()}
        shapes = {name: (tuple(one.shape), tuple(one.shape)) for name, one in known.items()}
        verdicts = judge(
            self.steps,
            self.shards,
            first=self.first,
            start=self.start,
            shapes=shapes,
            twin=self.twin(),
            tolerance=TOLERANCES[self.precision],
        )
        return {one.name: one for one in verdicts}
