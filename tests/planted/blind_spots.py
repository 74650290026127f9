"""Faults that an oracle which follows the run too closely would follow, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from harness.cell import Options, case
from harness.cell.models import mlp
from harness.cell.zoo._mlp import Mlp
from planted.scene import block_engine

if TYPE_CHECKING:
    from harness.cell._run import Run

STAGES = [Options(model="mlp", stage=stage) for stage in (0, 1, 2, 3)]


class Idle(Mlp):
    """Has a parameter whose true gradient is zero."""

    def __init__(self) -> None:
        super().__init__()
        self.idle = torch.nn.Parameter(torch.ones(4))

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs, targets) + (self.idle * 0).sum()


class Dropping(Mlp):
    """Drops inputs at random."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().forward(self.drop(inputs), targets)


class Silent(Mlp):
    """Returns what it computed, and leaves the loss to its caller."""

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs, targets).expand(2)


@case(kind="CONTROL", variants=STAGES)
def gradient_from_nowhere(run: Run) -> None:
    """A parameter that should get none is given one."""
    model = run.model(Idle)
    engine = run.engine(model)
    model.idle.register_hook(lambda gradient: gradient + 3.0)
    run.train(engine, intent="*", batch=mlp.batch)


@case(kind="CONTROL", variants=STAGES)
def loss_rescaled_on_one_rank(run: Run) -> None:
    """One rank's loss counts five times."""
    engine = block_engine(run)
    backward = engine.backward

    def rescaled(loss: torch.Tensor) -> Any:
        return backward(loss * (5 if run.rank else 1))

    engine.backward = rescaled
    run.train(engine, intent=run.part("block"))


@case(kind="CONTROL", variants=STAGES[:1])
def gradient_taken_away(run: Run) -> None:
    """At stage 0 a gradient is set to None between backward and step."""
    engine = block_engine(run)
    backward = engine.backward

    def forgetful(loss: torch.Tensor) -> Any:
        done = backward(loss)
        engine.module.layers[2].weight.grad = None
        return done

    engine.backward = forgetful
    run.train(engine, intent=run.part("block"))


@case(kind="CONTROL", variants=STAGES[:1])
def ranks_a_rounding_apart(run: Run) -> None:
    """Every rank follows its own weights, far within any tolerance of the twin."""
    engine = block_engine(run)
    step = engine.step

    def apart() -> Any:
        done = step()
        if run.rank:
            with torch.no_grad():
                weight = engine.module.layers[2].weight
                weight.copy_(torch.nextafter(weight, torch.full_like(weight, 1e9)))
        return done

    engine.step = apart
    run.train(engine, intent=run.part("block"), steps=2)


@case(kind="CONTROL", variants=STAGES[:1])
def module_replaced(run: Run) -> None:
    """Between two stretches of training the head goes."""
    model = run.model()
    engine = run.engine(model)
    run.train(engine, intent="*", steps=1)
    model.head = torch.nn.Sequential(model.head)
    run.train(engine, intent="*", steps=1)


@case(kind="CONTROL", variants=STAGES[:1])
def drops_out(run: Run) -> None:
    """The twin could not draw the same mask."""
    run.train(run.engine(run.model(Dropping)), intent="*", batch=mlp.batch)


@case(kind="CONTROL", variants=STAGES[:1])
def returns_no_loss(run: Run) -> None:
    """A loop of one's own, and a loss that no forward returned."""
    model = run.model(Silent)
    engine = run.engine(model)
    run.intend(engine, "*")
    engine.backward(engine(**run.draw(mlp.batch)).mean())
    engine.step()


@case(kind="CONTROL", variants=STAGES[:1])
def never_says_what_is_meant(run: Run) -> None:
    """Leaves the intent out altogether."""
    run.train(block_engine(run))


@case(kind="CONTROL", variants=STAGES[:1])
def steps_by_itself(run: Run) -> None:
    """A loop of one's own that says nothing of the intent."""
    engine = block_engine(run)
    engine.backward(engine(**run.draw()))
    engine.step()


@case(kind="CONTROL", variants=STAGES[:1])
def makes_its_own_engine(run: Run) -> None:
    """Goes past the run to DeepSpeed."""
    import deepspeed  # noqa: PLC0415  # slow, and needed by one

    model = run.model()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=run.config())
    run.train(engine, intent="*")


@case(kind="CONTROL", variants=STAGES[:1])
def another_model_on_one_rank(run: Run) -> None:
    """One rank has a parameter more, from after the engine on."""
    model = run.model()
    engine = run.engine(model)
    if run.rank:
        model.extra = torch.nn.Parameter(torch.ones(2))
    run.train(engine, intent="layers.2.*")
