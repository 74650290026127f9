"""Steps that are not taken, or taken wrongly, with right gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from harness.cell import Hyper, Options, case, freeze_except
from planted import sabotage
from planted.scene import EVERYWHERE, FEW, FROZEN, SGD, TRAINED, block_engine, engine_given, head_apart, trained

if TYPE_CHECKING:
    from harness.cell._run import Run


@case(kind="CONTROL", variants=EVERYWHERE)
def step_skipped(run: Run) -> None:
    """The optimizer never moves one parameter."""
    engine = block_engine(run)
    sabotage.scale_step(engine, run.options.stage, trained(run, engine.module), 0.0)
    run.train(engine, intent=run.part("block"))


@case(kind="CONTROL", variants=FEW)
def left_out_of_the_optimizer(run: Run) -> None:
    """One trained parameter is not among those that the engine was given."""
    model = run.model()
    freeze_except(model, run.part("block"))
    given = [one for name, one in model.named_parameters() if name != TRAINED[run.options.model]]
    run.train(engine_given(run, model, given), intent=run.part("block"))


@case(kind="CONTROL", variants=EVERYWHERE)
def step_one_per_cent_longer(run: Run) -> None:
    """The smallest wrong learning rate worth seeing: one per cent off."""
    engine = block_engine(run)
    sabotage.scale_step(engine, run.options.stage, trained(run, engine.module), 1.01)
    run.train(engine, intent=run.part("block"))


@case(kind="CONTROL", variants=FEW)
def another_groups_learning_rate(run: Run) -> None:
    """Two optimizer groups; the head is stepped with a learning rate of its own."""
    model = run.model()
    parts = run.part("block") + run.part("head")
    freeze_except(model, parts)
    groups = head_apart(run, model, lr=1.5 * run.hyper.lr)
    run.train(engine_given(run, model, groups), intent=parts)


@case(kind="CONTROL", variants=FEW)
def schedule_lost(run: Run) -> None:
    """The engine keeps the rate that the schedule lowers: its first step is right, its second is not."""
    engine = block_engine(run, hyper=Hyper())
    run.hyper = Hyper(schedule=lambda step: 1.0 if step == 0 else 0.75)
    run.train(engine, intent=run.part("block"))


@case(kind="CONTROL", variants=FEW)
def weight_decay_lost(run: Run) -> None:
    """The engine's optimizer has no weight decay, the declared one has."""
    declared, given = run.hyper, Hyper(weight_decay=0.0)
    engine = block_engine(run, optimizer=given.deepspeed())
    assert run.hyper is declared
    run.train(engine, intent=run.part("block"))


@case(
    kind="CONTROL",
    variants=[Options(stage=0, accumulation=2, clipping=0.01), Options(stage=3, accumulation=2, clipping=0.01)],
)
def clipped_at_another_norm(run: Run) -> None:
    """Gradients are clipped at one per cent more than was declared."""
    hyper = Hyper(optimizer="SGD", lr=SGD.lr, weight_decay=0.0)
    engine = block_engine(run, hyper=hyper, gradient_clipping=1.01 * run.options.clipping)
    run.train(engine, intent=run.part("block"))


@case(kind="CONTROL", variants=[Options(stage=1), Options(stage=3, accumulation=2, precision="bf16")])
def momentum_lost(run: Run) -> None:
    """The engine's SGD has no momentum: its first step is right, its second is not."""
    given = Hyper(optimizer="SGD", lr=SGD.lr, weight_decay=SGD.weight_decay)
    engine = block_engine(run, hyper=SGD, optimizer=given.deepspeed())
    run.train(engine, intent=run.part("block"))


@case(kind="CONTROL", variants=[one for one in EVERYWHERE if one.precision == "bf16"])
def copy_not_refreshed(run: Run) -> None:
    """In the second step the fp32 master moves, but the model's own bf16 weight does not follow."""
    engine = block_engine(run)
    victim = trained(run, engine.module)
    kept: list[torch.Tensor] = []
    sabotage.after_step(engine, 1, lambda: sabotage.in_place(victim, lambda weight: kept.append(weight.clone())))
    sabotage.after_step(engine, 2, lambda: sabotage.in_place(victim, lambda weight: weight.copy_(kept[0])))
    run.train(engine, intent=run.part("block"))


@case(kind="CONTROL", variants=EVERYWHERE)
def wrong_start(run: Run) -> None:
    """One trained and one frozen parameter start from other weights than all ranks were given."""
    model = run.model()
    freeze_except(model, run.part("block"))
    for names in (TRAINED, FROZEN):
        sabotage.in_place(model.get_parameter(names[run.options.model]), lambda weight: weight.mul_(1.25))
    run.train(run.engine(model), intent=run.part("block"))
