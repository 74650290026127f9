"""Kind O: weights that are wrong before the first step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.cell import Fix, Hyper, Options, case, freeze_except
from harness.cell.models import tiny_llama
from harness.drivers.pretrained import from_config, from_pretrained

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.cell._run import Run

_SGD = Hyper("SGD", weight_decay=0.0)

_STAGE_0, _STAGE_2, _STAGE_3 = Options(model="mlp", stage=0), Options(model="mlp", stage=2), Options(model="mlp")
_ZERO_INIT = Options(model="mlp", init="zero_init")
_PERSISTENT = Options(model="mlp", init="zero_init", persistence="default")
_LLAMA = [Options(stage=2), Options(init="zero_init"), Options(init="zero_init", persistence="default")]

_GATHER = "set them inside `deepspeed.zero.GatheredParameters(..., modifier_rank=0)`."


def _train_head(run: Run, model: Any) -> None:
    freeze_except(model, run.part("head"))
    engine = run.engine(model, hyper=_SGD)
    run.train(engine, intent=run.part("head"), batch=None if run.options.model == "mlp" else tiny_llama.batch)


# -- transformers ------------------------------------------------------------------------------


def _new_head() -> Any:
    from harness.cell.zoo._new_head import NewHead

    return NewHead(tiny_llama.build().config)


@case(
    kind="O",
    refs=["huggingface/transformers#28244", "huggingface/transformers#28245"],
    fixes=[Fix("transformers", "4.37.0", "huggingface/transformers#28245")],
    recipe="a head that the file does not have",
    moment="from_pretrained under zero.Init",
    happens="Silent with transformers 4.36.2 and from 4.57.0 to 4.57.6: the head starts from whatever it was created "
    "with. 5.2.0 makes the embedding the head, which then has no name of its own. All others train.",
    instead="use another release of transformers, or initialise the head yourself, gathered, and with 5.2.0 after it "
    "was given a parameter of its own.",
    cure="missing_head_set_gathered",
    variants=_LLAMA,
    needs=("transformers",),
)
def head_missing_in_file(run: Run) -> None:
    """A base model is saved, and loaded into one with a head, whose ``_init_weights`` says what it starts from.

    Up to 4.36.2 ``_init_weights`` ran on the empty tensors of partitioned parameters, which raises nothing; since
    4.37.0 they are gathered for it.  4.57.0 took them from ``state_dict()``, whose tensors DeepSpeed does not know, so
    that nothing was gathered; 5.0.0 takes them with ``keep_vars``.  5.2.0 takes for tied what has the same address,
    and the data of all partitioned parameters has address 0 (``_initialize_missing_keys`` and
    ``_adjust_tied_keys_with_tied_pointers`` in transformers/modeling_utils.py, read at 4.36.2, 4.56.2, 4.57.6, 5.0.0,
    5.2.0 and 5.3.0).
    """
    _train_head(run, run.model(_new_head, load=lambda reference: _without_head(run, reference)))


def _without_head(run: Run, reference: Any) -> Any:
    return from_pretrained(run, reference, saved=reference.model)


@case(
    kind="CONTROL",
    refs=["huggingface/transformers#28245"],
    recipe="a head that the file does not have, set in a gather",
    moment="from_pretrained under zero.Init",
    happens="Trains, whatever transformers made of the head.",
    variants=_LLAMA[1:2],
    needs=("transformers",),
)
def missing_head_set_gathered(run: Run) -> None:
    """A base model is loaded into one with a head, which is made anew and set inside ``GatheredParameters``.

    A new parameter, since transformers 5.2.0 makes the embedding's the head's.
    """
    _train_head(run, run.model(_new_head, load=lambda reference: _set_head(_without_head(run, reference))))


def _set_head(model: Any) -> Any:
    """Gathered, where it is partitioned; a new parameter, where it is the embedding."""
    import deepspeed
    import torch

    if model.lm_head.weight is model.model.embed_tokens.weight:
        model.lm_head.weight = torch.nn.Parameter(torch.empty(model.config.vocab_size, model.config.hidden_size))
    with deepspeed.zero.GatheredParameters(model.lm_head.weight, modifier_rank=0), torch.no_grad():
        model.lm_head.weight.fill_(0.125)
    return model


@case(
    kind="CONTROL",
    refs=["huggingface/transformers#42626"],
    recipe="a file that has everything",
    moment="from_pretrained under zero.Init",
    happens="Trains with every release that was measured. A pre-release of transformers 5 (5.0.0rc0) drew every weight "
    "anew after it had been loaded; no stack has it.",
    variants=_LLAMA,
    needs=("transformers",),
)
def whole_file_loaded(run: Run) -> None:
    """A model is saved and loaded; every weight must be what was saved.

    5.0.0rc0 loaded under ZeRO-3 without marking what it had loaded, so that ``_init_weights`` took all of it for
    missing; later ones mark it (transformers/integrations/deepspeed.py, read at 5.0.0rc1).
    """
    _train_head(run, run.model(load=lambda reference: from_pretrained(run, reference)))


@case(
    kind="O",
    refs=["huggingface/transformers#43847"],
    fixes=[Fix("transformers", "5.3.0", "huggingface/transformers#43847")],
    recipe="a model made from its configuration",
    moment="from_config under zero.Init",
    happens="Silent with transformers from 4.52 to 5.2.0: no weight is what `_init_weights` says; all are as they were "
    "created. Trains before, and from 5.3.0 on.",
    instead="use another release of transformers, or initialise the weights yourself, gathered.",
    cure="made_from_config_set_gathered",
    variants=_LLAMA[:2],
    needs=("transformers",),
)
def made_from_config(run: Run) -> None:
    """``AutoModel.from_config``: nothing is loaded, so that ``_init_weights`` decides on every weight.

    ``_init_weights`` runs on parameters that are partitioned by then.  Up to 4.51.3 it was ``Module.apply`` that called
    it, which ``zero.Init`` replaces by one that gathers; since 4.52 it is a method of transformers' own, which nobody
    replaces.  5.3.0 runs it again, gathered (``initialize_weights`` and ``_from_config`` in
    transformers/modeling_utils.py, read at 4.51.3, 4.52.4, 5.2.0 and 5.3.0).
    """
    _train_head(run, run.model(_new_head, load=lambda reference: _of_config(run, reference)))


def _of_config(run: Run, reference: Any) -> Any:
    return from_config(run, reference, keep=run.part("head"))


@case(
    kind="CONTROL",
    refs=["huggingface/transformers#43847"],
    recipe="a model made from its configuration, its head set in a gather",
    moment="from_config under zero.Init",
    happens="Trains, whatever ``_init_weights`` reached.",
    variants=[Options(init="zero_init")],
    needs=("transformers",),
)
def made_from_config_set_gathered(run: Run) -> None:
    """``AutoModel.from_config``, and then the head is set inside ``GatheredParameters``."""
    _train_head(run, run.model(_new_head, load=lambda reference: _set_head(_of_config(run, reference))))


# -- by hand -----------------------------------------------------------------------------------


def _fill(model: Any) -> Any:
    import torch

    with torch.no_grad():
        model.head.weight.fill_(0.125)
    return model


def _fill_gathered(modifier_rank: int | None) -> Callable[[Any], Any]:
    def fill(model: Any) -> Any:
        import deepspeed

        with deepspeed.zero.GatheredParameters(model.head.weight, modifier_rank=modifier_rank):
            return _fill(model)

    return fill


@case(
    kind="O",
    recipe="weights set without a gather",
    moment="after zero.Init",
    happens="Silent: what is set is an empty tensor. The weight stays what it was, on every rank.",
    instead=_GATHER,
    cure="set_in_gather_with_modifier",
    variants=[_STAGE_3, _ZERO_INIT],
)
def set_without_gather(run: Run) -> None:
    """The head is to start from a constant; this is what ``torch.nn.init`` does, too.

    A partitioned parameter's data has no elements; what it had lies in ``ds_tensor`` (``free_param`` in
    deepspeed/runtime/zero/partition_parameters.py, read at 0.19.8).
    """
    _train_head(run, run.model(wrap=_fill))


@case(
    kind="O",
    recipe="an init function that asks for dimensions",
    moment="after zero.Init",
    happens="Silent: no matrix is initialised, since none has two dimensions, and what is set reaches no weight.",
    instead=_GATHER,
    cure="set_in_gather_with_modifier",
    variants=[_STAGE_3, _ZERO_INIT],
)
def init_by_dimension(run: Run) -> None:
    """Xavier for matrices and zeros for the rest, the guard that keeps ``xavier_uniform_`` from raising.

    As for ``set_without_gather``.  Without the guard ``xavier_uniform_`` would raise, and tell, since it asks for two
    dimensions itself (``_calculate_fan_in_and_fan_out`` in torch/nn/init.py, read at torch 2.13.0).
    """

    def initialise(model: Any) -> Any:
        import torch

        for one in model.parameters():
            if one.dim() > 1:
                torch.nn.init.xavier_uniform_(one)
            else:
                torch.nn.init.zeros_(one)
        return model

    _train_head(run, run.model(wrap=initialise))


@case(
    kind="O",
    refs=["deepspeedai/DeepSpeed#7817", "deepspeedai/DeepSpeed#7832"],
    fixes=[
        Fix(
            "deepspeed",
            "0.18.7",
            "deepspeedai/DeepSpeed#7832",
            because="the check is off by default: `enable_sanity_checks` turns it on.",
        )
    ],
    recipe="weights set in a gather without modifier_rank",
    moment="after zero.Init",
    happens="Silent: what was set is gone at the end of the gather, on every rank.",
    instead="give `modifier_rank=0`.",
    cure="set_in_gather_with_modifier",
    variants=[_STAGE_3, _ZERO_INIT, _PERSISTENT],
)
def set_in_gather_without_modifier(run: Run) -> None:
    """The head is to start from a constant; the gather is told nothing of that.

    At its end the gathered tensor is freed and the partition, which nobody wrote, is the weight again
    (``GatheredParameters.__exit__`` in deepspeed/runtime/zero/partition_parameters.py, read at 0.10.3 and 0.19.8).
    From 0.18.7 on it is refused where ``enable_sanity_checks`` is set (deepspeedai/DeepSpeed#7832), which it is not by
    default.
    """
    _train_head(run, run.model(wrap=_fill_gathered(None)))


@case(
    kind="CONTROL",
    recipe="weights set in a gather with modifier_rank",
    moment="after zero.Init",
    happens="Trains from what was set.",
    variants=[_STAGE_3, _ZERO_INIT, _PERSISTENT],
)
def set_in_gather_with_modifier(run: Run) -> None:
    """The head starts from a constant that rank 0 sends to all."""
    _train_head(run, run.model(wrap=_fill_gathered(0)))


@case(
    kind="O",
    recipe="load_state_dict without a gather",
    moment="after zero.Init",
    happens="Raises a size mismatch: every partitioned parameter has shape [0].",
    instead="load inside `deepspeed.zero.GatheredParameters(..., modifier_rank=0)`.",
    cure="load_state_dict_in_gather",
    variants=[_STAGE_3, _ZERO_INIT],
)
def load_state_dict_without_gather(run: Run) -> None:
    """A head's weight from a file, by PyTorch's own ``load_state_dict``.

    It compares shapes first, strict or not (``_load_from_state_dict`` in torch/nn/modules/module.py, read at torch
    2.13.0), and a partitioned parameter's data is an empty tensor.
    """

    _train_head(run, run.model(wrap=_load))


@case(
    kind="CONTROL",
    recipe="load_state_dict in a gather with modifier_rank",
    moment="after zero.Init",
    happens="Trains from what was loaded.",
    variants=[_ZERO_INIT],
)
def load_state_dict_in_gather(run: Run) -> None:
    """A head's weight from a file, loaded while the weights are gathered; rank 0's is sent to all."""

    def load(model: Any) -> Any:
        import deepspeed

        with deepspeed.zero.GatheredParameters([*model.parameters()], modifier_rank=0):
            return _load(model)

    _train_head(run, run.model(wrap=load))


def _load(model: Any) -> Any:
    import torch

    model.load_state_dict({"head.weight": torch.full((8, 32), 0.125)}, strict=False)
    return model


@case(
    kind="O",
    refs=["deepspeedai/DeepSpeed#6411"],
    recipe="weights set in a gather with modifier_rank",
    moment="after the engine",
    happens="Silent at stages 1 to 3: the first step starts from the weights that were there before, and what was set "
    "is gone. Stage 0 trains.",
    instead="set what the optimizer steps as well: `deepspeed.utils.safe_set_full_fp32_param`.",
    cure="set_after_engine_for_the_optimizer",
    variants=[_STAGE_0, _STAGE_2, _STAGE_3],
)
def set_after_engine(run: Run) -> None:
    """The engine exists, and a head that trains is given other weights.

    The optimizer steps flat copies that it made when it was created, in fp32 too, and copies them over the model's
    weights (``_create_fp32_partitions`` in deepspeed/runtime/zero/stage3.py, ``single_partition_of_fp32_groups`` in
    stage_1_and_2.py, read at 0.19.8).
    """
    model = run.model()
    freeze_except(model, run.part("head"))
    engine = run.engine(model, hyper=_SGD)
    run.alter(model, _fill_gathered(0))
    run.train(engine, intent=run.part("head"))


@case(
    kind="CONTROL",
    refs=["deepspeedai/DeepSpeed#6411"],
    recipe="weights set for model and optimizer",
    moment="after the engine",
    happens="Trains from what was set.",
    variants=[_STAGE_2, _STAGE_3],
)
def set_after_engine_for_the_optimizer(run: Run) -> None:
    """A head that trains is given other weights, and the optimizer's copy of it as well."""

    def fill(model: Any) -> None:
        import torch
        from deepspeed.utils import safe_set_full_fp32_param

        _fill_gathered(0)(model)
        safe_set_full_fp32_param(model.head.weight, torch.full((8, 32), 0.125))

    model = run.model()
    freeze_except(model, run.part("head"))
    engine = run.engine(model, hyper=_SGD)
    run.alter(model, fill)
    run.train(engine, intent=run.part("head"))


@case(
    kind="CONTROL",
    refs=["deepspeedai/DeepSpeed#6411"],
    recipe="frozen weights set in a gather with modifier_rank",
    moment="after the engine",
    happens="Trains from what was set: the optimizer has no copy of what is frozen.",
    variants=[_STAGE_2, _STAGE_3, _PERSISTENT],
)
def set_frozen_after_engine(run: Run) -> None:
    """The engine exists, and a frozen head is given other weights."""
    model = run.model()
    freeze_except(model, run.part("block"))
    engine = run.engine(model, hyper=_SGD)
    run.alter(model, _fill_gathered(0))
    run.train(engine, intent=run.part("block"))


@case(
    kind="CONTROL",
    refs=["deepspeedai/DeepSpeed#4138"],
    fixes=[
        Fix(
            "deepspeed",
            "0.10.2",
            "deepspeedai/DeepSpeed#4138",
            because="the releases before it train on no CPU.",
        )
    ],
    recipe="a parameter made from a tensor that requires grad",
    moment="under zero.Init",
    happens="No fault from DeepSpeed 0.10.2 on, which is before what was measured (0.10.3 and later).",
    variants=[_ZERO_INIT, Options(model="mlp", init="zero_init", precision="bf16")],
)
def made_from_tensor_that_requires_grad(run: Run) -> None:
    """``nn.Parameter(torch.ones(8, requires_grad=True))`` in a module's constructor."""
    from harness.cell.models import mlp
    from harness.cell.zoo._scaled import Scaled

    model = run.model(Scaled)
    freeze_except(model, "scale")
    engine = run.engine(model, hyper=_SGD)
    run.train(engine, intent="scale", batch=mlp.batch)
