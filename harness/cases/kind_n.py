"""Kind N: several models, of which one is frozen: teachers, references, rewards, averages."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from harness.cell import Options, case, freeze_all, freeze_except
from harness.cell.models import mlp

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from harness.cell._run import Run
    from harness.cell.models import Batch

_STAGE_3 = [Options(model="mlp"), Options(model="mlp", init="zero_init")]
_ANY = [Options(model="mlp", stage=2), *_STAGE_3]


def _taught_by(run: Run, teacher: Any) -> Callable[[torch.Generator], Batch]:
    """Draws a batch whose targets depend on what the teacher says, which must be what a whole one would."""
    whole = run.bystander(mlp, under="plain")

    def draw(generator: torch.Generator) -> Batch:
        import torch

        batch = mlp.batch(generator)
        with torch.no_grad():
            said, meant = teacher(**batch), whole(**batch)
        assert torch.allclose(said, meant), f"the frozen model gives {float(said)}, and should give {float(meant)}"
        return {**batch, "targets": batch["targets"] * said}

    return draw


def _train_student(run: Run, teacher: Any, model: Any = None) -> None:
    model = run.model() if model is None else model
    freeze_except(model, run.part("block"))
    engine = run.engine(model)
    run.train(engine, intent=run.part("block"), batch=_taught_by(run, teacher))


def _engine_of(teacher: Any, config: dict[str, Any]) -> Any:
    import deepspeed

    engine, *_ = deepspeed.initialize(model=teacher, config=config)
    return engine


@case(
    kind="N",
    refs=[
        "huggingface/trl#669",
        "huggingface/diffusers#1865",
        "huggingface/accelerate#1305",
    ],
    recipe="a frozen model beside the one that trains, without an engine",
    moment="in forward",
    happens="Built under `zero.Init`, it raises on weights of one dimension (`weight must be 2-D` on an embedding): "
    "nobody gathers what has no engine. Built whole, it works.",
    instead="build what has no engine outside `zero.Init`, or give it an engine without an optimizer.",
    cure="teacher_built_whole",
    variants=_STAGE_3,
)
def teacher_without_engine(run: Run) -> None:
    """A frozen teacher, built as the student is, says what the student's targets are.

    ``zero.Init`` partitions each parameter where it is made (``_post_init_method`` in
    runtime/zero/partition_parameters.py, 0.19.8); the hooks that gather come with an engine.
    """
    teacher = run.bystander(mlp)
    freeze_all(teacher)
    _train_student(run, teacher)


@case(
    kind="CONTROL",
    refs=["huggingface/diffusers#1865"],
    recipe="a frozen model beside the one that trains, built outside zero.Init",
    moment="in forward",
    happens="Trains: what is whole needs no engine.",
    variants=[*(Options(model="mlp", stage=stage) for stage in (1, 2)), *_STAGE_3[1:]],
)
def teacher_built_whole(run: Run) -> None:
    """A frozen teacher, built whole whatever the student is, has no engine."""
    teacher = run.bystander(mlp, under="plain")
    freeze_all(teacher)
    _train_student(run, teacher)


@case(
    kind="CONTROL",
    refs=["huggingface/trl#687", "huggingface/trl#3202"],
    recipe="a frozen model beside the one that trains, in an engine without an optimizer",
    moment="in forward",
    happens="Trains: a stage-3 engine without an optimizer gathers and releases, and does nothing else.",
    variants=_STAGE_3,
)
def teacher_in_eval_engine(run: Run) -> None:
    """The teacher has a second engine, whose JSON names no optimizer."""
    config = run.config()
    del config["optimizer"]
    teacher = run.bystander(mlp)
    freeze_all(teacher)
    _train_student(run, _engine_of(teacher, config))


@case(
    kind="N",
    refs=["huggingface/trl#3202"],
    recipe="a frozen model in an engine of its own, its optimizer left out",
    moment="as its engine is made",
    happens="Stages 1 and 2 raise: they partition an optimizer's state, and want one.",
    instead="call the frozen model without an engine: below stage 3 it is whole.",
    cure="teacher_built_whole",
    variants=[Options(model="mlp", stage=stage) for stage in (1, 2)],
)
def teacher_in_eval_engine_below_stage_3(run: Run) -> None:
    """The teacher has a second engine without an optimizer, at the stages that have nothing to do for a frozen model.

    ``_configure_zero_optimizer`` in runtime/engine.py (0.19.8) asserts that stages 1 and 2 have an optimizer; at stage
    3 it makes a ``DeepSpeedZeRoOffload`` instead, which gathers and needs none.
    """
    config = run.config()
    del config["optimizer"]
    teacher = run.bystander(mlp)
    freeze_all(teacher)
    _train_student(run, _engine_of(teacher, config))


@case(
    kind="N",
    refs=["huggingface/trl#3202"],
    recipe="a frozen model in an engine of its own, with the JSON of the one that trains",
    moment="as its engine is made",
    happens="Engine creation fails deep inside DeepSpeed, as for any model of which nothing trains.",
    instead="call the frozen model without an engine if it is built whole; at stage 3 one without an optimizer in its "
    "JSON is as good (`teacher_in_eval_engine`), which stages 1 and 2 refuse.",
    cure="teacher_built_whole",
    variants=_ANY,
)
def teacher_in_training_engine(run: Run) -> None:
    """One JSON is used for both, so DeepSpeed makes an optimizer for a model that has nothing to optimize.

    Frozen parameters are sorted out of every group. Stages 1 and 2 then take the dtype of a group's first one
    (runtime/zero/stage_1_and_2.py, 0.19.8), and ``defragment`` in runtime/zero/utils.py (0.19.8) asserts for stage 3
    that its list has exactly one dtype, and an empty list has none.
    """
    import deepspeed

    teacher = run.bystander(mlp)
    freeze_all(teacher)
    engine, *_ = deepspeed.initialize(model=teacher, model_parameters=list(teacher.parameters()), config=run.config())
    _train_student(run, engine)


@case(
    kind="N",
    refs=["huggingface/trl#6831"],
    recipe="the frozen model is a deep copy",
    moment="before the engine",
    happens="A copy of a partitioned model is empty for good: its weights have no elements and have forgotten where "
    "the rest is. It raises at its first forward; so it does in an engine of its own.",
    instead="copy inside `GatheredParameters`, or build a second model and load the weights.",
    cure="teacher_is_gathered_copy",
    variants=_STAGE_3,
)
def teacher_is_deepcopy(run: Run) -> None:
    """The reference is a deep copy of the model that trains, as most code makes it.

    torch copies a parameter's data and flag and none of the attributes that ZeRO-3 hung on it
    (``Parameter.__deepcopy__`` in torch/nn/parameter.py, 2.13.0).
    """
    model = run.model()
    teacher = copy.deepcopy(model)
    freeze_all(teacher)
    _train_student(run, teacher, model)


@case(
    kind="N",
    refs=["huggingface/trl#6831"],
    recipe="the frozen model is a deep copy, in an engine of its own",
    moment="before the engine",
    happens="Under `zero.Init` the second engine is made without a word, of a model of 0 elements, and raises at its "
    "first forward.",
    instead="copy inside `GatheredParameters`, or build a second model and load the weights.",
    cure="teacher_is_gathered_copy",
    variants=_STAGE_3,
)
def deepcopied_teacher_in_eval_engine(run: Run) -> None:
    """The reference is a deep copy, which is given an engine without an optimizer.

    The engine takes the copy's empty weights for whole ones and partitions them
    (``_convert_to_zero_parameters`` in runtime/zero/parameter_offload.py, 0.19.8).
    """
    config = run.config()
    del config["optimizer"]
    model = run.model()
    teacher = copy.deepcopy(model)
    freeze_all(teacher)
    _train_student(run, _engine_of(teacher, config), model)


@case(
    kind="N",
    recipe="an average starts as a deep copy of the engine's module",
    moment="after the engine",
    happens="Stage 3 raises, with DeepSpeed 0.14.4 as the copy is made and with 0.16.9 and newer at its first "
    "forward: it has DeepSpeed's hooks, and parameters without what they need. Lower stages work.",
    instead="build a second model, and load the engine's gathered state dict into it.",
    cure="teacher_filled_from_engine",
    variants=_ANY,
)
def teacher_is_deepcopy_of_engine(run: Run) -> None:
    """A moving average of the weights, or a teacher that is frozen mid-way, starts as ``deepcopy(engine.module)``.

    A copied module keeps the hooks of the old engine, and copied parameters have none of ZeRO-3's attributes
    (``Parameter.__deepcopy__`` in torch/nn/parameter.py, 2.13.0), so ``fetch_sub_module`` in
    runtime/zero/partitioned_param_coordinator.py (0.19.8) asks for a status that is not there. ``ZeROOrderedDict`` in
    runtime/zero/parameter_offload.py could not be copied at all in 0.14.4, where it has no ``__reduce__``.
    """
    model = run.model()
    freeze_except(model, run.part("block"))
    engine = run.engine(model)
    teacher = copy.deepcopy(engine.module)
    freeze_all(teacher)
    run.train(engine, intent=run.part("block"), batch=_taught_by(run, teacher))


@case(
    kind="CONTROL",
    recipe="an average starts as a second model, filled from the engine's while gathered",
    moment="after the engine",
    happens="Trains: the second model is whole, and starts from what the engine has at the moment.",
    variants=[Options(model="mlp", stage=2), _STAGE_3[1]],
)
def teacher_filled_from_engine(run: Run) -> None:
    """A second model is built, whole, and takes the state dict that the engine's module has inside a gather."""
    import deepspeed

    model = run.model()
    freeze_except(model, run.part("block"))
    engine = run.engine(model)
    teacher = run.bystander(mlp, under="plain")
    for one in teacher.parameters():  # it starts as the student did, and would pass unfilled
        one.data.zero_()
    with deepspeed.zero.GatheredParameters([*engine.module.parameters()]):
        teacher.load_state_dict(engine.module.state_dict())
    freeze_all(teacher)
    run.train(engine, intent=run.part("block"), batch=_taught_by(run, teacher))


@case(
    kind="CONTROL",
    refs=["huggingface/trl#6831"],
    recipe="the frozen model is a copy made while gathered",
    moment="before the engine",
    happens="Trains: the copy is whole, on every rank.",
    variants=_ANY,
)
def teacher_is_gathered_copy(run: Run) -> None:
    """The reference is a deep copy that was made inside ``GatheredParameters``."""
    import deepspeed

    model = run.model()
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        teacher = copy.deepcopy(model)
    freeze_all(teacher)
    _train_student(run, teacher, model)


@case(
    kind="CONTROL",
    refs=["huggingface/accelerate#1305"],
    recipe="the frozen model is a part of the one that trains",
    moment="before the engine",
    happens="Trains: one engine for both gathers both, and the teacher stays put.",
    variants=_ANY,
)
def teacher_inside_student(run: Run) -> None:
    """One module holds student and teacher, and its call runs both."""
    from harness.cell.zoo._distilled import Distilled

    model = run.model(wrap=Distilled)
    freeze_except(model, "student.layers.2.*")
    engine = run.engine(model)
    run.train(engine, intent="student.layers.2.*")


@case(
    kind="CONTROL",
    recipe="two models that both train, each in an engine",
    moment="steps interleaved",
    happens="Trains: engines do not disturb each other.",
    variants=_ANY,
)
def two_engines_interleaved(run: Run) -> None:
    """Both forwards, both backwards, both steps; the other model is trained whole."""
    import deepspeed

    beside = run.bystander(mlp)
    other, *_ = deepspeed.initialize(model=beside, model_parameters=list(beside.parameters()), config=run.config())
    model = run.model()
    freeze_except(model, run.part("block"))
    engine = run.engine(model)
    run.intend(engine, run.part("block"))
    for _ in range(2):
        batch = run.draw()
        loss, other_loss = engine(**batch), other(**batch)
        engine.backward(loss)
        other.backward(other_loss)
        engine.step()
        other.step()
