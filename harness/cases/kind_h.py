"""Kind H: modules attached, replaced or wrapped after DeepSpeed has put its hooks in, or so as to mislead them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.cell import Fix, Options, case, freeze_except

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.cell._run import Run

_STAGE_3 = [Options(model="mlp"), Options(model="mlp", init="zero_init")]
_BELOW = [Options(model="mlp", stage=stage) for stage in (0, 2)]
_PEFT = [Options(stage=2), Options()]
_ADAPTER = ("layers.2.down.*", "layers.2.up.*")


# -- what is attached or replaced ----------------------------------------------------------------


def _attach_adapter(model: Any) -> None:
    from harness.cell.zoo._attached import Adapted

    model.layers[2] = Adapted(model.layers[2])


@case(
    kind="H",
    refs=["deepspeedai/DeepSpeed#6961", "huggingface/trl#6828"],
    fixes=[Fix("deepspeed", "0.19.1", "deepspeedai/DeepSpeed#8009")],
    recipe="an adapter is attached",
    moment="after the engine",
    happens="Stage 3 raises: in the first forward up to DeepSpeed 0.19.0 (torch 2.5 and newer), in the first step "
    "ever since, and on torch before 2.5. The other stages are silent, and the adapter never moves.",
    instead="attach before the engine is created, or create a new engine afterwards.",
    cure="adapter_before_engine",
    variants=[*_BELOW, *_STAGE_3],
)
def adapter_after_engine(run: Run) -> None:
    """Put a low-rank adapter around a layer of a model that has an engine, and train it beside the head.

    Since 0.19.1 ``ensure_zero_ordered_dict`` in runtime/zero/parameter_offload.py gives late modules the container
    that forward writes a mark into, which a plain dict (torch 2.5) refuses.  The step then partitions every parameter
    of the model again and asks each for what only ``zero.Init`` gives it (``release_and_reset_all`` in
    runtime/zero/partitioned_param_coordinator.py, read in 0.19.8).
    """
    model = run.model()
    freeze_except(model, run.part("head"))
    engine = run.engine(model)
    run.alter(model, _attach_adapter)
    run.train(engine, intent=(*run.part("head"), *_ADAPTER))


@case(
    kind="H",
    refs=["deepspeedai/DeepSpeed#6961", "deepspeedai/DeepSpeed#8009"],
    fixes=[Fix("deepspeed", "0.19.1", "deepspeedai/DeepSpeed#8009")],
    recipe="an adapter is attached, made under zero.Init",
    moment="after the engine",
    happens="Silent from DeepSpeed 0.19.1 on: the adapter is gathered and has a local gradient, and never moves. "
    "Before, forward raises.",
    instead="attach before the engine is created, or create a new engine afterwards.",
    cure="adapter_before_engine",
    variants=_STAGE_3,
)
def partitioned_adapter_after_engine(run: Run) -> None:
    """Attach an adapter made as transformers and PEFT make modules while ZeRO-3 is set up: partitioned.

    Its weights have all that DeepSpeed asks a parameter for, and the container of their module gathers them on
    access (``ZeROOrderedDict`` in runtime/zero/parameter_offload.py, 0.19.8), but no optimizer has heard of them.
    """
    model = run.model()
    freeze_except(model, run.part("head"))
    engine = run.engine(model)
    run.alter(model, _attach_adapter, under="zero_init")
    run.train(engine, intent=(*run.part("head"), *_ADAPTER))


@case(
    kind="CONTROL",
    refs=["huggingface/trl#6829"],
    recipe="an adapter is attached",
    moment="before the engine",
    happens="Trains, with the base under `zero.Init` and the adapter not, too: the engine partitions what is whole.",
    variants=[*_BELOW, *_STAGE_3],
)
def adapter_before_engine(run: Run) -> None:
    """Put a low-rank adapter around a layer, and then create the engine."""
    model = run.model()
    run.alter(model, _attach_adapter)
    freeze_except(model, (*run.part("head"), *_ADAPTER))
    engine = run.engine(model)
    run.train(engine, intent=(*run.part("head"), *_ADAPTER))


@case(
    kind="CONTROL",
    recipe="an adapter is attached, and a new engine made",
    moment="after the engine",
    happens="Trains: the old engine takes its hooks out as it is destroyed. DeepSpeed 0.10.3 leaves so much of it in "
    "the parameters that the new engine's backward raises.",
    variants=[*_BELOW, *_STAGE_3],
)
def adapter_then_new_engine(run: Run) -> None:
    """Put a low-rank adapter around a layer once the engine is destroyed, and make another of the same model."""
    model = run.model()
    freeze_except(model, run.part("head"))
    engine = run.engine(model)
    engine.destroy()
    run.alter(model, _attach_adapter)
    engine = run.engine(model)
    run.train(engine, intent=(*run.part("head"), *_ADAPTER))


@case(
    kind="H",
    refs=["huggingface/transformers#41959"],
    recipe="the head is replaced by a new one",
    moment="after the engine",
    happens="Stage 3 raises, as with an adapter. The other stages are silent: the optimizer steps the old head, which "
    "no forward runs, and the new one never moves.",
    instead="replace before the engine is created.",
    cure="head_replaced_before_engine",
    variants=[*_BELOW, Options(model="mlp")],
)
def head_replaced_after_engine(run: Run) -> None:
    """A new head for a new task, in a model that has an engine.

    An optimizer holds parameter objects, not names: ZeRO-1 and ZeRO-2 list theirs once, as ``bit16_groups``
    (runtime/zero/stage_1_and_2.py, 0.19.8). At stage 3 the step asks every parameter of the model for what only
    partitioned ones have (``release_and_reset_all`` in runtime/zero/partitioned_param_coordinator.py, 0.19.8).
    """
    parts = (*run.part("head"), *run.part("block"))
    model = run.model()
    freeze_except(model, parts)
    engine = run.engine(model)
    run.alter(model, _new_head)
    run.train(engine, intent=parts)


@case(
    kind="CONTROL",
    refs=["huggingface/transformers#41959"],
    recipe="the head is replaced by a new one",
    moment="before the engine",
    happens="Trains, under `zero.Init` too, where the new head is whole beside partitioned layers.",
    variants=[*_BELOW, *_STAGE_3],
)
def head_replaced_before_engine(run: Run) -> None:
    """A new head for a new task, and then the engine."""
    parts = (*run.part("head"), *run.part("block"))
    model = run.model()
    run.alter(model, _new_head)
    freeze_except(model, parts)
    engine = run.engine(model)
    run.train(engine, intent=parts)


def _new_head(model: Any) -> None:
    from torch import nn

    model.head = nn.Linear(32, 8)


@case(
    kind="CONTROL",
    recipe="two layers are tied",
    moment="after the engine",
    happens="Trains: no parameter is new, and DeepSpeed gathers one that is another module's when it is asked for.",
    variants=[*_BELOW[1:], *_STAGE_3],
)
def layers_tied_after_engine(run: Run) -> None:
    """One layer takes another's weight, as ``tie_weights`` does, in a model that has an engine."""
    parts = (*run.part("block"), *run.part("other block"))
    model = run.model()
    freeze_except(model, parts)
    engine = run.engine(model)
    run.alter(model, _tie_layers)
    run.train(engine, intent=parts)


def _tie_layers(model: Any) -> None:
    model.layers[1].weight = model.layers[2].weight


@case(
    kind="H",
    recipe="a layer is given a weight norm",
    moment="before the engine",
    happens="Trains on whole weights. Under `zero.Init` it raises: the norm is taken of a weight of size 0.",
    instead="gather the layer's weights around the call.",
    cure="weight_norm_while_gathered",
    variants=[*_BELOW[1:], *_STAGE_3],
)
def weight_norm_before_engine(run: Run) -> None:
    """torch's parametrization moves a layer's weight into a module below it and computes it anew in each forward.

    ``weight_norm`` in torch/nn/utils/parametrizations.py (2.13.0) splits the weight into length and direction at once.
    """
    from torch.nn.utils.parametrizations import weight_norm

    model = run.model()
    run.alter(model, lambda model: weight_norm(model.layers[2]))
    freeze_except(model, run.part("block"))
    engine = run.engine(model)
    run.train(engine, intent=run.part("block"))


@case(
    kind="CONTROL",
    recipe="a layer is given a weight norm, while gathered",
    moment="before the engine",
    happens="Trains: length and direction are whole parameters then, which the engine partitions.",
    variants=_STAGE_3,
)
def weight_norm_while_gathered(run: Run) -> None:
    """torch's parametrization is put on a layer inside ``GatheredParameters``."""
    import deepspeed
    from torch.nn.utils.parametrizations import weight_norm

    def gathered_norm(model: Any) -> None:
        with deepspeed.zero.GatheredParameters(list(model.layers[2].parameters())):
            weight_norm(model.layers[2])

    model = run.model()
    run.alter(model, gathered_norm)
    freeze_except(model, run.part("block"))
    engine = run.engine(model)
    run.train(engine, intent=run.part("block"))


@case(
    kind="H",
    refs=["huggingface/trl#6828"],
    recipe="PEFT adds a second adapter",
    moment="after the engine",
    happens="Stage 3 raises, as with any adapter. Below, DeepSpeed 0.19.8 raises in backward, since no parameter "
    "that it reduces has a gradient; up to 0.16.9 it is silent, and the second adapter never moves.",
    instead="add all adapters before the engine is created.",
    cure="second_lora_before_engine",
    variants=_PEFT,
    needs=("peft",),
)
def second_lora_after_engine(run: Run) -> None:
    """A second LoRA adapter is added and made the active one, as a teacher's copy is in ``on_train_begin``.

    Stage 3 is as with a new head. Stage 2 makes the buffer of a bucket in the first hook of a backward
    (``setup_buckets``) and reduces the bucket at its end, hook or no hook (``reduce_ipg_grads``, both in
    runtime/zero/stage_1_and_2.py, 0.19.8). Only the first adapter has hooks, and it is not active, so there is no
    buffer.
    """
    model = run.model(wrap=_lora)
    engine = run.engine(model)
    run.alter(model, _second_lora)
    run.train(engine, intent="*.second.*")


@case(
    kind="CONTROL",
    refs=["huggingface/trl#6829"],
    recipe="PEFT adds a second adapter",
    moment="before the engine",
    happens="Trains the active one; the other stays put.",
    variants=_PEFT,
    needs=("peft",),
)
def second_lora_before_engine(run: Run) -> None:
    """A second LoRA adapter is added and made the active one, and then the engine created."""
    model = run.model(wrap=_lora)
    run.alter(model, _second_lora)
    engine = run.engine(model)
    run.train(engine, intent="*.second.*")


def _lora_config() -> Any:
    from peft import LoraConfig

    return LoraConfig(r=4, target_modules=["q_proj", "up_proj"])


def _lora(model: Any) -> Any:
    from peft import get_peft_model

    return get_peft_model(model, _lora_config())


def _second_lora(model: Any) -> None:
    model.add_adapter("second", _lora_config())
    model.set_adapter("second")


# -- what is wrapped -----------------------------------------------------------------------------


def _wrap_layers(model: Any, wrapper: Callable[[Any], Any]) -> Any:
    for index, layer in enumerate(model.layers):
        model.layers[index] = wrapper(layer)
    return model


@case(
    kind="H",
    refs=["deepspeedai/DeepSpeed#7203"],
    fixes=[Fix("deepspeed", "0.19.3", "deepspeedai/DeepSpeed#8144")],
    recipe="layers in wrappers that hand attributes on",
    moment="before the engine",
    happens="Stage 3 raises in forward, on a layer that has no `ds_grads_remaining`, up to DeepSpeed 0.19.2.",
    instead="wrap without `__getattr__`, or use DeepSpeed 0.19.3 or newer.",
    cure="plain_wrapper",
    variants=[*_BELOW[1:], *_STAGE_3],
)
def delegating_wrapper(run: Run) -> None:
    """Each layer is in a module whose ``__getattr__`` asks the layer for what it lacks.

    DeepSpeed made a module's backward functions unless ``hasattr`` found some (``_register_deepspeed_module`` in
    runtime/zero/parameter_offload.py, 0.19.2), and such a wrapper seems to have its layer's.  0.19.3 looks into
    ``__dict__`` instead.
    """
    from harness.cell.zoo._attached import Delegating

    model = run.model(wrap=lambda model: _wrap_layers(model, Delegating))
    freeze_except(model, run.part("block"))
    engine = run.engine(model)
    run.train(engine, intent=run.part("block"))


@case(
    kind="H",
    refs=["axolotl-ai-cloud/axolotl#3102", "deepspeedai/DeepSpeed#7203"],
    fixes=[Fix("deepspeed", "0.19.3", "deepspeedai/DeepSpeed#8144")],
    recipe="layers in torch's `checkpoint_wrapper`",
    moment="before the engine",
    happens="Stage 3 raises in forward, on a layer that has no `ds_grads_remaining`, up to DeepSpeed 0.19.2: the "
    "wrapper hands attributes on.",
    instead="use DeepSpeed 0.19.3 or newer; before it, the model's own gradient checkpointing, reentrant and with "
    "`enable_input_require_grads()`: non-reentrant, frozen norms raise in that very range of releases "
    "(`frozen_norms_in_checkpoint`).",
    cure="reentrant_with_input_grads",
    variants=[*_BELOW[1:], *_STAGE_3],
)
def torch_checkpoint_wrapper(run: Run) -> None:
    """Each layer is in the wrapper that Axolotl's activation offloading puts around blocks.

    ``ActivationWrapper.__getattr__`` in torch/distributed/algorithms/_checkpoint/checkpoint_wrapper.py (2.13.0) asks
    the wrapped layer for what the wrapper lacks; what ``hasattr`` makes of that is told in ``delegating_wrapper``.
    Axolotl puts it on in axolotl/core/trainers/mixins/activation_checkpointing.py (0.19.0).
    """
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    model = run.model(wrap=lambda model: _wrap_layers(model, checkpoint_wrapper))
    freeze_except(model, run.part("block"))
    engine = run.engine(model)
    run.train(engine, intent=run.part("block"))


@case(
    kind="CONTROL",
    recipe="layers in wrappers that hand nothing on",
    moment="before the engine",
    happens="Trains.",
    variants=_STAGE_3,
)
def plain_wrapper(run: Run) -> None:
    """Each layer is in a module that holds it, without ``__getattr__``."""
    from harness.cell.zoo._attached import Holding

    model = run.model(wrap=lambda model: _wrap_layers(model, Holding))
    freeze_except(model, run.part("block"))
    engine = run.engine(model)
    run.train(engine, intent=run.part("block"))


@case(
    kind="H",
    refs=["deepspeedai/DeepSpeed#6961"],
    fixes=[Fix("deepspeed", "0.19.1", "deepspeedai/DeepSpeed#8009")],
    recipe="layers are put into wrappers",
    moment="after the engine",
    happens="Trains from DeepSpeed 0.19.1 on, and on torch before 2.5. Between, stage 3 raises in forward, though no "
    "parameter is new.",
    instead="wrap before the engine is created.",
    cure="plain_wrapper",
    variants=_STAGE_3,
)
def layers_wrapped_after_engine(run: Run) -> None:
    """Each layer is put into a module that holds it, once the engine exists; this is all that the fix of 0.19.1 mends.

    Each forward of stage 3 sets a mark on ``_parameters`` of every module, a wrapper without parameters among them, and
    a plain dict takes no marks. Up to 0.19.0 nothing replaces it; since then ``ensure_zero_ordered_dict`` does so first
    (deepspeed/runtime/engine.py, 0.19.0 and 0.19.8).
    """
    from harness.cell.zoo._attached import Holding

    model = run.model()
    freeze_except(model, run.part("block"))
    engine = run.engine(model)
    run.alter(model, lambda model: _wrap_layers(model, Holding))
    run.train(engine, intent=run.part("block"))


@case(
    kind="H",
    recipe="a layer in `torch.compile`",
    moment="before the engine",
    happens="Stage 3 raises in the first forward (torch 2.13), and the layer has lost its parameters by then: "
    "`named_parameters` has none of them any more. Stage 2 trains.",
    instead="compile the layer's `forward` and not the layer.",
    cure="compiled_forward",
    variants=[*_BELOW[1:], *_STAGE_3[:1]],
    deadline=60.0,
)
def compiled_layer(run: Run) -> None:
    """One layer is in the module that ``torch.compile`` gives.

    DeepSpeed puts a container of its own in place of each module's ``_parameters`` (``_inject_parameters`` in
    runtime/zero/parameter_offload.py, 0.19.8), starting with the wrapper, which has none.  The wrapper sets
    attributes on what it wraps (``OptimizedModule.__setattr__`` in torch/_dynamo/eval_frame.py, 2.13.0), so the empty
    container replaces the layer's full one.
    """
    import torch

    def compile_layer(model: Any) -> Any:
        model.layers[2] = _compiled(model.layers[2])
        return model

    model = run.model(wrap=compile_layer)
    freeze_except(model, run.part("block"))
    engine = run.engine(model)
    # A run is told its intent by the names that there are, and the engine has just taken the layer's away: a forward
    # comes first, as a user's does, so that its error is seen and not ours.
    with torch.no_grad():
        engine(**run.draw())
    run.train(engine, intent=run.part("block"))


@case(
    kind="CONTROL",
    recipe="a layer whose `forward` is compiled",
    moment="before the engine",
    happens="Trains: DeepSpeed's hooks run outside of what is compiled, and no module stands between.",
    variants=[*_BELOW[1:], *_STAGE_3[:1]],
    deadline=60.0,
)
def compiled_forward(run: Run) -> None:
    """One layer's ``forward`` is what ``torch.compile`` gives."""

    def compile_forward(model: Any) -> Any:
        model.layers[2].forward = _compiled(model.layers[2].forward)
        return model

    model = run.model(wrap=compile_forward)
    freeze_except(model, run.part("block"))
    engine = run.engine(model)
    run.train(engine, intent=run.part("block"))


def _compiled(what: Any) -> Any:
    import torch

    # Runs the graph as it was traced: nothing is generated, and no compiler is needed.
    return torch.compile(what, backend="eager")
