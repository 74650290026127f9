"""Kind E: rows or elements of a parameter that are to train while the rest of it keeps still."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.cell import Fix, Hyper, Options, case, freeze_except, train_rows
from harness.cell.models import mlp
from harness.drivers.adapters import adapted
from harness.drivers.axolotl import freeze_layers_except
from harness.drivers.pretrained import as_told

if TYPE_CHECKING:
    from harness.cell._run import Run

_HEAD = "head.weight"
_ROWS = slice(2, 5)

#: An optimizer that moves nothing by itself: no gradient, no step.
_SGD = Hyper("SGD", weight_decay=0.0)

_PLAIN = [Options(model="mlp", stage=stage) for stage in (0, 1, 2, 3)]
_PARTITIONED = [
    Options(model="mlp"),
    Options(model="mlp", init="zero_init"),
    Options(model="mlp", init="zero_init", persistence="default"),
]
_ZERO_INIT = _PARTITIONED[1]
_BY_HOOK = "mask rows by a hook, `parameter.register_hook`, with an optimizer that neither decays nor remembers."


@case(
    kind="E",
    refs=["hiyouga/LlamaFactory#10563", "modelscope/ms-swift#2872", "deepspeedai/DeepSpeed#5041"],
    fixes=[
        Fix("deepspeed", "0.13.2", "deepspeedai/DeepSpeed#5075"),
        Fix("deepspeed", "0.13.3", "deepspeedai/DeepSpeed#5113"),
    ],
    recipe="a gradient hook that masks rows",
    moment="before the engine",
    happens="Trains those rows and no other at every stage, partitioned or not: the hook is given the whole gradient, "
    "before DeepSpeed takes it. DeepSpeed before 0.13.3 silently drops it, unless the model was made under zero.Init.",
    instead="register the hook once the engine exists.",
    cure="row_hook_after_engine",
    variants=[_PLAIN[0], _PLAIN[2], *_PARTITIONED, Options(model="mlp", accumulation=2)],
)
def row_hook_before_engine(run: Run) -> None:
    """A hook on the head's weight leaves three rows their gradient; plain SGD.

    A tensor's hooks run on what autograd is about to add to ``.grad``, which has the shape that the parameter has in
    forward, so the whole one.  DeepSpeed's own hook comes after that (``register_grad_hook`` in
    deepspeed/utils/torch.py, read at 0.19.8).  Those before broadcast the parameter itself and not its data when the
    engine is made; PyTorch, which cannot differentiate that, puts a hook of its own there, and those before it are
    never called again (``_broadcast_model`` in deepspeed/runtime/engine.py, mended in 0.13.2, and
    ``_zero_init_param`` in deepspeed/runtime/zero/partition_parameters.py, mended in 0.13.3).
    """
    model = run.model()
    freeze_except(model, _HEAD)
    train_rows(model.head.weight, _ROWS)
    engine = run.engine(model, hyper=_SGD)
    run.train(engine, intent=_HEAD, rows={_HEAD: _ROWS})


@case(
    kind="CONTROL",
    refs=["hiyouga/LlamaFactory#10563"],
    recipe="a gradient hook that masks rows",
    moment="after the engine",
    happens="Trains those rows and no other, as if it had been registered before.",
    variants=[_PLAIN[0], _PLAIN[2], *_PARTITIONED],
)
def row_hook_after_engine(run: Run) -> None:
    """A hook on the head's weight leaves three rows their gradient, registered once the engine exists."""
    model = run.model()
    freeze_except(model, _HEAD)
    engine = run.engine(model, hyper=_SGD)
    train_rows(model.head.weight, _ROWS)
    run.train(engine, intent=_HEAD, rows={_HEAD: _ROWS})


@case(
    kind="CONTROL",
    refs=["hiyouga/LlamaFactory#10563"],
    recipe="a gradient hook that masks rows",
    moment="after the first step, plain SGD",
    happens="Trains those rows and no other from then on.",
    variants=[_PLAIN[0], _PLAIN[2], *_PARTITIONED],
)
def row_hook_after_first_step(run: Run) -> None:
    """One step on all rows, then the hook, then two more steps."""
    _hook_late(run, _SGD)


@case(
    kind="E",
    refs=["hiyouga/LlamaFactory#10563"],
    recipe="a gradient hook that masks rows",
    moment="after the first step, Adam",
    happens="The masked rows move on: Adam still has what it remembers of their earlier gradients. So it is at stage 0 "
    "and in plain PyTorch.",
    instead=_BY_HOOK,
    cure="row_hook_after_first_step",
    variants=[_PLAIN[0], _PLAIN[3]],
)
def row_hook_after_first_step_adam(run: Run) -> None:
    """One step on all rows, then the hook, then two more steps; Adam, no weight decay.

    Adam's step is made of the mean of past gradients, which one zero does not make zero (torch/optim/adamw.py, read at
    torch 2.13.0).  A mask does not stop a row; it only gives it nothing new.
    """
    _hook_late(run, Hyper(weight_decay=0.0))


def _hook_late(run: Run, hyper: Hyper) -> None:
    model = run.model()
    freeze_except(model, _HEAD)
    engine = run.engine(model, hyper=hyper)
    run.train(engine, intent=_HEAD, steps=1)
    train_rows(model.head.weight, _ROWS)
    run.train(engine, intent=_HEAD, rows={_HEAD: _ROWS})


@case(
    kind="E",
    refs=["axolotl-ai-cloud/axolotl#3416"],
    recipe="a gradient hook that masks rows",
    moment="before the engine, with weight decay",
    happens="The masked rows shrink at every step and at every stage: weight decay needs no gradient.",
    instead="make the rows that train a parameter of their own and freeze the rest, or use no weight decay.",
    cure="rows_of_their_own",
    variants=[_PLAIN[0], _PLAIN[2], _PLAIN[3], _ZERO_INIT],
)
def row_hook_with_decay(run: Run) -> None:
    """The hook, and AdamW with a weight decay of 0.1.

    Decay multiplies the whole parameter before any gradient counts (torch/optim/adamw.py, read at torch 2.13.0), and
    an optimizer knows parameters, not rows.  So it is for every ``[rows]`` of Axolotl's ``unfrozen_parameters``, too.
    """
    model = run.model()
    freeze_except(model, _HEAD)
    train_rows(model.head.weight, _ROWS)
    engine = run.engine(model, hyper=Hyper(weight_decay=0.1))
    run.train(engine, intent=_HEAD, rows={_HEAD: _ROWS})


@case(
    kind="CONTROL",
    refs=["axolotl-ai-cloud/axolotl#3416"],
    recipe="rows as a parameter of their own",
    moment="before the engine, with weight decay",
    happens="Trains: what is frozen is a parameter as a whole, so neither decay nor memory reaches it.",
    variants=[_PLAIN[0], _PLAIN[2], _PLAIN[3], _ZERO_INIT],
)
def rows_of_their_own(run: Run) -> None:
    """The head's weight is put together in forward from three rows that train and five that do not."""
    from harness.cell.zoo._rows_apart import RowsApart

    model = run.model(RowsApart)
    freeze_except(model, "head.rows")
    engine = run.engine(model, hyper=Hyper(weight_decay=0.1))
    run.train(engine, intent="head.rows", batch=mlp.batch)


@case(
    kind="E",
    recipe="other rows of .grad set to zero by hand",
    moment="between backward and step",
    happens="Silent under ZeRO: all rows train. At the end of backward DeepSpeed has taken the gradient, and what is "
    "left in `.grad`, if anything, is read by nobody. At stage 0 it does what was meant.",
    instead=_BY_HOOK,
    cure="row_hook_after_engine",
    variants=[_PLAIN[0], _PLAIN[2], _PLAIN[3], _ZERO_INIT],
)
def rows_of_grad_zeroed_by_hand(run: Run) -> None:
    """A loop of one's own edits ``.grad`` after backward, where there is one.

    Backward ends with all gradients reduced into the optimizer's own partitions and ``.grad`` set to None
    (``independent_gradient_partition_epilogue`` in deepspeed/runtime/zero/stage3.py and stage_1_and_2.py, 0.19.8).
    """
    model = run.model()
    freeze_except(model, _HEAD)
    engine = run.engine(model, hyper=_SGD)
    run.intend(engine, _HEAD, rows={_HEAD: _ROWS})
    for _ in range(2):
        engine.backward(engine(**run.draw()))
        _zero_other_rows(model.head.weight)
        engine.step()


@case(
    kind="CONTROL",
    recipe="a hook on the accumulated gradient",
    moment="before the engine",
    happens="Trains those rows and no other: hooks run in the order in which they were registered, DeepSpeed's last.",
    variants=[_PLAIN[0], _PLAIN[2], _ZERO_INIT],
)
def accumulated_row_hook_before_engine(run: Run) -> None:
    """The later kind of hook, ``register_post_accumulate_grad_hook``, edits ``.grad`` once it is complete."""
    model = run.model()
    freeze_except(model, _HEAD)
    model.head.weight.register_post_accumulate_grad_hook(_zero_other_rows)
    engine = run.engine(model, hyper=_SGD)
    run.train(engine, intent=_HEAD, rows={_HEAD: _ROWS})


@case(
    kind="CONTROL",
    recipe="a hook on the accumulated gradient",
    moment="after the engine",
    happens="Trains those rows and no other, though it runs after DeepSpeed's, and however small the bucket is.",
    variants=_PLAIN[1:],
)
def accumulated_row_hook_after_engine(run: Run) -> None:
    """A hook on the accumulated gradient, registered once the engine exists; the gradient is larger than the bucket.

    DeepSpeed's hook puts the gradient into a bucket and points ``.grad`` there, or keeps ``.grad`` itself where it is
    too large.  A bucket is reduced when the next gradient does not fit or backward ends, which is after the hook
    (``reduce_independent_p_g_buckets_and_remove_grads`` in deepspeed/runtime/zero/stage3.py, read at 0.19.8).
    """
    model = run.model()
    freeze_except(model, _HEAD)
    engine = run.engine(model, hyper=_SGD, zero_optimization={"reduce_bucket_size": 100})
    model.head.weight.register_post_accumulate_grad_hook(_zero_other_rows)
    run.train(engine, intent=_HEAD, rows={_HEAD: _ROWS})


def _zero_other_rows(parameter: Any) -> None:
    """As code does that wants to run at any stage: where there is no gradient, nothing."""
    if parameter.grad is not None:
        parameter.grad[: _ROWS.start] = 0
        parameter.grad[_ROWS.stop :] = 0


@case(
    kind="E",
    refs=["deepspeedai/DeepSpeed#5041", "modelscope/ms-swift#2872"],
    recipe="requires_grad of a slice, set to True",
    moment="before the engine",
    happens="Silent: nothing of the parameter trains. The slice is a tensor of its own, made by the indexing and gone "
    "with it; the parameter never hears of it, gathered or not.",
    instead=_BY_HOOK,
    cure="row_hook_after_engine",
    variants=[_PLAIN[0], _PLAIN[2], _ZERO_INIT],
)
def slice_unfrozen(run: Run) -> None:
    """The head is frozen, and some rows of it unfrozen, inside a gather where there is something to gather.

    Indexing makes a new tensor, and its flag is its own.  Forward takes the parameter (torch/nn/modules/linear.py,
    read at torch 2.13.0), whose flag is what it was; DeepSpeed, too, asks parameters only.
    """
    import deepspeed

    model = run.model()
    freeze_except(model, run.part("embedding"))
    with deepspeed.zero.GatheredParameters(model.head.weight):
        model.head.weight[_ROWS].requires_grad = True
    engine = run.engine(model, hyper=_SGD)
    run.train(engine, intent=(*run.part("embedding"), _HEAD), rows={_HEAD: _ROWS})


@case(
    kind="E",
    refs=["deepspeedai/DeepSpeed#5041"],
    recipe="requires_grad of a slice, set to False",
    moment="before the engine",
    happens="Raises at once, in plain PyTorch as well: only a leaf has a flag to set, and a slice of what trains is "
    "computed from it.",
    instead=_BY_HOOK,
    cure="row_hook_after_engine",
    variants=[_PLAIN[2], _ZERO_INIT],
)
def slice_frozen(run: Run) -> None:
    """The head trains, and its first rows are told not to.

    PyTorch refuses the flag of a tensor that autograd has computed, as an index into a parameter is; what it offers
    is for whole parameters (``requires_grad_`` in torch/nn/modules/module.py, read at torch 2.13.0).
    """
    model = run.model()
    freeze_except(model, _HEAD)
    model.head.weight[: _ROWS.start].requires_grad = False
    engine = run.engine(model, hyper=_SGD)
    run.train(engine, intent=_HEAD, rows={_HEAD: slice(_ROWS.start, 8)})


@case(
    kind="E",
    refs=["axolotl-ai-cloud/axolotl#1687"],
    recipe="Axolotl's own row range, closed",
    moment="before the engine",
    happens="Under zero.Init silent: the rows before the range keep still, those behind it train. Otherwise trains.",
    instead="mask the rows by a hook of one's own, which knows how many there are.",
    cure="row_hook_after_engine",
    variants=[_PLAIN[2], *_PARTITIONED],
    needs=("axolotl",),
)
def axolotl_closed_row_range(run: Run) -> None:
    """``[2:5]`` behind the name of a parameter of eight rows.

    Axolotl turns the ranges that train into those that do not by ``len(param)``, which under ``zero.Init`` is 0, so
    that nothing is left behind the last range (``_invert_ranges`` in axolotl/utils/freeze.py, read at 0.19.0).
    """
    model = run.model()
    freeze_layers_except(model, ["^head.weight$[2:5]"])
    engine = run.engine(model, hyper=_SGD)
    run.train(engine, intent=_HEAD, rows={_HEAD: _ROWS})


@case(
    kind="E",
    refs=["axolotl-ai-cloud/axolotl#1687", "axolotl-ai-cloud/axolotl#1686"],
    recipe="Axolotl's own row range, open",
    moment="before the engine",
    happens="Under zero.Init raises `invalid unfreeze range: start=5, end=0`. Otherwise trains.",
    instead="mask the rows by a hook of one's own, which knows how many there are.",
    cure="row_hook_after_engine",
    variants=[_PLAIN[2], *_PARTITIONED],
    needs=("axolotl",),
)
def axolotl_open_row_range(run: Run) -> None:
    """``[5:]`` behind the name of a parameter of eight rows.

    An open end becomes ``len(param)``, which under ``zero.Init`` is 0 (``_merge_ranges`` in axolotl/utils/freeze.py,
    read at 0.19.0).
    """
    model = run.model()
    freeze_layers_except(model, ["^head.weight$[5:]"])
    engine = run.engine(model, hyper=_SGD)
    run.train(engine, intent=_HEAD, rows={_HEAD: slice(5, 8)})


@case(
    kind="E",
    refs=["huggingface/peft#2603", "huggingface/peft#2605"],
    fixes=[
        Fix(
            "peft",
            "0.16.0",
            "huggingface/peft#2605",
            because="what is gathered goes to a CUDA device, and CPU ranks have none: it raises all the same, "
            "elsewhere.",
        )
    ],
    recipe="PEFT's trainable_token_indices",
    moment="after zero.Init",
    happens="On CPU ranks raises while the adapter is built: from 0.16.0 on PEFT gathers the embedding, but onto a "
    "CUDA device whatever there is; before, it takes rows of an embedding that has none. Outside zero.Init it trains. "
    "GPUs were not measured.",
    instead="put the adapter around a model that is whole, without zero.Init.",
    cure="peft_token_indices_before_partitioning",
    variants=[Options(init="zero_init")],
    needs=("peft.tuners.trainable_tokens",),
)
def peft_token_indices(run: Run) -> None:
    """Three rows of the embedding, as PEFT trains them: a parameter of their own, put in when they are used.

    ``_collect_token_weights`` in peft/tuners/trainable_tokens/layer.py (read at 0.21.2) asks
    ``torch.cuda.current_device()``; the message is torch's own, so it says nothing of embeddings.
    """
    _train_tokens(run, told=True)


@case(
    kind="E",
    refs=["huggingface/peft#2603"],
    recipe="PEFT's trainable_token_indices",
    moment="after zero.Init, transformers not told",
    happens="Raises an IndexError while the adapter is built: nobody told PEFT that the embedding is partitioned, and "
    "it takes rows of one that has none.",
    instead="keep a `transformers.integrations.HfDeepSpeedConfig` alive from before the model is made, or put the "
    "adapter around a model that is whole.",
    cure="peft_token_indices_before_partitioning",
    variants=[Options(init="zero_init")],
    needs=("peft.tuners.trainable_tokens",),
)
def peft_token_indices_untold(run: Run) -> None:
    """Three rows of the embedding as PEFT trains them, where ``deepspeed.zero.Init`` was entered by hand.

    PEFT gathers only where ``transformers.integrations.is_deepspeed_zero3_enabled()`` (``gather_params_ctx`` in
    peft/utils/integrations.py, read at 0.21.2), and that looks for a living ``HfDeepSpeedConfig``, not at the model.
    """
    _train_tokens(run, told=False)


@case(
    kind="CONTROL",
    refs=["huggingface/peft#2603"],
    recipe="PEFT's trainable_token_indices",
    moment="before the engine, without zero.Init",
    happens="Trains those rows and no other, with weight decay, too: they are a parameter of their own.",
    variants=[Options(stage=2), Options()],
    needs=("peft.tuners.trainable_tokens",),
)
def peft_token_indices_before_partitioning(run: Run) -> None:
    """Build the model whole, put the adapter around it, and let the engine partition both."""
    _train_tokens(run, told=False)


def _train_tokens(run: Run, *, told: bool) -> None:
    wrap = adapted("LoraConfig", target_modules=["q_proj"], trainable_token_indices=[3, 4, 5])
    model = run.model(wrap=as_told(run, wrap) if told else wrap)
    engine = run.engine(model)
    run.train(engine, intent=("*lora_*", "*trainable_tokens_delta*"))
