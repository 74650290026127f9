"""Kind C: what is unfrozen, or switched, once the engine exists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.cell import Fix, Group, Hyper, Options, case, freeze_all_then_unfreeze, freeze_except, unfreeze
from harness.cell._memory import optimizer_elements
from harness.drivers.trainer import at_step_begin, train_with_trainer

if TYPE_CHECKING:
    from harness.cell._run import Run

_STAGE_3 = [Options(model="mlp"), Options(model="mlp", init="zero_init")]
_STAGES = [*(Options(model="mlp", stage=stage) for stage in (0, 2)), Options(model="mlp", init="zero_init")]

_SGD = Hyper(optimizer="SGD", lr=0.1, weight_decay=0.0)

#: "Clean up prefetched parameters"
_SECOND_ENGINE = Fix("deepspeed", "0.15.3", "deepspeedai/DeepSpeed#6557")

_NEW_ENGINE_WORKS = (
    "create a new engine after unfreezing; at stage 3 that wants DeepSpeed 0.15.3 or newer, and before it a model "
    "built anew from saved weights (`other_part_from_weights`)."
)
_NEW_ENGINE_EACH = (
    "create a new engine for each block; at stage 3 that wants DeepSpeed 0.15.3 or newer, and before it a model built "
    "anew from saved weights (`other_part_from_weights`)."
)


@case(
    kind="CONTROL",
    refs=["Ledzy/BAdam#6", "deepspeedai/DeepSpeed#5639"],
    fixes=[_SECOND_ENGINE],
    recipe="a new engine for each block",
    moment="between two engines",
    happens="Trains: one block, then another, each under an engine of its own, and optimizer memory for one at a time. "
    "Before DeepSpeed 0.15.3, stage 3 fails in the second engine's backward.",
    variants=[
        *(Options(model="mlp", stage=stage) for stage in (0, 1, 2)),
        *_STAGE_3,
        Options(model="mlp", offload="cpu"),
        Options(model="mlp", stage=2, precision="bf16"),
    ],
)
def new_engine_per_block(run: Run) -> None:
    """Block-wise training: train one block, give the engine up, freeze it, train the next.

    ``destroy`` in ``deepspeed/runtime/zero/parameter_offload.py`` leaves a hook of the old engine on the model. What
    that engine has gathered then made ``reset_step`` in ``partitioned_param_coordinator.py`` raise (0.15.0); 0.15.4
    releases it instead.
    """
    model = run.model()
    freeze_except(model, run.part("block"))
    engine = run.engine(model)
    run.train(engine, intent=run.part("block"))
    engine.destroy()
    freeze_all_then_unfreeze(model, run.part("other block"))
    engine = run.engine(model)
    run.train(engine, intent=run.part("other block"))


@case(
    kind="CONTROL",
    refs=["deepspeedai/DeepSpeed#1767"],
    fixes=[_SECOND_ENGINE],
    recipe="a new engine after unfreezing, SGD",
    moment="between two engines",
    happens="Trains: the head alone at first, then the head and a block. SGD has no state that could be lost between. "
    "Before DeepSpeed 0.15.3, stage 3 fails in the second engine's backward.",
    variants=[*_STAGES, Options(model="mlp", stage=1)],
)
def new_engine_after_unfreezing(run: Run) -> None:
    """Gradual unfreezing with a new engine for each stage of it.

    What stands in the way before 0.15.3 is told in ``new_engine_per_block``.
    """
    _unfreeze_more_with_a_new_engine(run, _SGD)


@case(
    kind="C",
    recipe="a new engine after unfreezing, AdamW",
    moment="between two engines",
    happens="All of it trains, but what trained before takes other steps than it would have: the new engine's Adam "
    "starts from nothing, at any stage.",
    instead="keep one engine: what will be unfrozen has a group of its own, is trainable when the engine is made and "
    "frozen by its flag until its turn, and then the step count of its group is set back. Or accept it, as after a "
    "warm restart.",
    cure="freeze_then_thaw_with_steps_set_back",
    variants=[Options(model="mlp", stage=2), *_STAGE_3],
)
def new_engine_forgets(run: Run) -> None:
    """The head trains, then the head and a block; Adam's moments and step count stay behind in the old engine.

    ``_configure_basic_optimizer`` in ``deepspeed/runtime/engine.py`` (0.19.8) makes a new optimizer for each engine.
    """
    _unfreeze_more_with_a_new_engine(run, Hyper())


@case(
    kind="C",
    recipe="a new engine after unfreezing, SGD, in bf16",
    moment="between two engines",
    happens="All of it trains, but what trained before goes on from weights rounded to bf16: the old engine's fp32 "
    "copies go with it.",
    instead="keep one engine, for which all is trainable that will train, and freeze by the flag until its turn.",
    cure="freeze_then_thaw_after_engine_sgd",
    variants=[Options(model="mlp", stage=2, precision="bf16")],
)
def new_engine_rounds(run: Run) -> None:
    """The head trains, then the head and a block, below fp32 and by an optimizer without state.

    The fp32 weights that are stepped are made of the model's own when the engine is
    (``single_partition_of_fp32_groups`` in ``deepspeed/runtime/zero/stage_1_and_2.py``, 0.19.8), and a step smaller
    than bf16 can tell had been kept in them alone.
    """
    _unfreeze_more_with_a_new_engine(run, _SGD)


def _unfreeze_more_with_a_new_engine(run: Run, hyper: Hyper) -> None:
    model = run.model()
    freeze_except(model, run.part("head"))
    engine = run.engine(model, hyper=hyper)
    run.train(engine, intent=run.part("head"))
    engine.destroy()
    unfreeze(model, run.part("block"))
    engine = run.engine(model, hyper=hyper)
    run.train(engine, intent=(*run.part("head"), *run.part("block")))


def _rotate(run: Run, hyper: Hyper) -> None:
    """All is trainable when the engine is made; then one block at a time is left so."""
    model = run.model()
    engine = run.engine(model, hyper=hyper)
    for block in ("block", "other block"):
        freeze_all_then_unfreeze(model, run.part(block))
        run.train(engine, intent=run.part(block), steps=1)


@case(
    kind="C",
    refs=["axolotl-ai-cloud/axolotl#1469"],
    recipe="block rotation by flags, all trainable at first",
    moment="after the engine, AdamW",
    happens="Each block trains when its turn comes, but a later one by steps of a wrong size, and all others go on "
    "moving by decay and momentum. At stage 0 it works.",
    instead=_NEW_ENGINE_EACH,
    cure="new_engine_per_block",
    variants=_STAGES,
)
def rotate_blocks_by_flags(run: Run) -> None:
    """As LISA does it: one block trains at a time, another at each interval.

    ZeRO steps one flat tensor for each group, so Adam counts one number of steps for all blocks in it, and those whose
    flag is off are stepped with zeros: ``independent_gradient_partition_epilogue`` in
    ``deepspeed/runtime/zero/stage3.py``, ``get_flat_partition`` in ``stage_1_and_2.py`` (0.19.8).
    """
    _rotate(run, Hyper())


@case(
    kind="CONTROL",
    refs=["axolotl-ai-cloud/axolotl#1469"],
    recipe="block rotation by flags, all trainable at first",
    moment="after the engine, SGD without decay and momentum",
    happens="Trains without offload, one block after the other, and the rest stays put. Optimizer memory for all is "
    "still held. With the optimizer offloaded, what was frozen moves (`rotate_blocks_by_flags_offloaded`).",
    variants=_STAGES,
)
def rotate_blocks_by_flags_sgd(run: Run) -> None:
    """One block trains at a time, by an optimizer that keeps nothing and moves nothing by itself."""
    _rotate(run, _SGD)


@case(
    kind="C",
    refs=["hiyouga/LlamaFactory#3103"],
    recipe="block rotation by flags, all trainable at first, optimizer offloaded",
    moment="after the engine, SGD without decay and momentum",
    happens="Each block trains when its turn comes, and the one before it goes on by the last gradient that it had, "
    "the same one at every step.",
    instead=_NEW_ENGINE_EACH,
    cure="new_engine_per_block",
    variants=[Options(model="mlp", stage=stage, offload="cpu") for stage in (2, 3)],
)
def rotate_blocks_by_flags_offloaded(run: Run) -> None:
    """LISA with ``offload_optimizer``, by an optimizer with which nothing frozen moves without offload.

    Gradients lie in one buffer on CPU, into which backward writes those of what it reaches and nothing else: see
    ``freeze_after_steps_offloaded`` (``deepspeed/runtime/zero/stage3.py`` and ``stage_1_and_2.py``, 0.19.8).
    """
    _rotate(run, _SGD)


@case(
    kind="C",
    refs=["axolotl-ai-cloud/axolotl#1469", "hiyouga/LlamaFactory#3103"],
    recipe="a Trainer callback rotates blocks, all trainable at first",
    moment="on_step_begin (after the engine)",
    happens="As in a plain loop: a later block trains by steps of a wrong size, and all others go on moving by decay "
    "and momentum. At stage 0 it works.",
    instead=_NEW_ENGINE_EACH,
    cure="new_engine_per_block",
    variants=[*(Options(stage=stage) for stage in (0, 2, 3))],
    needs=("transformers", "accelerate"),
)
def trainer_callback_rotates_blocks(run: Run) -> None:
    """LISA as a Trainer callback: at each step another block is left trainable.

    The engine is there long before ``on_step_begin`` (``transformers/trainer.py``, 5.16.1); the rest is as in a plain
    loop.
    """

    def block(step: int) -> tuple[str, ...]:
        return run.part("other block" if step % 2 else "block")

    train_with_trainer(run, callbacks=[at_step_begin(freeze_all_then_unfreeze, block)], intent=block)


@case(
    kind="C",
    recipe="trainable for the engine, frozen, then thawed, AdamW",
    moment="after the engine",
    happens="The thawed block trains, but its first steps are too small, by a third after two steps: Adam has counted "
    "the steps in which it was frozen. Stage 0 counts for each parameter alone, as plain PyTorch does.",
    instead="give the block a group of its own, and set the step count of that group back when it is thawed; or use an "
    "optimizer that does not count.",
    cure="freeze_then_thaw_with_steps_set_back",
    variants=[*_STAGES, Options(model="mlp", stage=1)],
)
def freeze_then_thaw_after_engine(run: Run) -> None:
    """The way around naive unfreezing: be trainable when the engine is made, frozen for a while, then trained.

    The block lies in the same flat tensor as the head, stepped with zeros
    (``deepspeed/runtime/zero/stage3.py`` and ``stage_1_and_2.py``, 0.19.8), so the correction of Adam's bias is that of
    the head's step count while its moments are new.
    """
    _thaw(run, Hyper(weight_decay=0.0))


@case(
    kind="CONTROL",
    refs=["deepspeedai/DeepSpeed#5341"],
    recipe="trainable for the engine, frozen, then thawed, SGD",
    moment="after the engine",
    happens="Trains without offload: what was trainable when the engine was made can be frozen and thawed by its flag, "
    "so long as it is frozen before its first step.",
    variants=[*_STAGES, Options(model="mlp", stage=2, precision="bf16")],
)
def freeze_then_thaw_after_engine_sgd(run: Run) -> None:
    """A block is trainable when the engine is made, frozen for two steps, then trained; the optimizer counts "
    "nothing."""
    _thaw(run, _SGD)


@case(
    kind="CONTROL",
    refs=["deepspeedai/DeepSpeed#5341"],
    recipe="trainable for the engine, frozen, then thawed, its steps set back, AdamW",
    moment="after the engine",
    happens="Trains as plain PyTorch does: gradual unfreezing under one engine. It takes no weight decay for what is "
    "frozen meanwhile, and optimizer memory for it is held from the start.",
    variants=[*(Options(model="mlp", stage=stage) for stage in (1, 2)), *_STAGE_3[1:]],
)
def freeze_then_thaw_with_steps_set_back(run: Run) -> None:
    """The block is in a group of its own, whose step count is set to 0 when it is thawed.

    Until then its moments are zeros, as if it had never been stepped; the count alone is wrong. The optimizer inside
    has one flat tensor for each group (``deepspeed/runtime/zero/stage3.py`` and ``stage_1_and_2.py``, 0.19.8).
    """
    _thaw(run, Hyper(weight_decay=0.0, split=(Group(run.part("block")),)), set_back=True)


def _thaw(run: Run, hyper: Hyper, *, set_back: bool = False) -> None:
    model = run.model()
    freeze_except(model, (*run.part("head"), *run.part("block")))
    engine = run.engine(model, hyper=hyper)
    freeze_except(model, run.part("head"))
    run.train(engine, intent=run.part("head"))
    unfreeze(model, run.part("block"))
    if set_back:
        for state in engine.optimizer.optimizer.state.values():
            if not state["exp_avg"].any():
                state["step"] *= 0
    run.train(engine, intent=(*run.part("head"), *run.part("block")))


@case(
    kind="C",
    refs=["deepspeedai/DeepSpeed#5341"],
    recipe="all trainable at first, then a block alone; state counted",
    moment="after the engine",
    happens="It trains as meant, but the optimizer holds state for all weights, as before; the case counts it and says "
    "so by an assertion.",
    instead="freeze before the engine is created, or create a new engine for each block.",
    cure="optimizer_state_of_what_trains",
    variants=[Options(model="mlp", stage=2), *_STAGE_3],
)
def optimizer_state_of_all(run: Run) -> None:
    """Switch layers by their flags to save memory, and count what the optimizer keeps.

    Flat tensors are laid out once, with the engine: ``deepspeed/runtime/zero/stage3.py`` and ``stage_1_and_2.py``
    (0.19.8).
    """
    _count_state(run, freeze_first=False)


@case(
    kind="CONTROL",
    refs=["deepspeedai/DeepSpeed#2615"],
    recipe="exclusion freezing; state counted",
    moment="before the engine",
    happens="Trains, and the optimizer holds state for what trains alone.",
    variants=[Options(model="mlp", stage=2), *_STAGE_3],
)
def optimizer_state_of_what_trains(run: Run) -> None:
    """Choose a block before the engine exists, and count what the optimizer keeps."""
    _count_state(run, freeze_first=True)


def _count_state(run: Run, *, freeze_first: bool) -> None:
    model = run.model()
    if freeze_first:
        freeze_except(model, run.part("block"))
    engine = run.engine(model, hyper=Hyper(weight_decay=0.0))
    freeze_except(model, run.part("block"))
    run.train(engine, intent=run.part("block"))
    size = sum(getattr(one, "ds_numel", one.numel()) for one in model.parameters() if one.requires_grad)
    held = optimizer_elements(engine) / size
    assert held == 2, f"{held:.1f} elements of optimizer state for each weight that trains, where AdamW needs 2"


@case(
    kind="C",
    refs=["deepspeedai/DeepSpeed#5639"],
    recipe="freeze part, engine, unfreeze more; read `safe_get_full_grad`",
    moment="across the engine (naive unfreezing)",
    happens="It hands back a gradient where there is none, so all looks well: the local one of each rank, never "
    "reduced, and another on each; the case says so by an assertion.",
    instead="compare weights before and after a step, or the gradient between ranks.",
    cure="full_gradient_of_what_trains",
    variants=[Options(model="mlp", stage=2), *_STAGE_3[:1]],
)
def full_gradient_of_what_was_thawed(run: Run) -> None:
    """Look at a late-unfrozen parameter's gradient by DeepSpeed's own function.

    ``safe_get_full_grad`` in ``deepspeed/utils/tensor_fragment.py`` (0.14.4, 0.19.8) gives ``.grad`` wherever that is
    there; for what ZeRO trains it is not.
    """
    _compare_full_gradients(run, late=True)


@case(
    kind="CONTROL",
    recipe="exclusion freezing; read `safe_get_full_grad`",
    moment="before the engine",
    happens="Trains, and the gradient that it gives is the same on every rank.",
    variants=[Options(model="mlp", stage=2), *_STAGE_3[:1]],
)
def full_gradient_of_what_trains(run: Run) -> None:
    """Look at the gradient of a block, unfrozen before the engine, by DeepSpeed's own function."""
    _compare_full_gradients(run, late=False)


def _compare_full_gradients(run: Run, *, late: bool) -> None:
    import torch.distributed as dist
    from deepspeed.utils import safe_get_full_grad

    model = run.model()
    intent = (*run.part("head"), *run.part("block"))
    freeze_except(model, run.part("head") if late else intent)
    engine = run.engine(model)
    unfreeze(model, run.part("block"))
    run.intend(engine, intent)
    engine.backward(engine(**run.draw()))
    mine = {name: safe_get_full_grad(one) for name, one in model.named_parameters() if one.requires_grad}
    engine.step()
    theirs: list[Any] = [None] * run.world
    dist.all_gather_object(theirs, mine)
    apart = [name for name, grad in mine.items() if any(not grad.equal(one[name]) for one in theirs)]
    assert not apart, f"the full gradient is another on each rank: {', '.join(apart)}"


@case(
    kind="C",
    refs=["deepspeedai/DeepSpeed#1426", "Lightning-AI/pytorch-lightning#8933", "Lightning-AI/pytorch-lightning#9833"],
    recipe="unfreeze, and add a group to the optimizer",
    moment="after the engine",
    happens="An AttributeError: the ZeRO optimizers have no `add_param_group`. At stage 0 the optimizer is torch's "
    "own, and it works.",
    instead=_NEW_ENGINE_WORKS,
    cure="new_engine_after_unfreezing",
    variants=[*_STAGES, Options(model="mlp", stage=1)],
)
def add_group_after_engine(run: Run) -> None:
    """As in plain PyTorch, and as fine-tuning callbacks do it: ``add_param_group`` for what was unfrozen.

    Neither ``deepspeed/runtime/zero/stage3.py`` nor ``stage_1_and_2.py`` defines it (0.14.4, 0.19.8).
    """
    model = run.model()
    freeze_except(model, run.part("head"))
    engine = run.engine(model, parameters=[one for one in model.parameters() if one.requires_grad])
    unfreeze(model, run.part("block"))
    engine.optimizer.add_param_group({"params": [*model.layers[2].parameters()]})
    run.train(engine, intent=(*run.part("head"), *run.part("block")))


@case(
    kind="C",
    recipe="unfreeze, and assign `param_groups` with one more",
    moment="after the engine",
    happens="The next step fails: stage 3 with a partition of no elements beside a whole local gradient, stages 1 and "
    "2 over a number of groups that is not theirs. DeepSpeed 0.14.4 refuses the assignment at stages 1 and 2.",
    instead=_NEW_ENGINE_WORKS,
    cure="new_engine_after_unfreezing",
    variants=[Options(model="mlp", stage=2), *_STAGE_3],
)
def assign_groups_after_engine(run: Run) -> None:
    """DeepSpeed's optimizers let ``param_groups`` be assigned; the new group has what was unfrozen.

    ``_set_param_groups`` in ``deepspeed/runtime/zero/stage3.py`` (0.19.8) looks for what trains now, but makes no
    sub-group, no gradient buffer and no hook for it; torch's optimizer then finds the model's own parameters, of size
    0 by then, in its last group.
    """
    model = run.model()
    freeze_except(model, run.part("head"))
    engine = run.engine(model)
    unfreeze(model, run.part("block"))
    first = engine.optimizer.param_groups[0]
    engine.optimizer.param_groups = [first, {**first, "params": [*model.layers[2].parameters()]}]
    run.train(engine, intent=(*run.part("head"), *run.part("block")))


@case(
    kind="C",
    recipe="freeze part, engine, unfreeze more, in bf16",
    moment="across the engine",
    happens="Silent at stage 0, too, where fp32 trains: below fp32 its optimizer steps fp32 copies, and has made them "
    "only of what trained when the engine was created.",
    instead="unfreeze before the engine is created, at stage 1 or higher.",
    cure="bf16_under_zero",
    variants=[Options(model="mlp", stage=stage, precision="bf16") for stage in (0, 2)],
)
def unfreeze_more_in_bf16(run: Run) -> None:
    """Naive unfreezing where the model's weights are not the ones that are stepped.

    ``FP16_UnfusedOptimizer`` (``deepspeed/runtime/fp16/unfused_optimizer.py``, 0.19.8) puts those parameters of each
    group that train into lists when it is made, clones them in fp32 and hands the clones to torch's optimizer.  Up
    to 0.19.0 it cloned the frozen ones as well.
    """
    model = run.model()
    freeze_except(model, run.part("head"))
    engine = run.engine(model)
    unfreeze(model, run.part("block"))
    run.train(engine, intent=(*run.part("head"), *run.part("block")))


@case(
    kind="C",
    recipe="train one part, engine, switch to another, in bf16",
    moment="across the engine",
    happens="At stage 0 silent: what was unfrozen never moves, and what was frozen in its place shrinks by weight "
    "decay.",
    instead="create a new engine for the new part, at stage 1 or higher.",
    cure="new_engine_per_block",
    variants=[Options(model="mlp", stage=0, precision="bf16")],
)
def switch_part_in_bf16(run: Run) -> None:
    """Below fp32 and without ZeRO, one part's flags go off and another's on once the engine exists.

    The fp32 clones of ``deepspeed/runtime/fp16/unfused_optimizer.py`` (0.19.8) are those of the first part; where one
    has no gradient, a zero one is put in its place, and AdamW decays without any.
    """
    model = run.model()
    freeze_except(model, run.part("head"))
    engine = run.engine(model)
    freeze_all_then_unfreeze(model, run.part("block"))
    run.train(engine, intent=run.part("block"))
