"""Kind B: a group's learning rate or decay that reaches other parameters, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.cell import Fix, Group, Hyper, Options, case, freeze_except
from harness.drivers.adapters import lora
from harness.drivers.trainer import train_with_trainer

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.cell._run import Run

_STAGE_3 = [Options(model="mlp"), Options(model="mlp", init="zero_init")]
_STAGES = [*(Options(model="mlp", stage=stage) for stage in (0, 2)), Options(model="mlp", init="zero_init")]


def _halving(step: int) -> float:
    return 0.5**step


@case(
    kind="CONTROL",
    refs=["deepspeedai/DeepSpeed#6873", "modelscope/ms-swift#2723"],
    recipe="groups with rates of their own",
    moment="before the engine",
    happens="Trains: each group has its own learning rate and weight decay, a hundred times apart, under ZeRO as in "
    "plain PyTorch.",
    variants=[*_STAGES, Options(model="mlp", stage=1), Options(model="mlp", stage=1, precision="bf16")],
)
def groups_with_rates_of_their_own(run: Run) -> None:
    """Two groups that train, of other rates and decays, and a frozen rest in the first.

    Each ZeRO stage steps a flat tensor for each group and leaves it in the group it came from: ``_optimizer_step`` in
    ``deepspeed/runtime/zero/stage3.py`` (0.19.8).
    """
    model = run.model()
    freeze_except(model, (*run.part("block"), *run.part("head")))
    apart = Group(run.part("head"), lr=1e-4, weight_decay=0.0)
    engine = run.engine(model, hyper=Hyper(split=(apart,)))
    run.train(engine, intent=(*run.part("block"), *run.part("head")))


@case(
    kind="B",
    refs=["deepspeedai/DeepSpeed#8060"],
    fixes=[Fix("deepspeed", "0.19.3", "deepspeedai/DeepSpeed#8060")],
    recipe="a group that is wholly frozen, before those that train",
    moment="before the engine",
    happens="Silent before DeepSpeed 0.19.3: each group trains with the learning rate and the decay of the group "
    "before it, the first that trains with those of the frozen one.",
    instead="give the optimizer only what trains.",
    cure="groups_of_what_trains",
    variants=_STAGE_3,
)
def frozen_group_first(run: Run) -> None:
    """The first group is frozen; the second and the third train, each with its own rate.

    ``_get_trainable_parameter_groups`` in ``deepspeed/runtime/zero/stage3.py`` leaves the frozen group out, and
    ``_create_fp16_partitions_with_defragmentation`` counted the groups of that shorter list (0.11.2 to 0.19.2), while
    ``_optimizer_step`` looks the number up in the optimizer's longer one. 0.19.3 keeps the number in the longer one.
    """
    model = run.model()
    freeze_except(model, (*run.part("block"), *run.part("head")))
    split = (Group(run.part("block"), lr=1e-3, weight_decay=0.0), Group(run.part("head"), lr=1e-4))
    engine = run.engine(model, hyper=Hyper(split=split))
    run.train(engine, intent=(*run.part("block"), *run.part("head")))


@case(
    kind="CONTROL",
    recipe="rates set in the groups of the engine's optimizer",
    moment="after the engine",
    happens="Trains with the rates as they were set last.",
    variants=_STAGES,
)
def rates_set_after_engine(run: Run) -> None:
    """Write into ``engine.optimizer.param_groups``, as layer-wise decay and home-made schedules do.

    ``param_groups`` of every ZeRO optimizer is that of the optimizer inside (``deepspeed/runtime/zero/stage3.py``,
    0.19.8), which is read anew at each step.
    """
    model = run.model()
    freeze_except(model, (*run.part("block"), *run.part("head")))
    engine = run.engine(model, hyper=Hyper(lr=1.0, split=(Group(run.part("head"), lr=1.0),)))
    for group, lr in zip(engine.optimizer.param_groups, (1e-2, 1e-4), strict=True):
        group["lr"] = lr
    run.hyper = Hyper(lr=1e-2, split=(Group(run.part("head"), lr=1e-4),))
    run.train(engine, intent=(*run.part("block"), *run.part("head")))


@case(
    kind="B",
    refs=[
        "huggingface/transformers#43692",
        "hiyouga/LlamaFactory#10144",
        "hiyouga/LlamaFactory#10141",
        "OpenRLHF/OpenRLHF#1225",
        "modelscope/ms-swift#8299",
    ],
    recipe="a schedule made for a last group without members",
    moment="before the engine",
    happens="From torch 2.10 the first scheduler step raises that two lists differ in length; before, it trains.",
    instead="make the schedule once the engine is there: give it to DeepSpeed as a function of the optimizer, or leave "
    "out groups without members.",
    cure="schedule_made_by_the_engine",
    variants=_STAGES,
)
def schedule_before_engine_last_group_empty(run: Run) -> None:
    """Optimizer and schedule are made first; the second group, without decay, has no member.

    ``_configure_optimizer`` in ``deepspeed/runtime/engine.py`` (0.14.4, 0.19.8) takes the empty group out of the very
    list that the schedule counts with, at stage 0, too. ``_update_lr`` in ``torch/optim/lr_scheduler.py`` pairs groups
    and rates with a strict ``zip`` (2.13.0), or with one that ignores the rate left over (2.2.2).
    """
    _train_with_schedule(run, Group("none.*", weight_decay=0.0))


@case(
    kind="B",
    refs=["deepspeedai/DeepSpeedExamples#756"],
    recipe="a schedule made for a first group without members",
    moment="before the engine",
    happens="From torch 2.10 the first scheduler step raises that two lists differ in length. Before, it is silent: "
    "what trains gets the learning rate of the group that DeepSpeed took out.",
    instead="make the schedule once the engine is there: give it to DeepSpeed as a function of the optimizer, or leave "
    "out groups without members.",
    cure="schedule_made_by_the_engine",
    variants=_STAGES,
)
def schedule_before_engine_first_group_empty(run: Run) -> None:
    """Optimizer and schedule are made first; the first group has no member, and what trains has a rate of its own.

    As with an empty last group, but the pairs of ``_update_lr`` in ``torch/optim/lr_scheduler.py`` (2.2.2) are shifted
    by one: the first rate belonged to the group that ``deepspeed/runtime/engine.py`` took out.
    """
    _train_with_schedule(run, Group(run.part("block"), lr=1e-3))


def _train_with_schedule(run: Run, group: Group) -> None:
    model = run.model()
    freeze_except(model, run.part("block"))
    run.hyper = Hyper(split=(group,), schedule=_halving)
    trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
    optimizer = run.hyper.torch(trained, empty=True)
    schedule = run.hyper.scheduler(optimizer)
    engine = run.engine(model, client_optimizer=optimizer, client_scheduler=schedule)
    run.train(engine, intent=run.part("block"), steps=3)


@case(
    kind="CONTROL",
    refs=["OpenRLHF/OpenRLHF#1225"],
    recipe="a schedule made by the engine",
    moment="while the engine is made",
    happens="Trains, empty group or not: DeepSpeed calls the function once its groups are final.",
    variants=_STAGES,
)
def schedule_made_by_the_engine(run: Run) -> None:
    """The first group has no member; the schedule is given as a function of the optimizer.

    ``_configure_lr_scheduler`` in ``deepspeed/runtime/engine.py`` (0.19.8) calls it with the optimizer whose empty
    groups are gone.
    """
    model = run.model()
    freeze_except(model, run.part("block"))
    run.hyper = Hyper(split=(Group(run.part("block"), lr=1e-3),), schedule=_halving)
    trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
    engine = run.engine(model, client_optimizer=run.hyper.torch(trained, empty=True))
    run.train(engine, intent=run.part("block"), steps=3)


@case(
    kind="B",
    recipe="a schedule of torch's made for the engine's optimizer",
    moment="after the engine",
    happens="Stages 1 to 3 raise at once: DeepSpeed's optimizers are none of torch's, and torch makes schedules for "
    "its own alone. At stage 0 the engine's optimizer is torch's, and it works.",
    instead="make the schedule for the optimizer inside, `engine.optimizer.optimizer`, and step it after "
    "`engine.step()`.",
    cure="schedule_after_engine_of_the_optimizer_inside",
    variants=[Options(model="mlp", stage=stage) for stage in (0, 2, 3)],
)
def schedule_after_engine(run: Run) -> None:
    """``LambdaLR(engine.optimizer, ...)``, as it is written in plain PyTorch.

    ``LRScheduler.__init__`` in torch/optim/lr_scheduler.py (2.13.0) asks for an instance of ``Optimizer``; those of
    ``deepspeed/runtime/zero/stage3.py`` and ``stage_1_and_2.py`` (0.19.8) hold one, and are ``ZeROOptimizer``.
    """
    _train_with_schedule_after_engine(run, lambda engine: engine.optimizer)


@case(
    kind="CONTROL",
    recipe="a schedule of torch's made for the optimizer inside the engine's",
    moment="after the engine",
    happens="Trains by the schedule: the groups of the optimizer inside are those that ZeRO steps with.",
    variants=[Options(model="mlp", stage=stage) for stage in (2, 3)],
)
def schedule_after_engine_of_the_optimizer_inside(run: Run) -> None:
    """``LambdaLR(engine.optimizer.optimizer, ...)``, stepped by the loop."""
    _train_with_schedule_after_engine(run, lambda engine: engine.optimizer.optimizer)


def _train_with_schedule_after_engine(run: Run, optimizer_of: Callable[[Any], Any]) -> None:
    from torch.optim.lr_scheduler import LambdaLR

    model = run.model()
    freeze_except(model, run.part("block"))
    engine = run.engine(model)
    schedule = LambdaLR(optimizer_of(engine), _halving)
    run.hyper = Hyper(schedule=_halving)
    for _ in range(3):
        run.train(engine, intent=run.part("block"), steps=1)
        schedule.step()


@case(
    kind="B",
    refs=["deepspeedai/DeepSpeed#8171", "deepspeedai/DeepSpeed#7360", "deepspeedai/DeepSpeed#7303"],
    fixes=[Fix("deepspeed", "0.19.4", "deepspeedai/DeepSpeed#8171")],
    recipe="groups with rates of their own, and a scheduler in the JSON without a `warmup_max_lr`",
    moment="before the engine",
    happens="Trains from DeepSpeed 0.19.4 on, each group at its own rate. From 0.17.2 to 0.19.3 all groups warm up to "
    "the rate of the first, silently and at every stage; before, to 0.001, whatever the optimizer was given.",
    instead="give the scheduler one rate for each group.",
    cure="json_schedule_with_a_rate_for_each_group",
    variants=[Options(model="mlp", stage=stage) for stage in (0, 3)],
)
def json_schedule_without_a_rate(run: Run) -> None:
    """``WarmupLR`` is told where to start and not where to end; two groups have rates a hundred times apart.

    ``WarmupLR.__init__`` in ``deepspeed/runtime/lr_schedules.py`` takes the groups' rates for what is not given: the
    first group's alone (read in 0.17.2 and 0.19.3), or each its own (0.19.4, 0.19.8). Until 0.17.1 it had a default of
    0.001 (0.16.5).
    """
    model = run.model()
    freeze_except(model, (*run.part("block"), *run.part("head")))
    warmup = {"warmup_min_lr": [1e-2, 1e-4], "warmup_num_steps": 2}
    hyper = Hyper(split=(Group(run.part("head"), lr=1e-4),))
    engine = run.engine(model, hyper=hyper, scheduler={"type": "WarmupLR", "params": warmup})
    run.train(engine, intent=(*run.part("block"), *run.part("head")), steps=3)


@case(
    kind="B",
    refs=["deepspeedai/DeepSpeed#6873", "deepspeedai/DeepSpeed#7713", "modelscope/ms-swift#2723"],
    recipe="groups with rates of their own, and a scheduler in the JSON",
    moment="before the engine",
    happens="Silent, at every stage: all groups train at the one rate that the scheduler block names, whatever they "
    "were given. DeepSpeed before 0.15.3 keeps the groups' own rates for the first step.",
    instead="give the scheduler one rate for each group, or make it in code.",
    cure="json_schedule_with_a_rate_for_each_group",
    variants=_STAGES,
)
def json_schedule_with_one_rate(run: Run) -> None:
    """``WarmupLR`` has one ``warmup_max_lr``; two groups have rates a hundred times apart.

    ``_format_param`` in ``deepspeed/runtime/lr_schedules.py`` (0.19.8) spreads a number over all groups, and
    ``update_lr`` writes it into each. Without ZeRO the same happens.
    """
    _train_with_warmup(run, 1e-2)


@case(
    kind="CONTROL",
    refs=["deepspeedai/DeepSpeed#6873"],
    recipe="groups with rates of their own, and a list of rates in the JSON",
    moment="before the engine",
    happens="Trains, each group at its own rate.",
    variants=_STAGES,
)
def json_schedule_with_a_rate_for_each_group(run: Run) -> None:
    """``WarmupLR`` has a list of two ``warmup_max_lr``; two groups have rates a hundred times apart.

    ``_format_param`` in ``deepspeed/runtime/lr_schedules.py`` (0.19.8) takes a list as long as the list of groups, of
    which those without members are no part.
    """
    _train_with_warmup(run, [1e-2, 1e-4])


def _train_with_warmup(run: Run, rates: Any) -> None:
    model = run.model()
    freeze_except(model, (*run.part("block"), *run.part("head")))
    # As high at the beginning as at the end, so that no step is without a move.
    warmup = {"warmup_min_lr": rates, "warmup_max_lr": rates, "warmup_num_steps": 2}
    hyper = Hyper(split=(Group(run.part("head"), lr=1e-4),))
    engine = run.engine(model, hyper=hyper, scheduler={"type": "WarmupLR", "params": warmup})
    run.train(engine, intent=(*run.part("block"), *run.part("head")))


@case(
    kind="B",
    refs=["deepspeedai/DeepSpeed#6857"],
    recipe="a group taken out of the optimizer",
    moment="after the engine",
    happens="Stage 3 fails in the next step, stages 1 and 2 in backward or in the step: they look the group up by a "
    "number that it no longer has. Stage 0 trains the rest.",
    instead="leave the groups of the engine's optimizer as they are, and create a new engine.",
    cure="new_engine_per_block",
    variants=_STAGES,
)
def group_removed_after_engine(run: Run) -> None:
    """To stop training the head, its group is deleted.

    ``sub_group_to_group_id`` in ``deepspeed/runtime/zero/stage3.py`` and the lists by group in ``stage_1_and_2.py``
    (0.19.8) are made once, with the engine. The report has the same line and names no cause; this is one way there.
    """
    model = run.model()
    freeze_except(model, (*run.part("block"), *run.part("head")))
    engine = run.engine(model, hyper=Hyper(split=(Group(run.part("head")),)))
    del engine.optimizer.param_groups[1]
    run.train(engine, intent=run.part("block"))


@case(
    kind="B",
    refs=[
        "huggingface/transformers#43692",
        "hiyouga/LlamaFactory#10144",
        "MakazhanAlpamys/Soup#336",
    ],
    fixes=[
        Fix(
            "transformers",
            "5.1.0",
            "huggingface/transformers#43711",
            because="5.1.0 makes no DeepSpeed engine with this JSON (`trainer_without_an_engine`), so that 5.2.0 is "
            "the first release that trains; with torch before 2.10 nothing was wrong.",
        )
    ],
    recipe="LoRA",
    moment="before the Trainer",
    happens="Trains from transformers 5.2.0 on. Up to 5.0.0 the first scheduler step raises that two lists differ in "
    "length, if torch is 2.10 or newer; with torch before it trains. 5.1.0 makes no engine.",
    instead="upgrade transformers; in a loop of your own, make the schedule once the engine is there.",
    cure="schedule_made_by_the_engine",
    variants=[*(Options(stage=stage) for stage in (0, 2, 3)), Options(init="zero_init")],
    needs=("transformers", "accelerate", "peft"),
)
def trainer_with_lora(run: Run) -> None:
    """Adapters have no bias and no norm, so the Trainer's group without decay is empty.

    ``train`` in ``transformers/trainer.py`` made the schedule for its own two groups before it handed them to
    accelerate (5.0.0); ``deepspeed/runtime/engine.py`` (0.19.8) then drops the empty one.
    """
    train_with_trainer(run, wrap=lora(run), intent="*lora_*")


@case(
    kind="B",
    recipe="parameters in another order on each rank",
    moment="before the engine",
    happens="Silent at stages 1 and 2: the bias that should train gets no gradient at all, and weights are copied over "
    "one another. Stage 3 dies by a signal while it gathers parameters of different sizes. Stage 0 trains.",
    instead="give the optimizer its parameters in the order of the model: a list that was filtered, never a `set`.",
    cure="freeze_except_before_engine",
    variants=[Options(model="mlp", stage=stage) for stage in (0, 1, 2, 3)],
)
def parameters_in_another_order(run: Run) -> None:
    """The optimizer gets its parameters out of a ``set``, so each rank has an order of its own.

    A set orders tensors by their addresses. ``deepspeed/runtime/zero/stage_1_and_2.py`` (0.19.8) flattens each group
    in the order given and cuts the result into one piece for each rank, so pieces that should join to a whole do not;
    ``create_reduce_and_remove_grad_hooks`` in ``stage3.py`` gathers one parameter after another in that order.
    """
    model = run.model()
    freeze_except(model, run.part("block"))
    parameters = [*model.parameters()]
    if run.rank:  # a set would do so at random
        parameters.reverse()
    engine = run.engine(model, parameters=parameters)
    run.train(engine, intent=run.part("block"))
