"""The core cases: who sets ``requires_grad``, and when, on one model, one engine, one optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.cell import Fix, Hyper, Options, case, freeze_all, freeze_all_then_unfreeze, freeze_except, unfreeze

if TYPE_CHECKING:
    from torch import nn

    from harness.cell._run import Run


@case(
    kind="CONTROL",
    recipe="exclusion freezing",
    moment="before the engine",
    happens="Trains from DeepSpeed 0.13.2 on: gradients and weights equal plain PyTorch's, the rest does not change "
    "by a bit. Before, creating the engine takes a step of its own, which Adam counts; on CPU, some releases cannot "
    "step at all at stages 0 to 2 (`lower_stages_on_cpu`).",
)
def freeze_except_before_engine(run: Run) -> None:
    """Freeze what must not train, then create the engine: the recipe that works."""
    model = run.model()
    freeze_except(model, run.part("block"))
    engine = run.engine(model)
    run.train(engine, intent=run.part("block"))


@case(
    kind="CONTROL",
    recipe="freeze all, unfreeze matches",
    moment="both before the engine",
    happens="Trains, exactly as exclusion freezing does: the report's loop is not what failed.",
)
def literal_loop_before_engine(run: Run) -> None:
    """The report's literal loop, where Axolotl runs it: before the engine exists."""
    model = run.model()
    freeze_all_then_unfreeze(model, run.part("block"))
    engine = run.engine(model)
    run.train(engine, intent=run.part("block"))


@case(
    kind="A",
    refs=["axolotl-ai-cloud/axolotl#1747"],
    recipe="freeze all, engine, unfreeze",
    moment="across the engine",
    happens="The engine cannot be created: no parameter is left to train when DeepSpeed builds its optimizer "
    "(stage 0 steps the model's own parameters, all of them, and trains).",
    instead="set every flag before the engine is created.",
    cure="freeze_except_before_engine",
)
def freeze_all_engine_unfreeze(run: Run) -> None:
    """Everything is frozen when the engine is created, and unfrozen afterwards.

    DeepSpeed takes the frozen parameters out of every group (0.19.8): ``stage_1_and_2.py`` in deepspeed/runtime/zero
    then asks the first parameter of each for its dtype, and there is none; ``defragment`` in
    deepspeed/runtime/zero/utils.py asserts for stage 3 that what it is to lay out has exactly one dtype. Stage 0 hands
    torch's optimizer all parameters, and that asks for a gradient at each step and never for a flag.
    """
    model = run.model()
    freeze_all(model)
    engine = run.engine(model)
    unfreeze(model, run.part("block"))
    run.train(engine, intent=run.part("block"))


@case(
    kind="C",
    refs=["deepspeedai/DeepSpeed#5639", "deepspeedai/DeepSpeed#1767"],
    recipe="freeze part, engine, unfreeze more",
    moment="across the engine (naive unfreezing)",
    happens="Silent: the flag says True, a local gradient exists, and the weight never moves, since DeepSpeed "
    "fixed who trains when it built the engine.",
    instead="unfreeze before the engine is created, or create a new engine after unfreezing. At stage 3 before "
    "DeepSpeed 0.15.3 a second engine of the same model fails in backward: there, build the model anew from saved "
    "weights (`other_part_from_weights`).",
    cure="new_engine_after_unfreezing",
)
def unfreeze_more_after_engine(run: Run) -> None:
    """Train the head, and unfreeze a block once the engine exists: naive unfreezing.

    Who trains is decided once, while the engine is made (0.19.8). What is frozen then is in no flat tensor that the
    optimizer steps (``_get_trainable_parameter_groups`` in deepspeed/runtime/zero/stage3.py, the round-robin over
    ``trainable_parameters`` in stage_1_and_2.py), and has no hook that would reduce its gradient and take it away
    (``create_reduce_and_remove_grad_hooks`` in stage3.py, ``create_gradient_handling_hooks`` in stage_1_and_2.py).
    Autograd looks at the flag, so a local gradient comes to be, and stays where it is.
    """
    model = run.model()
    freeze_except(model, run.part("head"))
    engine = run.engine(model)
    unfreeze(model, run.part("block"))
    run.train(engine, intent=(*run.part("head"), *run.part("block")))


@case(
    kind="C",
    refs=["deepspeedai/DeepSpeed#5639"],
    recipe="train one part, engine, switch to another",
    moment="across the engine",
    happens="Stage 3 is silent: the newly trained part never moves, and the one frozen in its place decays. Stages 1 "
    "and 2 crash in backward, since no parameter that DeepSpeed reduces has a gradient any more.",
    instead="create a new engine for the new part. At stage 3 before DeepSpeed 0.15.3 a second engine of the same "
    "model fails in backward: there, build the model anew from saved weights (`other_part_from_weights`).",
    cure="new_engine_per_block",
)
def switch_part_after_engine(run: Run) -> None:
    """The head trains when the engine is created; then it is frozen and a block unfrozen.

    The block is what naive unfreezing makes of it: in no flat tensor, without a hook. The head is in one, and where its
    flag is off ``independent_gradient_partition_epilogue`` in deepspeed/runtime/zero/stage3.py (0.19.8) puts zeros for
    its gradient, by which AdamW decays it. Stages 1 and 2 make the buffer of a bucket in the first hook of a backward
    (``setup_buckets``) and reduce the bucket at its end (``reduce_ipg_grads``, both in stage_1_and_2.py, 0.19.8): no
    hook, no buffer. Up to 0.17.1 they are as silent as stage 3.
    """
    model = run.model()
    freeze_except(model, run.part("head"))
    engine = run.engine(model)
    freeze_all_then_unfreeze(model, run.part("block"))
    run.train(engine, intent=run.part("block"))


@case(
    kind="D",
    recipe="exclusion freezing",
    moment="after the engine, with weight decay",
    happens="What was asked for trains, but frozen weights shrink: their zero gradients still go through AdamW, "
    "whose decay needs no gradient.",
    instead="freeze before the engine is created.",
    cure="freeze_except_before_engine",
)
def freeze_except_after_engine_decay(run: Run) -> None:
    """All trainable when the engine is created, then frozen; AdamW decays.

    ZeRO steps a flat tensor for each group, with zeros where a flag is off (``independent_gradient_partition_epilogue``
    in deepspeed/runtime/zero/stage3.py, ``get_flat_partition`` in stage_1_and_2.py, 0.19.8). torch's AdamW skips what
    has no gradient and decays what has one, zero or not (torch/optim/adam.py, 2.13.0).
    """
    model = run.model()
    engine = run.engine(model, hyper=Hyper(weight_decay=0.1))
    freeze_except(model, run.part("block"))
    run.train(engine, intent=run.part("block"))


@case(
    kind="CONTROL",
    recipe="exclusion freezing",
    moment="after the engine, no weight decay",
    happens="Trains, and the frozen rest stays put: with no decay and no momentum left over, a zero gradient "
    "makes a zero step. Optimizer memory for the frozen rest is still held, and once a step was taken before freezing, "
    "Adam's momentum moves it (`freeze_after_steps_adamw`).",
)
def freeze_except_after_engine_no_decay(run: Run) -> None:
    """All trainable when the engine is created, then frozen; AdamW without decay."""
    model = run.model()
    engine = run.engine(model, hyper=Hyper(weight_decay=0.0))
    freeze_except(model, run.part("block"))
    run.train(engine, intent=run.part("block"))


@case(
    kind="Q",
    refs=["axolotl-ai-cloud/axolotl#1747"],
    recipe="a pattern that matches nothing",
    moment="before the engine",
    happens="Everything is frozen, and engine creation fails deep inside DeepSpeed with a message that names no "
    "pattern (stage 0 fails in backward).",
    instead="write the full name, from the first letter: `model.layers.1.` where `layers.1.` was written.",
    cure="freeze_except_before_engine",
    models=("tiny_llama",),
)
def pattern_matches_nothing(run: Run) -> None:
    """``layers.1.*`` is written for parameters that are called ``model.layers.1.*``.

    A name is the whole path of modules from the outermost model on (``_named_members`` in torch/nn/modules/module.py,
    2.13.0), and ``fnmatch`` and ``re.match`` start at its first letter. Nothing is unfrozen then, which is
    ``freeze_all_engine_unfreeze``: no flat tensor for stages 1 and 2 (``stage_1_and_2.py`` in deepspeed/runtime/zero,
    0.19.8), no dtype for ``defragment`` at stage 3.
    """
    model = run.model()
    freeze_all_then_unfreeze(model, "layers.1.*")
    engine = run.engine(model)
    run.train(engine, intent="model.layers.1.*")


@case(
    kind="L",
    recipe="a choice that differs between ranks",
    moment="before the engine",
    happens="Stage 3 hangs in backward; stages 1 and 2 go on and copy one rank's weights over another parameter's; "
    "at stage 0 the ranks' weights drift apart.",
    instead="choose on rank 0 and broadcast the choice, before the engine is created.",
    cure="freeze_by_broadcast_choice",
    deadline=3.0,
)
def freeze_by_rank(run: Run) -> None:
    """Rank 0 trains one block, every other rank another.

    A reduction and a gather carry no name: the ranks' n-th ones are joined whatever they are of. Stage 3 hooks other
    parameters on each rank (``create_reduce_and_remove_grad_hooks`` in deepspeed/runtime/zero/stage3.py, 0.19.8), so
    one rank reduces in backward while another gathers. Stages 1 and 2 lay what trains into flat tensors, of one size
    here, and after a step each rank takes the others' halves for those of its own block
    (``all_gather_into_tensor_dp_groups`` in deepspeed/runtime/utils.py, 0.19.8).
    """
    model = run.model()
    freeze_except(model, run.part("block" if run.rank == 0 else "other block"))
    engine = run.engine(model)
    run.train(engine, intent=run.part("block"))


@case(
    kind="Q",
    recipe="a pattern for the tied head only",
    moment="before the engine",
    happens="Everything is frozen: a tied head is the embedding and has no name of its own, so a pattern for "
    "`lm_head` matches nothing.",
    instead="name the embedding, `model.embed_tokens.`.",
    cure="tied_head_by_its_embedding",
    models=("tied_llama",),
)
def tied_head_by_its_own_name(run: Run) -> None:
    """``lm_head.*`` is written for a model whose head is tied to its embedding.

    ``named_parameters`` gives a parameter once, under the first name at which it is met (``remove_duplicate`` of
    ``_named_members`` in torch/nn/modules/module.py, 2.13.0), and the embedding comes before the head. What then fails
    is told in ``freeze_all_engine_unfreeze``.
    """
    model = run.model()
    freeze_all_then_unfreeze(model, run.part("head"))
    engine = run.engine(model)
    run.train(engine, intent=run.part("embedding"))


@case(
    kind="CONTROL",
    recipe="the embedding of a tied head",
    moment="before the engine",
    happens="Trains, head and embedding as the one parameter they are.",
    models=("tied_llama",),
)
def tied_head_by_its_embedding(run: Run) -> None:
    """The tied weight under the name that it has."""
    model = run.model()
    freeze_except(model, run.part("embedding"))
    engine = run.engine(model)
    run.train(engine, intent=run.part("embedding"))


@case(
    kind="CONTROL",
    refs=["deepspeedai/DeepSpeed#6987"],
    recipe="every shape prints torch.Size([0])",
    moment="before a gather",
    happens="No fault: a partitioned parameter looks empty until it is gathered, frozen or not, and trains all "
    "the same. Those under the persistence threshold stay whole from the first forward on.",
    instead="read `ds_shape`, or gather before printing.",
)
def size_zero_before_gather(run: Run) -> None:
    """What the report's author saw, beside the gradients that nobody looked at."""
    stage_3 = run.options.stage == 3
    model = run.model()
    freeze_except(model, run.part("block"))
    _expect_empty(run, model, "before the engine", all_of_them=stage_3 and run.options.init == "zero_init")
    engine = run.engine(model)
    _expect_empty(run, model, "after the engine is made", all_of_them=stage_3)
    run.train(engine, intent=run.part("block"))
    _expect_empty(run, model, "after training", all_of_them=stage_3 and run.options.persistence == "zero")


def _expect_empty(run: Run, model: nn.Module, when: str, *, all_of_them: bool) -> None:
    """All parameters print ``torch.Size([0])`` at this moment, or none does."""
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    empty = [name for name, shape in shapes.items() if shape == (0,)]
    run.note(f"{len(empty)} of {len(shapes)} parameters print torch.Size([0]) {when}")
    assert len(empty) == (len(shapes) if all_of_them else 0), f"print torch.Size([0]) {when}: {empty}"


@case(
    kind="P",
    recipe="exclusion freezing, in bf16",
    moment="before the engine",
    happens="Trains at stages 1 to 3. At stage 0 the first step comes out a quarter short, and what trains decays "
    "once too often: when the engine is made, its bf16 optimizer takes a step of its own on zero gradients, which "
    "Adam counts.",
    fixes=[
        Fix(
            "deepspeed",
            "0.18.6",
            "deepspeedai/DeepSpeed#7839",
            because="gradients are right from then on; the step too many is left.",
        )
    ],
    instead="use stage 1 or higher for bf16.",
    cure="bf16_under_zero",
    variants=[
        Options(model=model, stage=stage, precision="bf16") for model in ("tiny_llama", "mlp") for stage in range(4)
    ],
)
def freeze_except_in_bf16(run: Run) -> None:
    """Exclusion freezing with bf16 weights and fp32 masters.

    The extra step is ``initialize_optimizer_states`` in deepspeed/runtime/fp16/unfused_optimizer.py
    (read at 0.19.8). From 0.17.6 to 0.18.5 gradients are wrong, too: they are divided by a loss scale that the loss was
    never multiplied by, and never set to zero.
    """
    model = run.model()
    freeze_except(model, run.part("block"))
    engine = run.engine(model)
    run.train(engine, intent=run.part("block"))
