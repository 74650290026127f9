"""Kind D: frozen values that move all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.cell import Group, Hyper, Options, case, freeze_except
from harness.cell._memory import optimizer_elements

if TYPE_CHECKING:
    from harness.cell._run import Run

_STAGE_3 = [Options(model="mlp"), Options(model="mlp", init="zero_init")]
_STAGES = [*(Options(model="mlp", stage=stage) for stage in (0, 2)), *_STAGE_3]
_OFFLOADED = [Options(model="mlp", stage=stage, offload="cpu") for stage in (1, 2, 3)]

_SGD = Hyper(optimizer="SGD", lr=0.1, weight_decay=0.0)


def _freeze_after_two_steps(run: Run, hyper: Hyper) -> None:
    """Everything trains for two steps, then a block alone."""
    model = run.model()
    engine = run.engine(model, hyper=hyper)
    run.train(engine, intent="*")
    freeze_except(model, run.part("block"))
    run.train(engine, intent=run.part("block"))


@case(
    kind="D",
    recipe="exclusion freezing",
    moment="after two steps, AdamW without decay",
    happens="What was frozen goes on moving, by nearly a whole step at first: there is no decay, but Adam's momentum "
    "of the steps before is still there. Stage 0 leaves it in place, as plain PyTorch does.",
    instead="create a new engine after freezing.",
    cure="new_engine_per_block",
    variants=[*_STAGES, Options(model="mlp", stage=1)],
)
def freeze_after_steps_adamw(run: Run) -> None:
    """All trains for two steps, then everything but a block is frozen.

    ZeRO steps one flat tensor for each group. For a parameter whose flag is off it puts zeros where its gradient
    belongs: ``independent_gradient_partition_epilogue`` in ``deepspeed/runtime/zero/stage3.py``,
    ``get_flat_partition`` in ``stage_1_and_2.py`` (0.19.8). To Adam a zero is a gradient like any other.
    """
    _freeze_after_two_steps(run, Hyper(weight_decay=0.0))


@case(
    kind="D",
    recipe="exclusion freezing",
    moment="after two steps, SGD with momentum",
    happens="What was frozen goes on moving by its momentum, which fades step by step. Stage 0 leaves it in place.",
    instead="create a new engine after freezing.",
    cure="new_engine_per_block",
    variants=[*(Options(model="mlp", stage=stage) for stage in (0, 2)), Options(model="mlp")],
)
def freeze_after_steps_sgd_momentum(run: Run) -> None:
    """All trains for two steps, then a block alone; momentum is all that SGD keeps.

    The zeros are those of ``deepspeed/runtime/zero/stage3.py`` and ``stage_1_and_2.py`` (0.19.8).
    """
    _freeze_after_two_steps(run, Hyper(optimizer="SGD", lr=0.1, weight_decay=0.0, momentum=0.9))


@case(
    kind="CONTROL",
    recipe="exclusion freezing",
    moment="after two steps, SGD without momentum and decay",
    happens="Trains without offload, and what was frozen stays put: this optimizer makes no step of a zero gradient. "
    "With the optimizer offloaded it moves (`freeze_after_steps_offloaded`).",
    variants=[*_STAGES, Options(model="mlp", stage=2, precision="bf16")],
)
def freeze_after_steps_sgd(run: Run) -> None:
    """All trains for two steps, then a block alone, by an optimizer that keeps nothing and moves nothing by itself."""
    _freeze_after_two_steps(run, _SGD)


@case(
    kind="D",
    recipe="exclusion freezing, optimizer offloaded",
    moment="after two steps, SGD without momentum and decay",
    happens="What was frozen is trained on with the last gradient that it had, the same one at every step, whatever "
    "the optimizer.",
    instead="freeze before the engine is created, or create a new engine after freezing.",
    cure="freeze_except_offloaded",
    variants=[*_OFFLOADED, Options(model="mlp", offload="cpu", clipping=0.1)],
)
def freeze_after_steps_offloaded(run: Run) -> None:
    """Plain SGD on CPU by ``offload_optimizer``; without offload nothing frozen moves.

    With offload the gradients that are stepped by lie in one buffer on CPU, into which each backward writes those of
    the parameters that it reaches. ``independent_gradient_partition_epilogue`` in ``deepspeed/runtime/zero/stage3.py``
    puts its zeros in place only without offload; ``copy_grads_in_partition`` in ``stage_1_and_2.py`` is not called
    for what is frozen (0.19.8; the same in 0.14.4).
    """
    _freeze_after_two_steps(run, _SGD)


@case(
    kind="CONTROL",
    recipe="exclusion freezing, optimizer offloaded",
    moment="before the engine",
    happens="Trains, and what is frozen stays put, as without offload.",
    variants=_OFFLOADED,
)
def freeze_except_offloaded(run: Run) -> None:
    """Frozen from the start, with the optimizer on CPU."""
    model = run.model()
    freeze_except(model, run.part("block"))
    run.train(run.engine(model), intent=run.part("block"), steps=3)


def _train_beside_rate_zero(run: Run, **config: Any) -> float:
    """Elements of optimizer state for each weight that trains."""
    model = run.model()
    named = dict(model.named_parameters())
    size: int = sum(
        getattr(named[name], "ds_numel", named[name].numel()) for name in ("layers.2.weight", "layers.2.bias")
    )
    engine = run.engine(model, hyper=Hyper(lr=0.0, split=(Group(run.part("block"), lr=1e-2),)), **config)
    run.train(engine, intent=run.part("block"))
    return optimizer_elements(engine) / size


@case(
    kind="CONTROL",
    refs=["deepspeedai/DeepSpeed#2615"],
    recipe="a group with a learning rate of 0",
    moment="before the engine",
    happens="Trains, and what has a rate of 0 stays put to the bit: decay is multiplied by the rate, too.",
    variants=_STAGES,
)
def group_at_rate_zero(run: Run) -> None:
    """All flags stay on; what must not train is in a group of its own, at a rate of 0."""
    _train_beside_rate_zero(run)


@case(
    kind="D",
    refs=["deepspeedai/DeepSpeed#2615"],
    recipe="a group with a learning rate of 0, state counted",
    moment="before the engine",
    happens="Nothing moves that should not, but the optimizer holds two elements of state for every weight of the "
    "model, as if all of it trained; the case counts them and says so by an assertion.",
    instead="turn the flags off before the engine is created: what is frozen then has no state.",
    cure="optimizer_state_of_what_trains",
    variants=[Options(model="mlp", stage=2), *_STAGE_3[1:]],
)
def group_at_rate_zero_holds_state(run: Run) -> None:
    """A group at a rate of 0, and what the optimizer keeps: AdamW has two elements for each weight that it steps.

    ``_get_trainable_parameter_groups`` in ``deepspeed/runtime/zero/stage3.py`` (0.19.8; since 0.8.0) asks for the flag
    and for nothing else.
    """
    held = _train_beside_rate_zero(run)
    assert held == 2, f"{held:.1f} elements of optimizer state for each weight that trains, where AdamW needs 2"


@case(
    kind="D",
    refs=["deepspeedai/DeepSpeed#2615", "deepspeedai/DeepSpeed#6873"],
    recipe="a group with a learning rate of 0, and a scheduler in the JSON",
    moment="before the engine",
    happens="Silent, at every stage: the scheduler sets the rate of every group, that of 0 as well, and what was meant "
    "to be frozen trains.",
    instead="give the scheduler a list with a 0 in it, or turn the flags off.",
    cure="group_at_rate_zero_scheduled_by_a_list",
    variants=[*_STAGES[:2], *_STAGE_3[1:]],
)
def group_at_rate_zero_scheduled(run: Run) -> None:
    """``WarmupLR`` with one ``warmup_max_lr``.

    ``update_lr`` in ``deepspeed/runtime/lr_schedules.py`` (0.19.8) writes the same number into all groups.
    """
    _train_beside_rate_zero(run, scheduler=_warmup(1e-2))


@case(
    kind="CONTROL",
    refs=["deepspeedai/DeepSpeed#2615"],
    recipe="a group with a learning rate of 0, and a scheduler in the JSON with a list of rates",
    moment="before the engine",
    happens="Trains, and what has a rate of 0 stays put.",
    variants=[Options(model="mlp", stage=stage) for stage in (0, 2, 3)],
)
def group_at_rate_zero_scheduled_by_a_list(run: Run) -> None:
    """``WarmupLR`` with a ``warmup_max_lr`` for each group, that of the group that must not train being 0."""
    _train_beside_rate_zero(run, scheduler=_warmup([0.0, 1e-2]))


def _warmup(rates: Any) -> dict[str, Any]:
    # As high at the beginning as at the end, so that no step is without a move.
    return {
        "type": "WarmupLR",
        "params": {"warmup_min_lr": rates, "warmup_max_lr": rates, "warmup_num_steps": 2},
    }


@case(
    kind="D",
    recipe="a group with a learning rate of 0 for a while, AdamW",
    moment="between steps",
    happens="Stays put for as long, and then takes wrong steps, at every stage: a rate of 0 stops no gradient, and "
    "Adam's moments and step count were fed all the time.",
    instead="freeze the group before the engine is created and make a new engine when its turn comes, or use an "
    "optimizer without state.",
    cure="group_at_rate_zero_for_a_while_sgd",
    variants=[Options(model="mlp", stage=stage) for stage in (0, 3)],
)
def group_at_rate_zero_for_a_while(run: Run) -> None:
    """The head's group has a rate of 0 for two steps, and its own from then on.

    ``Adam`` in torch/optim/adam.py (2.13.0) updates its moments before it comes to the rate, which only scales the step
    that is made of them. It is no fault of DeepSpeed's: stage 0 does the same.
    """
    _rest_for_two_steps(run, Hyper(weight_decay=0.0, split=(Group(run.part("head"), lr=1e-2),)))


@case(
    kind="CONTROL",
    recipe="a group with a learning rate of 0 for a while, SGD without momentum",
    moment="between steps",
    happens="Trains: this optimizer keeps nothing of the gradients that came while the rate was 0.",
    variants=[Options(model="mlp", stage=stage) for stage in (0, 3)],
)
def group_at_rate_zero_for_a_while_sgd(run: Run) -> None:
    """The head's group has a rate of 0 for two steps, and its own from then on; SGD."""
    _rest_for_two_steps(run, Hyper(optimizer="SGD", lr=0.1, weight_decay=0.0, split=(Group(run.part("head"), lr=0.1),)))


def _rest_for_two_steps(run: Run, hyper: Hyper) -> None:
    model = run.model()
    freeze_except(model, (*run.part("head"), *run.part("block")))
    engine = run.engine(model, hyper=hyper)
    engine.optimizer.param_groups[1]["lr"] = 0.0
    run.train(engine, intent=run.part("block"))
    engine.optimizer.param_groups[1]["lr"] = hyper.lr
    run.train(engine, intent=(*run.part("head"), *run.part("block")))


@case(
    kind="D",
    recipe="gradients cleared between backward and step",
    moment="after the engine",
    happens="Stage 0 leaves the head alone, as plain PyTorch does; under ZeRO it trains on, since by then its gradient "
    "is elsewhere and `.grad` is empty.",
    instead="freeze it before the engine is created, and make a new engine once it is to train. A rate of 0 for as "
    "long is as good with SGD without momentum alone (`group_at_rate_zero_for_a_while`).",
    cure="new_engine_after_unfreezing",
    variants=[*_STAGES, Options(model="mlp", stage=1)],
)
def freeze_by_clearing_gradients(run: Run) -> None:
    """A loop that freezes for a while by ``grad = None``, as self-supervised recipes do with a last layer.

    ZeRO takes a gradient out of ``.grad`` while backward runs: ``partition_grads`` in
    ``deepspeed/runtime/zero/stage3.py``, ``overlapping_partition_gradients_reduce_epilogue`` in ``stage_1_and_2.py``
    (0.19.8).
    """
    model = run.model()
    freeze_except(model, (*run.part("head"), *run.part("block")))
    engine = run.engine(model)
    run.intend(engine, run.part("block"))
    for _ in range(2):
        engine.backward(engine(**run.draw()))
        for name, parameter in model.named_parameters():
            if name.startswith("head."):
                parameter.grad = None
        engine.step()
