"""Gradient checkpointing: what is recomputed in backward, beside parameters that are frozen."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from harness.cell import Fix, Options, case, freeze_except, unfreeze

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.cell._run import Run


@case(
    kind="I",
    refs=[
        "huggingface/transformers#47254",
        "huggingface/trl#2514",
        "huggingface/trl#5217",
        "OpenRLHF/OpenRLHF#569",
        "hiyouga/LlamaFactory#6438",
        "huggingface/transformers#34928",
        "pytorch/pytorch#127959",
        "deepspeedai/DeepSpeed#8148",
    ],
    fixes=[Fix("deepspeed", "0.19.3", "deepspeedai/DeepSpeed#8148")],
    recipe="frozen norms, non-reentrant checkpointing",
    moment="before the engine",
    happens="Stage 3 before DeepSpeed 0.19.3 raises CheckpointError in the first backward wherever torch is 2.5 or "
    "newer: a frozen weight had its shape in forward and shape 0 when it was recomputed. Lower stages, torch before "
    "2.5 and DeepSpeed from 0.19.3 on train.",
    instead="upgrade DeepSpeed to 0.19.3; before that, pass `determinism_check='none'` to the checkpoint, or "
    "`use_reentrant=True` with input gradients enabled (`frozen_norms_reentrant_with_input_grads`).",
    cure="frozen_norms_unchecked",
    variants=[
        Options(model="normed", checkpointing="non_reentrant"),
        Options(model="normed", init="zero_init", persistence="default", accumulation=2, checkpointing="non_reentrant"),
        Options(model="normed", stage=2, checkpointing="non_reentrant"),
        Options(model="tiny_llama", checkpointing="non_reentrant"),
    ],
)
def frozen_norms_in_checkpoint(run: Run) -> None:
    """Every block is a non-reentrant checkpoint; its linear layers train, its norms are frozen.

    Since torch 2.5.0 (#127959; ``pack_hook`` of ``_recomputation_hook`` in torch/utils/checkpoint.py, read in 2.4.1,
    2.5.1 and 2.13.0) a recomputed tensor that needs no gradient is kept as it is, where it was detached before.  A
    frozen norm's weight is such a tensor, and it is the very parameter: once the norm has been run again,
    ``release_sub_module`` of DeepSpeed (runtime/zero/partitioned_param_coordinator.py, read in 0.19.2) partitions it in
    place, and torch compares a shape of 0 with the one it noted in forward.  The detached copy had kept its shape,
    and so has what trains, which is detached still.  With that one line put back, 0.19.2 trains on torch 2.13.0; with
    it put in, 0.10.3 raises on torch 2.2.2: so torch draws the line below, and every DeepSpeed before 0.19.3 (#8148,
    which keeps recomputed frozen parameters until their block's backward is over) is affected.  Persistent parameters
    are, too, since persistence counts only once the first forward and backward have been traced.
    """
    model = run.model()
    freeze_except(model, run.part("linears"))
    run.train(run.engine(model), intent=run.part("linears"))


@case(
    kind="CONTROL",
    refs=["pytorch/pytorch#127959"],
    recipe="frozen norms, non-reentrant checkpointing, `determinism_check='none'`",
    moment="before the engine",
    happens="Trains where frozen norms under a checkpoint that compares raise: torch compares no shapes, and what was "
    "partitioned is gathered again before its gradient is computed.",
    variants=[
        Options(model="normed", checkpointing="non_reentrant"),
        Options(model="normed", init="zero_init", persistence="default", accumulation=2, checkpointing="non_reentrant"),
    ],
)
def frozen_norms_unchecked(run: Run) -> None:
    """Norms are frozen, linear layers train, and the checkpoint is told not to compare what it recomputes.

    ``checkpoint`` in torch/utils/checkpoint.py (2.13.0) hands ``determinism_check`` to the frame that holds what was
    recomputed against forward, and "none" makes that a function that does nothing.
    """
    model = run.model()
    freeze_except(model, run.part("linears"))
    _compare_nothing(model)
    run.train(run.engine(model), intent=run.part("linears"))


def _compare_nothing(model: Any) -> None:
    """Every block is a non-reentrant checkpoint that does not hold what it recomputes against forward."""
    from torch.utils.checkpoint import checkpoint

    model.checkpoint_by(partial(checkpoint, use_reentrant=False, determinism_check="none"))


@case(
    kind="CONTROL",
    refs=["huggingface/trl#2514", "hiyouga/LlamaFactory#6438"],
    recipe="frozen norms, reentrant checkpointing, input gradients enabled",
    moment="before the engine",
    happens="Trains where frozen norms in a non-reentrant checkpoint raise: a reentrant one compares nothing.",
    variants=[Options(model="normed", checkpointing="reentrant"), Options(checkpointing="reentrant")],
)
def frozen_norms_reentrant_with_input_grads(run: Run) -> None:
    """Norms are frozen, linear layers train, every block is a reentrant checkpoint, and its input needs a gradient.

    ``CheckpointFunction.backward`` in torch/utils/checkpoint.py (2.13.0) runs the block anew as in any forward, with
    DeepSpeed's hooks, and takes the gradients of that run.
    """
    model = run.model()
    freeze_except(model, run.part("linears"))
    model.enable_input_require_grads()
    run.train(run.engine(model), intent=run.part("linears"))


@case(
    kind="I",
    refs=["huggingface/transformers#47254"],
    fixes=[Fix("deepspeed", "0.19.3", "deepspeedai/DeepSpeed#8148")],
    recipe="frozen linear layers, norms train, non-reentrant checkpointing",
    moment="before the engine",
    happens="Before DeepSpeed 0.19.3, on torch 2.5 or newer, the model raises CheckpointError if it was built under "
    "zero.Init, and trains if it was not.",
    instead="upgrade DeepSpeed to 0.19.3; before that, pass `determinism_check='none'` to the checkpoint.",
    cure="frozen_linears_unchecked",
    variants=[
        Options(model="normed", checkpointing="non_reentrant"),
        Options(model="normed", init="zero_init", checkpointing="non_reentrant"),
    ],
)
def frozen_linears_in_checkpoint(run: Run) -> None:
    """The other way round: every block's norm trains and its linear layer is frozen.

    As with frozen norms, save that a linear layer keeps a transposed view of its weight for backward, which has its
    shape whatever becomes of the weight.  ``zero.Init`` puts ``LinearFunctionForZeroStage3`` in its place
    (deepspeed/runtime/zero/linear.py, read in 0.19.2), which keeps the weight itself.
    """
    model = run.model()
    freeze_except(model, "body.layers.*.norm.*")
    run.train(run.engine(model), intent="body.layers.*.norm.*")


@case(
    kind="CONTROL",
    recipe="frozen linear layers, norms train, `determinism_check='none'`",
    moment="before the engine",
    happens="Trains, built under zero.Init or not: torch compares no shapes.",
    variants=[Options(model="normed", init="zero_init", checkpointing="non_reentrant")],
)
def frozen_linears_unchecked(run: Run) -> None:
    """Every block's norm trains, its linear layer is frozen, and the checkpoint compares nothing."""
    model = run.model()
    freeze_except(model, "body.layers.*.norm.*")
    _compare_nothing(model)
    run.train(run.engine(model), intent="body.layers.*.norm.*")


_INPUT_GRADS = (
    "call `enable_input_require_grads()`; `use_reentrant=False` is as good from DeepSpeed 0.19.3 on, and before it at "
    "stage 3 only with `determinism_check='none'` (see `frozen_norms_in_checkpoint`)."
)


@case(
    kind="I",
    refs=[
        "huggingface/transformers#23170",
        "lm-sys/FastChat#581",
        "deepspeedai/DeepSpeedExamples#625",
        "locuslab/open-unlearning#28",
        "hiyouga/LlamaFactory#6358",
    ],
    recipe="everything before the block frozen, reentrant checkpointing",
    moment="before the engine",
    happens="Backward raises at every stage: no gradient reaches the loss.  DeepSpeed from 0.18.3 on says instead that "
    "the loss must be a scalar tensor, which it is.  transformers' own models train from 5.0 on.",
    instead=_INPUT_GRADS,
    cure="reentrant_with_input_grads",
    variants=[
        Options(model="normed", checkpointing="reentrant"),
        Options(model="normed", stage=2, checkpointing="reentrant"),
        Options(model="normed", stage=0, checkpointing="reentrant"),
        Options(model="tiny_llama", checkpointing="reentrant"),
    ],
)
def reentrant_without_input_grads(run: Run) -> None:
    """One block trains behind frozen layers, and every block is a reentrant checkpoint.

    Torch runs a reentrant checkpoint without a graph in forward, and its output needs a gradient only if an *input*
    does (``CheckpointFunction`` in torch/utils/checkpoint.py, read in 2.13.0); the weights inside do not count.
    """
    model = run.model()
    freeze_except(model, run.part("block"))
    run.train(run.engine(model), intent=run.part("block"))


@case(
    kind="CONTROL",
    refs=["huggingface/transformers#23170"],
    recipe="everything before the block frozen, reentrant checkpointing, `enable_input_require_grads()`",
    moment="before the engine",
    happens="Trains: an input that needs a gradient is all that a reentrant checkpoint asks for.",
    variants=[
        Options(model="normed", checkpointing="reentrant"),
        Options(model="normed", stage=2, checkpointing="reentrant"),
        Options(model="normed", stage=0, checkpointing="reentrant"),
        Options(model="tiny_llama", checkpointing="reentrant"),
    ],
)
def reentrant_with_input_grads(run: Run) -> None:
    """One block trains behind frozen layers whose output is made to need a gradient."""
    model = run.model()
    freeze_except(model, run.part("block"))
    model.enable_input_require_grads()
    run.train(run.engine(model), intent=run.part("block"))


@case(
    kind="I",
    refs=["locuslab/open-unlearning#178"],
    recipe="blocks and head train behind a frozen embedding, reentrant checkpointing",
    moment="before the engine",
    happens="Silent: the head trains and the loss falls, but no block has a gradient, at any stage.",
    instead=_INPUT_GRADS,
    cure="reentrant_with_input_grads",
    variants=[
        Options(model="normed", checkpointing="reentrant"),
        Options(model="normed", stage=2, checkpointing="reentrant"),
        Options(model="normed", stage=0, checkpointing="reentrant"),
    ],
)
def reentrant_loses_blocks_silently(run: Run) -> None:
    """What trains outside the checkpoints hides that nothing inside them does.

    The rule is torch's (``CheckpointFunction`` in torch/utils/checkpoint.py, 2.13.0; see the case without a head): an
    output of a reentrant checkpoint needs a gradient only if an input does.  The head gives the loss one, so nothing
    complains.
    """
    model = run.model()
    trained = (*run.part("linears"), *run.part("head"))
    freeze_except(model, trained)
    run.train(run.engine(model), intent=trained)


@case(
    kind="I",
    refs=["locuslab/open-unlearning#178"],
    recipe="LoRA and a trained head, reentrant checkpointing",
    moment="before the engine",
    happens="Silent where nothing makes the embedding's output need a gradient: the head trains and no adapter does. "
    "transformers does so by itself from 5.0 on, PEFT where checkpointing was enabled before it wraps the model.",
    instead=_INPUT_GRADS,
    cure="reentrant_with_input_grads",
    needs=("transformers", "peft"),
    variants=[Options(checkpointing="reentrant"), Options(stage=2, checkpointing="reentrant")],
)
def lora_and_head_reentrant(run: Run) -> None:
    """PEFT's LoRA beside a head that trains whole; checkpointing is enabled once the adapters are there.

    ``gradient_checkpointing_enable`` in transformers/modeling_utils.py enables input gradients only for a model with
    adapters of its own (read in 4.36.2) or for any that takes token ids (read in 5.16.1).
    """
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(r=4, target_modules=["q_proj", "up_proj"])
    model = run.model(wrap=lambda base: get_peft_model(base, lora))
    unfreeze(model, "*lm_head.weight")
    run.train(run.engine(model), intent=("*lora_*", "*lm_head.weight"))


@case(
    kind="CONTROL",
    refs=["2U1/Qwen-VL-Series-Finetune#56", "2U1/Llama3.2-Vision-Finetune#27", "hiyouga/LlamaFactory#4905"],
    recipe="a frozen tower, all of it in checkpoints",
    moment="before the engine",
    happens="Trains.  Torch warns that no input needs a gradient and gradients will be None; nothing in that "
    "checkpoint is meant to have one.",
    instead="ignore the warning where the checkpoint is frozen as a whole, and nowhere else.",
    variants=[
        Options(model="towers", checkpointing="reentrant"),
        Options(model="towers", checkpointing="non_reentrant"),
        Options(model="towers", stage=2, checkpointing="reentrant"),
    ],
)
def frozen_tower_in_checkpoints(run: Run) -> None:
    """The language stack trains, first layer and all; the vision stack beside it is frozen.

    ``check_backward_validity`` in torch/utils/checkpoint.py (2.13.0) looks at the inputs of a checkpoint and at nothing
    inside it, so it warns whether there is something to train in there or not.
    """
    model = run.model()
    freeze_except(model, run.part("language"))
    run.train(run.engine(model), intent=run.part("language"))


@case(
    kind="I",
    refs=["2U1/Qwen-VL-Series-Finetune#56", "hiyouga/LlamaFactory#4905"],
    recipe="a frozen tower save its last block, reentrant checkpointing",
    moment="before the engine",
    happens="Silent but for the warning that is harmless where a tower is wholly frozen: its last block never moves.",
    instead="make what the tower's own first layer gives require a gradient, by a hook on it, or checkpoint with "
    "`use_reentrant=False`, before DeepSpeed 0.19.3 at stage 3 with `determinism_check='none'`, too. "
    "`enable_input_require_grads()` of transformers does it for towers from 5.0 on only.",
    cure="mixed_tower_with_its_input_grads",
    variants=[
        Options(model="towers", checkpointing="reentrant"),
        Options(model="towers", stage=2, checkpointing="reentrant"),
        Options(model="towers", stage=0, checkpointing="reentrant"),
    ],
)
def mixed_tower_reentrant(run: Run) -> None:
    """The language stack trains, and of the vision stack the last block.

    ``CheckpointFunction`` in torch/utils/checkpoint.py (2.13.0) runs its block under ``no_grad``, and an image needs no
    gradient, so neither does what the tower gives. The language stack gives the loss a gradient, and nobody misses the
    other.
    """
    _train_language_and_one_vision_block(run)


@case(
    kind="I",
    refs=["2U1/Qwen-VL-Series-Finetune#56", "hiyouga/LlamaFactory#4905"],
    recipe="a frozen tower save its last block, reentrant checkpointing, input gradients of the text alone",
    moment="before the engine",
    happens="Silent: the text's embedding gives what needs a gradient and the tower's first layer does not, so the "
    "tower's last block never moves. It is what `enable_input_require_grads()` of transformers before 5.0 comes to.",
    instead="put the hook on the first layer of the tower, too, or use transformers 5.0 or newer.",
    cure="mixed_tower_with_its_input_grads",
    variants=[Options(model="towers", checkpointing="reentrant")],
)
def mixed_tower_with_text_input_grads(run: Run) -> None:
    """The language stack and the tower's last block train; only the language stack's first layer has the hook.

    ``enable_input_require_grads`` in transformers/modeling_utils.py puts one hook on ``get_input_embeddings()``, the
    text's, up to 4.57.6, and one on each model below that has embeddings of its own from 5.0.0 on (read in 4.36.2,
    4.43.4, 4.57.6, 5.0.0 and 5.16.1).
    """
    _train_language_and_one_vision_block(run, hooked=("language",))


@case(
    kind="CONTROL",
    recipe="a frozen tower save its last block, reentrant checkpointing, input gradients of both stacks",
    moment="before the engine",
    happens="Trains, the tower's last block as well.",
    variants=[
        Options(model="towers", checkpointing="reentrant"),
        Options(model="towers", stage=2, checkpointing="reentrant"),
        Options(model="towers", stage=0, checkpointing="reentrant"),
    ],
)
def mixed_tower_with_its_input_grads(run: Run) -> None:
    """What the first layer of each stack gives is made to need a gradient."""
    _train_language_and_one_vision_block(run, hooked=("language", "vision"))


@case(
    kind="CONTROL",
    recipe="a frozen tower save its last block, non-reentrant checkpointing",
    moment="before the engine",
    happens="Trains, the tower's last block as well. Nothing behind a frozen norm needs a gradient here but that "
    "norm's own block; with more blocks to train, stage 3 before DeepSpeed 0.19.3 raises as in "
    "`frozen_norms_in_checkpoint`.",
    variants=[
        Options(model="towers", checkpointing="non_reentrant"),
        Options(model="towers", stage=2, checkpointing="non_reentrant"),
    ],
)
def mixed_tower_non_reentrant(run: Run) -> None:
    """A non-reentrant checkpoint keeps a graph in forward, so weights inside it count."""
    _train_language_and_one_vision_block(run)


def _train_language_and_one_vision_block(run: Run, *, hooked: Sequence[str] = ()) -> None:
    trained = (*run.part("language"), "vision.layers.1.linear.*")
    model = run.model()
    freeze_except(model, trained)
    for stack in hooked:
        getattr(model, stack).stem.register_forward_hook(lambda _, __, output: output.requires_grad_(True))
    run.train(run.engine(model), intent=trained)


@case(
    kind="I",
    refs=[
        "deepspeedai/DeepSpeed#7665",
        "modelscope/ms-swift#3128",
        "OpenBMB/MiniCPM-V#1003",
        "huggingface/transformers#39022",
        "xfactlab/orpo#9",
        "deepspeedai/DeepSpeed#988",
        "deepspeedai/DeepSpeed#2103",
    ],
    fixes=[
        Fix(
            "deepspeed",
            "0.18.5",
            "deepspeedai/DeepSpeed#7780",
            because="it counts hooks anew in each backward that a reentrant checkpoint runs, so that the epilogue "
            "waits for the last; a parameter that two of them reach is reduced twice as before.",
        )
    ],
    recipe="a block run twice, reentrant checkpointing",
    moment="before the engine",
    happens="Stage 2 raises that a parameter has already been reduced, stage 3 an AssertionError without a word. "
    "Stages 0 and 1 train.",
    instead="checkpoint with `use_reentrant=False`; where norms are frozen, at stage 3 before DeepSpeed 0.19.3, with "
    "`determinism_check='none'`, too.",
    cure="block_twice_unchecked",
    variants=[
        Options(model="reused", checkpointing="reentrant"),
        Options(model="reused", stage=2, checkpointing="reentrant"),
        Options(model="reused", stage=1, checkpointing="reentrant"),
    ],
)
def block_twice_reentrant(run: Run) -> None:
    """Every block is a reentrant checkpoint that is run twice in a row; its norm is frozen.

    ``CheckpointFunction.backward`` in torch/utils/checkpoint.py (2.13.0) runs a backward of its own, so a weight's
    hooks run once for each use. Stage 2 wants one gradient each until the epilogue (runtime/zero/stage_1_and_2.py,
    0.19.8), stage 3 no parameter twice in a bucket (``__reduce_and_partition_ipg_grads`` in runtime/zero/stage3.py,
    0.19.8). Stage 1 begins once backward is over.
    """
    _train_reused(run)


@case(
    kind="CONTROL",
    recipe="a block run twice, non-reentrant checkpointing",
    moment="before the engine",
    happens="Trains from DeepSpeed 0.19.3 on: torch sums both uses before it tells DeepSpeed of a gradient. Before, "
    "stage 3 raises CheckpointError with torch 2.5 or newer, since the norms are frozen "
    "(`frozen_norms_in_checkpoint`); stages 1 and 2 train.",
    variants=[
        Options(model="reused", checkpointing="non_reentrant"),
        Options(model="reused", stage=2, checkpointing="non_reentrant"),
        Options(model="reused", stage=1, checkpointing="non_reentrant"),
    ],
)
def block_twice_non_reentrant(run: Run) -> None:
    """Every block is a non-reentrant checkpoint that is run twice in a row; its norm is frozen."""
    _train_reused(run)


@case(
    kind="CONTROL",
    recipe="a block run twice, non-reentrant checkpointing, `determinism_check='none'`",
    moment="before the engine",
    happens="Trains, and before DeepSpeed 0.19.3 as well.",
    variants=[
        Options(model="reused", checkpointing="non_reentrant"),
        Options(model="reused", stage=2, checkpointing="non_reentrant"),
    ],
)
def block_twice_unchecked(run: Run) -> None:
    """Every block is a non-reentrant checkpoint, run twice in a row, that compares nothing; its norm is frozen."""
    _train_reused(run, compare=False)


def _train_reused(run: Run, *, compare: bool = True) -> None:
    model = run.model()
    freeze_except(model, run.part("linears"))
    model.enable_input_require_grads()
    if not compare:
        _compare_nothing(model)
    run.train(run.engine(model), intent=run.part("linears"))


@case(
    kind="I",
    refs=["deepspeedai/DeepSpeed#7830", "deepspeedai/DeepSpeed#7841", "deepspeedai/DeepSpeed#7756"],
    fixes=[
        Fix(
            "deepspeed",
            "0.18.7",
            "deepspeedai/DeepSpeed#7841",
            because="it mends torch 2.3 and 2.4; older torch lacks what DeepSpeed asks it for, and raises still.",
        )
    ],
    recipe="checkpointing, everything trains",
    moment="before the engine",
    happens="Trains. Before torch 2.3, DeepSpeed from 0.18.3 on raises in the first backward, checkpointing or not: it "
    "counts gradients by internals that torch did not have.",
    instead="keep to torch 2.5 or newer with DeepSpeed 0.18.3 or newer.",
    variants=[
        Options(model="normed", checkpointing="non_reentrant"),
        Options(model="normed", checkpointing="reentrant"),
        Options(model="normed", stage=2, checkpointing="reentrant"),
    ],
)
def checkpoints_without_freezing(run: Run) -> None:
    """Nothing is frozen, and every block is a checkpoint: what is no fault of freezing.

    ``count_used_parameters_in_backward`` in deepspeed/runtime/utils.py asserts that torch has what it needs (read in
    0.18.6).  Up to that release it also called torch's ``_get_grad_fn_or_grad_acc`` with gradients off, where torch up
    to 2.4 finds no node, by report; from 0.18.7 on it turns them on.
    """
    run.train(run.engine(run.model()), intent="*")
