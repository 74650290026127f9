"""Kind A: optimizer groups, or whole optimizers, in which nothing trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.cell import Fix, Group, Hyper, Options, case, freeze_all, freeze_except
from harness.drivers.trainer import train_with_trainer

if TYPE_CHECKING:
    from harness.cell._run import Run

_STAGES = [*(Options(model="mlp", stage=stage) for stage in (0, 1, 2, 3)), Options(model="mlp", init="zero_init")]


@case(
    kind="A",
    refs=[
        "deepspeedai/DeepSpeed#4055",
        "deepspeedai/DeepSpeed#4776",
        "open-mmlab/mmengine#1441",
        "open-mmlab/mmengine#1518",
    ],
    recipe="a group that is wholly frozen",
    moment="before the engine",
    happens="Stages 1 and 2 cannot create the engine: they look at the first parameter of every group, and of this one "
    "none is left once the frozen are taken out. Stage 3 passes it over and trains; stage 0 keeps it and trains.",
    instead="give the optimizer only what trains.",
    cure="groups_of_what_trains",
    variants=[*_STAGES, Options(model="mlp", stage=1, precision="bf16")],
)
def group_wholly_frozen(run: Run) -> None:
    """One group trains; another, with a rate of its own, is frozen as a whole.

    ``deepspeed/runtime/zero/stage_1_and_2.py`` takes the frozen parameters out of each group and then wants the dtype
    of the group's first (0.19.8), or flattens an empty list (0.10.3 to 0.14.4). ``_get_trainable_parameter_groups`` in
    ``stage3.py`` skips such a group; in 0.10.3 it kept it, and the first step failed over the norm of no gradients.
    """
    model = run.model()
    freeze_except(model, run.part("block"))
    frozen = Group((*run.part("head"), *run.part("embedding")), lr=1e-3)
    engine = run.engine(model, hyper=Hyper(split=(frozen,)))
    run.train(engine, intent=run.part("block"))


@case(
    kind="CONTROL",
    refs=["deepspeedai/DeepSpeed#4055"],
    recipe="groups of what trains",
    moment="before the engine",
    happens="Trains: groups are made after freezing, from the parameters that train, and those without members left "
    "out.",
    variants=_STAGES,
)
def groups_of_what_trains(run: Run) -> None:
    """Freeze, then sort what is left into groups.

    What ``_configure_optimizer`` in ``deepspeed/runtime/engine.py`` (0.19.8) is given then holds nothing frozen, and no
    index can shift.
    """
    model = run.model()
    freeze_except(model, run.part("block"))
    run.hyper = Hyper(split=(Group((*run.part("head"), *run.part("embedding")), lr=1e-3), Group("*.bias", lr=2e-3)))
    trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
    engine = run.engine(model, parameters=run.hyper.groups(trained))
    run.train(engine, intent=run.part("block"))


@case(
    kind="CONTROL",
    recipe="a group without members",
    moment="before the engine",
    happens="No fault by itself: DeepSpeed drops a group that has no parameter at all. Schedules made before that do "
    "not know of it. DeepSpeed up to 0.11.0 drops them from a client's optimizer alone, and cannot create the engine.",
    variants=_STAGES,
)
def group_without_members(run: Run) -> None:
    """The first group is empty, the second trains.

    ``_configure_optimizer`` in ``deepspeed/runtime/engine.py`` keeps only groups with members: of any optimizer in
    0.19.8, of one made by the client in 0.10.3.
    """
    model = run.model()
    freeze_except(model, run.part("block"))
    trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
    run.hyper = Hyper(split=(Group(run.part("block"), lr=1e-3),))
    engine = run.engine(model, parameters=run.hyper.groups(trained, empty=True))
    run.train(engine, intent=run.part("block"))


@case(
    kind="A",
    refs=["axolotl-ai-cloud/axolotl#1747"],
    recipe="nothing trains",
    moment="before the Trainer",
    happens="The engine cannot be created: the Trainer gives its optimizer only what trains, so both its groups are "
    "empty, DeepSpeed drops them, and the list of groups has no first one. Stage 0 fails in backward.",
    instead="look at what is left to train before the Trainer is called: a pattern may match nothing.",
    cure="trainer_freeze_except_before",
    needs=("transformers", "accelerate"),
    variants=[*(Options(stage=stage) for stage in (0, 2, 3)), Options(init="zero_init")],
)
def trainer_with_nothing_to_train(run: Run) -> None:
    """Everything is frozen when the Trainer makes optimizer and engine.

    ``create_optimizer`` in ``transformers/trainer.py`` (5.16.1) takes trainable parameters alone;
    ``deepspeed/runtime/zero/stage3.py`` and ``stage_1_and_2.py`` (0.19.8) read the dtype of
    ``param_groups[0]["params"][0]`` without asking whether there is one.
    """
    train_with_trainer(run, freeze=freeze_all, intent=run.part("block"))


@case(
    kind="A",
    refs=["deepspeedai/DeepSpeed#7869"],
    fixes=[
        Fix(
            "deepspeed",
            "0.18.7",
            "deepspeedai/DeepSpeed#7869",
            because="the engine is made from then on, and on CPU 0.18.7 to 0.18.9 fail in the first step for another "
            "reason (`lower_stages_on_cpu`).",
        )
    ],
    recipe="exclusion freezing, Muon with nothing for it",
    moment="before the engine",
    happens="Trains from DeepSpeed 0.19.0 on. In 0.18.6 stages 1 and 2 cannot create the engine; in 0.18.7 that is "
    "mended, and their first step fails on CPU for another reason.",
    instead="use AdamW, or let a matrix train.",
    cure="freeze_except_before_engine",
    variants=[Options(model="mlp", stage=stage) for stage in (1, 2, 3)],
)
def muon_without_a_matrix(run: Run) -> None:
    """The optimizer is Muon, which takes matrices and leaves the rest to Adam; no matrix trains.

    ``_configure_basic_optimizer`` in ``deepspeed/runtime/engine.py`` sorted parameters into a Muon and an Adam group
    and asked of a group only whether it had members (0.18.6), not whether they train; a group with none that do then
    fails as any wholly frozen one. Stage 3 has Muon by 0.19.3; 0.18.7 refuses it.
    """
    model = run.model()
    freeze_except(model, "*.bias")
    hyper = Hyper()
    block = {
        "lr": hyper.lr,
        "betas": hyper.betas,
        "eps": hyper.eps,
        "weight_decay": hyper.weight_decay,
        "torch_adam": True,
    }
    zero = {"reduce_scatter": False} if run.options.stage == 3 else {}
    engine = run.engine(model, hyper=hyper, optimizer={"type": "Muon", "params": block}, zero_optimization=zero)
    run.train(engine, intent="*.bias")
