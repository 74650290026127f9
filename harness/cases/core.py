"""The core cases: who sets ``requires_grad``, and when, on one model, one engine, one optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.cell import Hyper, Options, case, freeze_all, freeze_all_then_unfreeze, freeze_except, unfreeze

if TYPE_CHECKING:
    from torch import nn

    from harness.cell._run import Run


@case(
    kind="CONTROL",
    recipe="exclusion freezing",
    moment="before the engine",
    happens="Trains: gradients and weights equal plain PyTorch's, the rest does not change by a bit.",
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
    """Everything is frozen when the engine is created, and unfrozen afterwards."""
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
    instead="unfreeze before the engine is created, or create a new engine after unfreezing.",
    cure="new_engine_after_unfreezing",
)
def unfreeze_more_after_engine(run: Run) -> None:
    """Train the head, and unfreeze a block once the engine exists: naive unfreezing."""
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
    instead="create a new engine for the new part.",
    cure="new_engine_per_block",
)
def switch_part_after_engine(run: Run) -> None:
    """The head trains when the engine is created; then it is frozen and a block unfrozen."""
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
    """All trainable when the engine is created, then frozen; AdamW decays."""
    model = run.model()
    engine = run.engine(model, hyper=Hyper(weight_decay=0.1))
    freeze_except(model, run.part("block"))
    run.train(engine, intent=run.part("block"))


@case(
    kind="D",
    recipe="exclusion freezing",
    moment="after the engine, no weight decay",
    happens="Trains, and the frozen rest stays put: with no decay and no momentum left over, a zero gradient "
    "makes a zero step. Optimizer memory for the frozen rest is still held.",
    instead="freeze before the engine is created.",
    cure="freeze_except_before_engine",
)
def freeze_except_after_engine_no_decay(run: Run) -> None:
    """As with decay, with none."""
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
    """``layers.1.*`` is written for parameters that are called ``model.layers.1.*``."""
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
    """Rank 0 trains one block, every other rank another."""
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
    """``lm_head.*`` is written for a model whose head is tied to its embedding."""
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
    happens="Trains under ZeRO. At stage 0 the first step comes out a quarter short, and what trains decays once too "
    "often: when the engine is made, its bf16 optimizer takes a step of its own on zero gradients, which Adam counts.",
    instead="use stage 1 or higher for bf16.",
    cure="bf16_under_zero",
    variants=[
        Options(model=model, stage=stage, precision="bf16") for model in ("tiny_llama", "mlp") for stage in range(4)
    ],
)
def freeze_except_in_bf16(run: Run) -> None:
    """Exclusion freezing with bf16 weights and fp32 masters.

    The extra step is ``initialize_optimizer_states`` in deepspeed/runtime/fp16/unfused_optimizer.py
    (read at 0.19.8).
    """
    model = run.model()
    freeze_except(model, run.part("block"))
    engine = run.engine(model)
    run.train(engine, intent=run.part("block"))
