"""Engine variants: settings and kinds of parameter that take another path through DeepSpeed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.cell import Fix, Hyper, Options, case, freeze_except

if TYPE_CHECKING:
    from harness.cell._run import Run


def _mlp(stage: int, **more: Any) -> Options:
    return Options(model="mlp", stage=stage, **more)


@case(
    kind="P",
    recipe="`backward(loss, scale_wrt_gas=False)`, two micro-batches",
    moment="in the loop",
    happens="Stage 0 is silent from DeepSpeed 0.19.6 on: gradients are divided by the number of micro-batches all the "
    "same, and steps are too small by that. Stages 1 to 3 train.",
    instead="hand backward another tensor than the model gave, such as the loss already divided.",
    cure="divided_loss_unscaled",
    variants=[_mlp(0, accumulation=2), _mlp(1, accumulation=2), _mlp(3, accumulation=2)],
)
def own_loss_unscaled(run: Run) -> None:
    """The loop tells DeepSpeed not to divide by the number of micro-batches.

    transformers' Trainer does so, too, and trains (5.16.1): it hands on a loss that it has scaled itself.

    The model's output carries a hook that divides what comes through it in a plain ``loss.backward()``
    (``_backward_prologue_per_tensor`` in deepspeed/runtime/engine.py, read in 0.19.8) and is to keep out of
    ``engine.backward``.  By what it recognizes that is another hook, put on the loss by ``engine.backward``; where the
    loss is still the very output, as at stage 0 with nothing to scale, that other hook comes second.  Up to 0.19.5 the
    first one asked for ``scale_wrt_gas`` itself.
    """
    _unscaled(run, divide_by=1)


@case(
    kind="CONTROL",
    recipe="`backward(loss / 2, scale_wrt_gas=False)`, two micro-batches",
    moment="in the loop",
    happens="Trains: what is handed to backward is no longer the model's output.",
    variants=[_mlp(0, accumulation=2), _mlp(3, accumulation=2)],
)
def divided_loss_unscaled(run: Run) -> None:
    """The loop divides by the number of micro-batches itself, and tells DeepSpeed not to."""
    _unscaled(run, divide_by=2)


def _unscaled(run: Run, *, divide_by: int) -> None:
    model = run.model()
    freeze_except(model, run.part("block"))
    engine = run.engine(model, rescales=True)
    run.intend(engine, run.part("block"))
    for _ in range(4):
        loss = engine(**{key: one.to(run.device) for key, one in run.draw().items()})
        engine.backward(loss if divide_by == 1 else loss / divide_by, scale_wrt_gas=False)
        engine.step()


@case(
    kind="P",
    refs=["deepspeedai/DeepSpeed#8029"],
    fixes=[
        Fix(
            "deepspeed",
            "0.19.2",
            "deepspeedai/DeepSpeed#8029",
            because="0.19.1 as it was published has the change already, though upstream's history has it behind that "
            "tag.",
        )
    ],
    recipe="bf16 at stage 0, the optimizer given frozen parameters as well",
    moment="before the engine",
    happens="Before DeepSpeed 0.19.1 an fp32 copy of every frozen weight is held for nothing; with a large base and "
    "small adapters that is all the memory there is.",
    instead="give the optimizer the trainable parameters only.",
    cure="bf16_without_frozen_copies",
    variants=[_mlp(0, precision="bf16")],
)
def bf16_with_frozen_copies(run: Run) -> None:
    """One block trains, and the fp32 weights that the optimizer holds are counted.

    ``FP16_UnfusedOptimizer`` copied whatever was in a group (deepspeed/runtime/fp16/unfused_optimizer.py, read in
    0.18.9 and 0.19.1).  The report names 0.19.1 as faulty; its fix is in that release.
    """
    model = run.model()
    freeze_except(model, run.part("block"))
    _train_without_copies(run, model, parameters=None)


@case(
    kind="CONTROL",
    recipe="bf16 at stage 0, the optimizer given what trains",
    moment="before the engine",
    fixes=[Fix("deepspeed", "0.18.6", "deepspeedai/DeepSpeed#7839")],
    happens="Trains, and only what trains has an fp32 copy. bf16 at stage 0 is wrong in itself on DeepSpeed 0.17.6 to "
    "0.18.5 (`freeze_except_in_bf16`), and on torch 2.2.2 DeepSpeed 0.13.1 to 0.17.0 raises at its first step: a view "
    "was modified in place.",
    variants=[_mlp(0, precision="bf16")],
)
def bf16_without_frozen_copies(run: Run) -> None:
    """One block trains, and frozen parameters are left out of what ``deepspeed.initialize`` gets."""
    model = run.model()
    freeze_except(model, run.part("block"))
    _train_without_copies(run, model, parameters=[one for one in model.parameters() if one.requires_grad])


def _train_without_copies(run: Run, model: Any, *, parameters: Any) -> None:
    # Plain SGD: the step that this optimizer takes on its own while it is made changes nothing then.
    engine = run.engine(model, hyper=Hyper(optimizer="SGD", weight_decay=0.0), parameters=parameters)
    held = sum(one.numel() for group in getattr(engine.optimizer, "fp32_groups", ()) for one in group)
    trained = sum(one.numel() for one in model.parameters() if one.requires_grad)
    run.train(engine, intent=run.part("block"))
    assert held <= trained, f"{held} fp32 weights are held for {trained} that train"


@case(
    kind="P",
    refs=["deepspeedai/DeepSpeed#8279", "deepspeedai/DeepSpeed#8280", "deepspeedai/DeepSpeed#7789"],
    fixes=[Fix("deepspeed", "0.19.6", "deepspeedai/DeepSpeed#8280")],
    recipe="trainable parameters without elements, the last of the model",
    moment="before the engine",
    happens="Stage 3 raises an AssertionError in the first forward: a parameter is not available. Stages 1 and 2 raise "
    "KeyError in backward before DeepSpeed 0.19.6, and train from then on.",
    instead="leave such modules out, or give them a row.",
    cure="tail_of_one_row",
    variants=[_mlp(3), _mlp(2), _mlp(2, offload="cpu"), _mlp(1), _mlp(0)],
)
def tail_of_no_rows(run: Run) -> None:
    """The head trains, and behind it a layer of no rows, as pruning or a rank of 0 leaves one.

    ``fetch_sub_module`` in deepspeed/runtime/zero/partitioned_param_coordinator.py (read in 0.19.8) gathers what a
    module needs only if that has any element, and then asserts that all of it has been gathered.  ZeRO-1/2 put such a
    parameter into a bucket though no rank's partition holds it, until #8280 passed over it.
    """
    _train_head_and_tail(run, rows=0)


@case(
    kind="CONTROL",
    recipe="a trainable layer of one row, the last of the model",
    moment="before the engine",
    happens="Trains.",
    variants=[_mlp(3), _mlp(2), _mlp(1)],
)
def tail_of_one_row(run: Run) -> None:
    """The head trains, and behind it a layer of one row: 8 elements and a bias of one, of which a rank has none."""
    _train_head_and_tail(run, rows=1)


def _train_head_and_tail(run: Run, *, rows: int) -> None:
    from harness.cell.zoo._odd import with_tail

    model = run.model(wrap=lambda one: with_tail(one, rows))
    freeze_except(model, "head.*")
    run.train(run.engine(model), intent="head.*")


@case(
    kind="P",
    recipe="a trainable module that forward never calls, with weight decay",
    moment="before the engine",
    happens="Silent: at every stage its weights decay, though they never have a gradient; plain PyTorch leaves them "
    "alone.",
    instead="freeze what forward does not use, or give it no weight decay.",
    cure="unused_without_decay",
    variants=[_mlp(3), _mlp(2), _mlp(2, offload="cpu"), _mlp(0)],
)
def unused_with_decay(run: Run) -> None:
    """A spare layer is trainable and not used; AdamW decays.

    torch's AdamW passes over a parameter without a gradient.  DeepSpeed gives it zeros, at stage 0 to have something
    to all-reduce (``_get_gradients_for_reduction`` in deepspeed/runtime/engine.py, read in 0.19.8), at the others
    because an optimizer steps a flat partition; and zeros decay.
    """
    _spare_and_head(run, Hyper(weight_decay=0.1))


@case(
    kind="CONTROL",
    refs=[
        "deepspeedai/DeepSpeed#707",
        "deepspeedai/DeepSpeed#861",
        "deepspeedai/DeepSpeed#945",
        "deepspeedai/DeepSpeed#1039",
        "deepspeedai/DeepSpeed#1060",
    ],
    recipe="a trainable module that forward never calls, no weight decay",
    moment="before the engine",
    happens="Trains, with offload and accumulation, too: the KeyError and assertions of DeepSpeed before 0.4 are gone. "
    "DeepSpeed 0.17.6 to 0.18.1 computes a wrong gradient at stage 2 with two micro-batches; why was not read.",
    variants=[_mlp(3), _mlp(2, offload="cpu"), _mlp(2, accumulation=2), _mlp(1, offload="cpu"), _mlp(0)],
)
def unused_without_decay(run: Run) -> None:
    """A spare layer is trainable and not used; AdamW does not decay."""
    _spare_and_head(run, Hyper(weight_decay=0.0))


def _spare_and_head(run: Run, hyper: Hyper) -> None:
    trained = ("spare.*", *run.part("head"))
    model = run.model(wrap=_with_spare)
    freeze_except(model, trained)
    run.train(run.engine(model, hyper=hyper), intent=trained)


def _with_spare(model: Any) -> Any:
    from torch import nn

    model.spare = nn.Linear(32, 32)
    return model


@case(
    kind="P",
    refs=["deepspeedai/DeepSpeed#8158"],
    fixes=[Fix("deepspeed", "0.19.4", "deepspeedai/DeepSpeed#8158")],
    recipe="`stage3_use_all_reduce_for_fetch_params`, sizes that ranks do not divide",
    moment="before the engine",
    happens="Before DeepSpeed 0.19.4, weights come out of a fetch wrong, by whatever the memory held before: frozen "
    "ones, too, as the model sees them.",
    instead="leave the setting off, which is the default.",
    cure="odd_sizes_gathered",
    variants=[_mlp(3)],
)
def odd_sizes_all_reduced(run: Run) -> None:
    """Parameters of 33 and 7 elements on two ranks, fetched in one all-reduce.

    A share is padded to the same length on every rank, and nothing is written to the padding.  In the all-reduce
    branch of ``_all_gather_coalesced`` (deepspeed/runtime/zero/partition_parameters.py, read in 0.19.2) the next
    parameter starts where the last one ends without its padding, and what is there is added to it.  So that this is
    seen however lucky the memory, torch is told to fill new memory with NaN.
    """
    import torch

    torch.use_deterministic_algorithms(True)
    _train_odd_sizes(run, stage3_use_all_reduce_for_fetch_params=True)


@case(
    kind="CONTROL",
    recipe="sizes that ranks do not divide",
    moment="before the engine",
    happens="Trains: padding is never read.",
    variants=[_mlp(3), _mlp(2)],
)
def odd_sizes_gathered(run: Run) -> None:
    """Parameters of 33 and 7 elements on two ranks, by all-gathers, and with ZeRO-2's flat partitions."""
    import torch

    torch.use_deterministic_algorithms(True)
    _train_odd_sizes(run)


def _train_odd_sizes(run: Run, **zero: Any) -> None:
    from harness.cell.zoo._odd import with_odd_sizes

    trained = (*run.part("block"), "head.s*")
    model = run.model(wrap=with_odd_sizes)
    freeze_except(model, trained)
    run.train(run.engine(model, zero_optimization=zero), intent=trained)


@case(
    kind="P",
    refs=["deepspeedai/DeepSpeed#7948"],
    fixes=[Fix("deepspeed", "0.19.0", "deepspeedai/DeepSpeed#7948")],
    recipe="any recipe at stages 1 and 2, on CPU",
    moment="before the engine",
    happens="DeepSpeed 0.12.4 to 0.12.6 and 0.18.7 to 0.18.9 raise at the first step on CPU: a view was modified in "
    "place. Other releases train.",
    instead="use another release, or stage 3; GPUs were not measured.",
    cure="freeze_except_before_engine",
    variants=[_mlp(2), _mlp(1)],
)
def lower_stages_on_cpu(run: Run) -> None:
    """Exclusion freezing, as in the core cases; here for the releases whose CPU runs cannot step.

    Since 0.12.4 the step gathers right into the flat buffer (``all_gather_into_tensor_dp_groups`` in
    deepspeed/runtime/utils.py). There, and again in 0.18.7, that buffer is made of the parameters themselves and is
    part of a graph, in which views must not be written to. In 0.13.2 it is made of ``param.data.cpu()``, and 0.19.0
    detaches it (deepspeed/runtime/zero/stage_1_and_2.py, read in these four).
    """
    model = run.model()
    freeze_except(model, run.part("block"))
    run.train(run.engine(model), intent=run.part("block"))


@case(
    kind="P",
    recipe="exclusion freezing, in fp16",
    moment="before the engine",
    happens="Raises on CPU while the engine is made: `Type fp16 is not supported on your device`. So nothing here says "
    "what fp16 does on a GPU.",
    instead="use bf16 on CPU.",
    cure="bf16_under_zero",
    variants=[_mlp(2)],
)
def freeze_except_in_fp16(run: Run) -> None:
    """Exclusion freezing with the JSON's ``fp16`` block.

    ``_do_sanity_check`` in deepspeed/runtime/engine.py (0.19.8) asks the accelerator, and that of CPUs
    (accelerator/cpu_accelerator.py, 0.19.8) answers by what the processor has for fp16.
    """
    model = run.model()
    freeze_except(model, run.part("block"))
    run.train(run.engine(model, fp16={"enabled": True}), intent=run.part("block"))


@case(
    kind="CONTROL",
    recipe="exclusion freezing, `engine.compile`",
    moment="before the engine",
    happens="Trains.",
    variants=[_mlp(2), _mlp(3)],
    deadline=120.0,
)
def engine_compiled(run: Run) -> None:
    """The engine is compiled with torch's eager backend, which needs no compiler."""
    model = run.model()
    freeze_except(model, run.part("block"))
    engine = run.engine(model)
    engine.compile(backend="eager")
    run.train(engine, intent=run.part("block"))


@case(
    kind="CONTROL",
    recipe="exclusion freezing, in bf16 under ZeRO",
    moment="before the engine",
    happens="Trains at stages 1 to 3, whose optimizers take no step of their own when the engine is made.",
    variants=[Options(model="mlp", stage=stage, precision="bf16") for stage in (1, 2, 3)],
)
def bf16_under_zero(run: Run) -> None:
    """What to do instead of bf16 at stage 0."""
    model = run.model()
    freeze_except(model, run.part("block"))
    run.train(run.engine(model), intent=run.part("block"))


@case(
    kind="P",
    refs=["deepspeedai/DeepSpeed#7435", "deepspeedai/DeepSpeed#7449", "Tele-AI/Telechat#42"],
    fixes=[Fix("deepspeed", "0.17.4", "deepspeedai/DeepSpeed#7449")],
    recipe="biases alone train",
    moment="after zero.Init",
    happens="On DeepSpeed 0.11.2 to 0.17.3 a model made under zero.Init raises UnboundLocalError (`dim`) in backward: "
    "nobody thought of a linear layer whose bias trains and whose weight does not. 0.10.3 and later releases train.",
    instead="make the model outside zero.Init, or use a later release.",
    cure="biases_alone_made_whole",
    variants=[_mlp(3, init="zero_init"), _mlp(3, init="zero_init", checkpointing="non_reentrant"), _mlp(2)],
)
def biases_alone(run: Run) -> None:
    """Everything is frozen but the biases, as ``bias="lora_only"`` and BitFit do it.

    ``zero.Init`` replaces ``torch.nn.functional.linear`` for good.  The backward of the replacement
    (``LinearFunctionForZeroStage3`` in deepspeed/runtime/zero/linear.py) counted the dimensions of the gradient where
    it computed that of the weight, and from 0.11 on used the number for that of the bias, too (read in 0.10.3, 0.11.2,
    0.17.2 and 0.17.4).
    """
    _train_biases(run, run.model())


@case(
    kind="CONTROL",
    recipe="biases alone train",
    moment="made whole",
    happens="Trains: the linear layers are torch's own.",
    variants=[_mlp(3), _mlp(1)],
)
def biases_alone_made_whole(run: Run) -> None:
    """Everything is frozen but the biases, in a model that is partitioned by the engine only."""
    _train_biases(run, run.model(under="plain"))


def _train_biases(run: Run, model: Any) -> None:
    freeze_except(model, "*.bias")
    run.train(run.engine(model), intent="*.bias")
