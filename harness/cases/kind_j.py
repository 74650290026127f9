"""Parameters of more than one dtype: what is frozen in one, what trains in another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.cell import Fix, Options, case, freeze_except

if TYPE_CHECKING:
    from harness.cell._run import Run

_ADAPTERS = ("layers.*.down.*", "layers.*.up.*")
#: The variants' precision says how exact bf16 can be; these cases leave the block that goes with it out of the JSON.
_NO_BLOCK: dict[str, Any] = {"enabled": False}
_AUTOCAST: dict[str, Any] = {"enabled": True, "dtype": "bfloat16"}


def _half(stage: int, **more: Any) -> Options:
    return Options(model="mlp", stage=stage, precision="bf16", **more)


def _adapted(run: Run, *, base: str, adapters: str) -> Any:
    """The model in one dtype, and adapters in another around every layer; only they train."""
    import torch

    from harness.cell.zoo._adapters import adapt

    model = run.model(wrap=lambda one: adapt(one.to(getattr(torch, base)), getattr(torch, adapters)))
    freeze_except(model, _ADAPTERS)
    return model


@case(
    kind="J",
    refs=["huggingface/trl#6089", "deepspeedai/DeepSpeed#8073"],
    fixes=[
        Fix(
            "deepspeed",
            "0.19.3",
            "deepspeedai/DeepSpeed#8073",
            because="it mends stage 3; stage 1 is mended in 0.19.8, by another change.",
        )
    ],
    recipe="fp32 adapters on a frozen bf16 base, no bf16 block",
    moment="before the engine",
    happens="Stage 1 before DeepSpeed 0.19.8 is silent: every rank trains on its own gradient, which is never reduced. "
    "Stage 3 before 0.19.3 fails at the first step where parameters are small enough to stay whole: one gather has "
    "two dtypes. Else it trains.",
    instead="turn DeepSpeed's bf16 block on, which makes adapters bf16 too; at stage 1, give the optimizer only what "
    "trains.",
    cure="fp32_adapters_under_the_bf16_block",
    variants=[_half(1), _half(2), _half(3), _half(3, persistence="default"), _half(0)],
)
def fp32_adapters_on_bf16_base(run: Run) -> None:
    """The base is loaded in bf16 and frozen, PEFT makes its adapters in fp32, and the JSON says nothing of dtypes.

    The ZeRO-1/2 optimizer takes its dtype from the first parameter of its first group, frozen or not (``self.dtype``
    in deepspeed/runtime/zero/stage_1_and_2.py, read in 0.19.2): here bf16, while gradients are to be summed in fp32.
    Stage 1 then keeps sums of its own and reduces ``param.grad_accum.to(self.dtype)``, a copy; the step takes the
    original.  From 0.19.8 on the buffers have the dtype of the sums.  Stage 3 gathers all persistent parameters at once
    after a step, into buffers of the first one's dtype (``_allgather_params_coalesced`` in partition_parameters.py,
    read in 0.19.2); 0.19.3 takes each one's own (#8073).
    """
    model = _adapted(run, base="bfloat16", adapters="float32")
    run.train(run.engine(model, bf16=_NO_BLOCK), intent=_ADAPTERS)


@case(
    kind="CONTROL",
    refs=["huggingface/trl#6089"],
    recipe="fp32 adapters on a frozen bf16 base, with the bf16 block",
    moment="before the engine",
    happens="Trains.  The block makes the adapters bf16 as well, and steps fp32 copies of them.",
    variants=[_half(1), _half(2), _half(3), _half(3, persistence="default")],
)
def fp32_adapters_under_the_bf16_block(run: Run) -> None:
    """The base is frozen in bf16, the adapters are fp32, and the JSON turns bf16 on."""
    model = _adapted(run, base="bfloat16", adapters="float32")
    run.train(run.engine(model), intent=_ADAPTERS)


@case(
    kind="J",
    refs=["huggingface/trl#6089", "deepspeedai/DeepSpeed#8073", "deepspeedai/DeepSpeed#8066"],
    fixes=[Fix("deepspeed", "0.19.3", "deepspeedai/DeepSpeed#8073")],
    recipe="fp32 adapters added after zero.Init, with the bf16 block",
    moment="before the engine",
    happens="DeepSpeed 0.19.2 alone fails at the first step where parameters are small enough to stay whole: one "
    "gather has two dtypes. All others train.",
    instead="make the adapters in the base's dtype (PEFT: `autocast_adapter_dtype=False`).",
    cure="bf16_adapters_after_zero_init",
    variants=[_half(3, init="zero_init", persistence="default"), _half(3, init="zero_init")],
)
def fp32_adapters_after_zero_init(run: Run) -> None:
    """The base is built in bf16 under ``zero.Init``; the adapters come outside it and in fp32, as PEFT's do.

    Up to 0.19.1 ``deepspeed.initialize`` made all of the model bf16, adapters among it.  From 0.19.2 on it leaves a
    model alone that has anything from ``zero.Init`` (#8066; ``_cast_module_mixed_precision`` in
    deepspeed/runtime/engine.py, read in 0.19.8), so adapters stay fp32; and only 0.19.3 can gather both at once.
    """
    model = _adapted(run, base="bfloat16", adapters="float32")
    run.train(run.engine(model), intent=_ADAPTERS)


@case(
    kind="CONTROL",
    recipe="bf16 adapters added after zero.Init, with the bf16 block",
    moment="before the engine",
    happens="Trains: all weights are of one dtype, and what trains has fp32 copies.",
    variants=[_half(3, init="zero_init", persistence="default"), _half(3, init="zero_init")],
)
def bf16_adapters_after_zero_init(run: Run) -> None:
    """The base is built in bf16 under ``zero.Init``; the adapters come outside it, in bf16."""
    model = _adapted(run, base="bfloat16", adapters="bfloat16")
    run.train(run.engine(model), intent=_ADAPTERS)


@case(
    kind="CONTROL",
    recipe="fp32 adapters given to the optimizer alone, no bf16 block",
    moment="before the engine",
    happens="Trains at stage 1, too: no frozen bf16 parameter stands first in a group.",
    variants=[_half(1), _half(3)],
)
def fp32_adapters_alone_in_the_optimizer(run: Run) -> None:
    """A frozen bf16 base without the block, and the optimizer gets what trains."""
    model = _adapted(run, base="bfloat16", adapters="float32")
    trained = [one for one in model.parameters() if one.requires_grad]
    run.train(run.engine(model, parameters=trained, bf16=_NO_BLOCK), intent=_ADAPTERS)


@case(
    kind="J",
    refs=["deepspeedai/DeepSpeed#8073"],
    fixes=[Fix("deepspeed", "0.19.3", "deepspeedai/DeepSpeed#8073")],
    recipe="bf16 adapters on a frozen fp32 base, no bf16 block",
    moment="before the engine",
    happens="Trains. Before DeepSpeed 0.19.3 stage 3 fails where parameters are small enough to stay whole, as with "
    "fp32 adapters on a bf16 base.",
    instead="keep base and adapters in one dtype.",
    cure="bf16_adapters_after_zero_init",
    variants=[_half(1), _half(2), _half(3), _half(3, persistence="default")],
)
def bf16_adapters_on_fp32_base(run: Run) -> None:
    """The other way round: an fp32 base, and adapters that were loaded in bf16.

    ``_allgather_params_coalesced`` in deepspeed/runtime/zero/partition_parameters.py makes all its buffers in the dtype
    of the first parameter (0.19.2), or each in its own parameter's (0.19.8).
    """
    model = _adapted(run, base="float32", adapters="bfloat16")
    run.train(run.engine(model, bf16=_NO_BLOCK), intent=_ADAPTERS)


@case(
    kind="J",
    refs=["hiyouga/LlamaFactory#2774", "huggingface/trl#1770", "axolotl-ai-cloud/axolotl#954"],
    recipe="fp32 and bf16 parameters both train, in one group",
    moment="before the engine",
    happens="Stage 3 raises an AssertionError without a word while the engine is made; stages 1 and 2 turn what trains "
    "into one dtype, and the first forward fails on the other. Stage 0 trains.",
    instead="give all that trains one dtype, by DeepSpeed's bf16 block, say.",
    cure="fp32_adapters_under_the_bf16_block",
    variants=[_half(3), _half(2), _half(1), _half(0)],
)
def two_dtypes_train(run: Run) -> None:
    """fp32 adapters train, and with them the head, which is bf16 as the base is.

    Stage 3 lays the shares of a sub-group into one buffer (``defragment`` in deepspeed/runtime/zero/utils.py, read in
    0.19.8) and asserts that there is one dtype.  Stages 1 and 2 flatten each group (stage_1_and_2.py), for which torch
    promotes bf16 to fp32, and make every parameter a view of that.
    """
    model = _adapted(run, base="bfloat16", adapters="float32")
    trained = (*_ADAPTERS, *run.part("head"))
    for one in model.head.parameters():
        one.requires_grad = True
    run.train(run.engine(model, bf16=_NO_BLOCK), intent=trained)


@case(
    kind="J",
    refs=["deepspeedai/DeepSpeed#8113"],
    fixes=[Fix("deepspeed", "0.19.3", "deepspeedai/DeepSpeed#8113")],
    recipe="fp32 adapters on a frozen bf16 base, DeepSpeed's `torch_autocast`",
    moment="before the engine",
    happens="Before DeepSpeed 0.19.3, stage 3 raises that all params must have the same dtype in the first forward. "
    "Stage 1 before 0.19.8 is silent: no gradient is reduced.",
    instead="keep base and adapters in one dtype under `torch_autocast`.",
    cure="autocast_one_dtype",
    variants=[_half(3), _half(3, persistence="default"), _half(2), _half(1)],
)
def autocast_two_dtypes(run: Run) -> None:
    """A bf16 base, fp32 adapters, and the ``torch_autocast`` block for what is to be computed in which.

    Modules that are fetched together come in one gather, for which ``_all_gather_dtype`` asserted one dtype (in
    deepspeed/runtime/zero/partition_parameters.py, read in 0.19.2).  Stage 1 is the case without autocast over again.
    """
    model = _adapted(run, base="bfloat16", adapters="float32")
    run.train(run.engine(model, bf16=_NO_BLOCK, torch_autocast=_AUTOCAST), intent=_ADAPTERS)


@case(
    kind="CONTROL",
    recipe="fp32 weights under `torch_autocast`",
    moment="before the engine",
    fixes=[Fix("deepspeed", "0.17.6", "deepspeedai/DeepSpeed#7534")],
    happens="Trains, in bf16 where that is safe; gradients are exchanged in bf16, too. Before DeepSpeed 0.17.6, "
    "stages 1 and 2 give wrong gradients.",
    variants=[_half(3), _half(2), _half(1)],
)
def autocast_one_dtype(run: Run) -> None:
    """fp32 weights, one block of which trains, and the ``torch_autocast`` block."""
    model = run.model()
    freeze_except(model, run.part("block"))
    run.train(run.engine(model, bf16=_NO_BLOCK, torch_autocast=_AUTOCAST), intent=run.part("block"))
