"""Kind F: code that reads a partitioned parameter's size, which is 0, when it freezes, wraps or counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.cell import Fix, Group, Hyper, Options, case, freeze_except
from harness.cell.models import tiny_llama
from harness.drivers.adapters import adapted
from harness.drivers.pretrained import as_told, told_of_zero_3

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from harness.cell._run import Run

_SGD = Hyper("SGD", weight_decay=0.0)

_STAGE_2, _STAGE_3 = Options(model="mlp", stage=2), Options(model="mlp")
_ZERO_INIT = Options(model="mlp", init="zero_init")
_LLAMA = [Options(stage=2), Options(init="zero_init")]

_TOLD = "keep a `transformers.integrations.HfDeepSpeedConfig` alive from before the model is made."


def _dimensions(parameter: nn.Parameter) -> int:
    """Of the whole parameter, partitioned or not."""
    return len(getattr(parameter, "ds_shape", parameter.shape))


def _groups(run: Run, by_dimension: dict[bool, list[nn.Parameter]]) -> list[dict[str, Any]]:
    """Matrices decay; what has one dimension does not.  The twin is told the same by name."""
    run.hyper = Hyper("SGD", weight_decay=0.1, split=(Group("*.bias", weight_decay=0.0),))
    return [
        {"params": by_dimension[True], "weight_decay": run.hyper.weight_decay},
        {"params": by_dimension[False], "weight_decay": 0.0},
    ]


@case(
    kind="F",
    recipe="optimizer groups by number of dimensions",
    moment="after zero.Init",
    happens="Silent under zero.Init: a partitioned parameter has one dimension, whatever it is, so that all of them "
    "fall into the group without weight decay.",
    instead="sort by `len(parameter.ds_shape)`, or by name.",
    cure="sorted_by_ds_shape",
    variants=[_STAGE_2, _STAGE_3, _ZERO_INIT],
)
def groups_by_dimension(run: Run) -> None:
    """Weight decay for what has two dimensions or more, none for biases and norms, as it is usually written.

    A partitioned parameter's data is an empty tensor of one dimension; its shape is kept as ``ds_shape``
    (``free_param`` in deepspeed/runtime/zero/partition_parameters.py, read at 0.19.8).
    """
    model = run.model()
    freeze_except(model, run.part("block"))
    trained = [one for one in model.parameters() if one.requires_grad]
    sorted_ = {matrix: [one for one in trained if (one.dim() > 1) is matrix] for matrix in (True, False)}
    engine = run.engine(model, parameters=_groups(run, sorted_))
    run.train(engine, intent=run.part("block"))


@case(
    kind="F",
    recipe="freezing by number of dimensions",
    moment="after zero.Init",
    happens="Silent under zero.Init: everything trains, since everything has one dimension.",
    instead="choose by `len(parameter.ds_shape)`, or by name.",
    cure="sorted_by_ds_shape",
    variants=[_STAGE_2, _STAGE_3, _ZERO_INIT],
)
def freeze_by_dimension(run: Run) -> None:
    """Train biases only, chosen as what has one dimension.

    As for ``groups_by_dimension``: a partitioned parameter's data is an empty tensor of one dimension (``free_param``
    in deepspeed/runtime/zero/partition_parameters.py, read at 0.19.8).
    """
    model = run.model()
    for parameter in model.parameters():
        parameter.requires_grad = parameter.dim() < 2
    engine = run.engine(model, hyper=_SGD)
    run.train(engine, intent="*.bias")


@case(
    kind="CONTROL",
    recipe="sorted by `ds_shape`",
    moment="after zero.Init",
    happens="Trains: `ds_shape` is the shape of the whole parameter, partitioned or not.",
    variants=[_STAGE_2, _STAGE_3, _ZERO_INIT],
)
def sorted_by_ds_shape(run: Run) -> None:
    """Freeze and group by the number of dimensions that the whole parameter has."""
    model = run.model()
    freeze_except(model, (*run.part("block"), *run.part("head")))
    # Its matrix, not its bias: a bias alone is another fault (`biases_alone`).
    for parameter in model.head.parameters():
        parameter.requires_grad = _dimensions(parameter) > 1
    trained = [one for one in model.parameters() if one.requires_grad]
    sorted_ = {matrix: [one for one in trained if (_dimensions(one) > 1) is matrix] for matrix in (True, False)}
    engine = run.engine(model, parameters=_groups(run, sorted_))
    run.train(engine, intent=(*run.part("block"), "head.weight"))


@case(
    kind="CONTROL",
    refs=["huggingface/transformers#22179", "TinyLLaVA/TinyLLaVA_Factory#131"],
    recipe="0 trainable parameters are counted",
    moment="after zero.Init",
    happens="No fault: what is counted is what this rank holds unpartitioned, which is nothing. All of them train, and "
    "`ds_numel` counts them.",
    variants=[_STAGE_3, _ZERO_INIT],
)
def trainable_count_is_zero(run: Run) -> None:
    """The sum of ``numel`` over what trains, and that of ``ds_numel``."""
    model = run.model()
    freeze_except(model, run.part("block"))
    trained = [one for one in model.parameters() if one.requires_grad]
    counted = sum(one.numel() for one in trained)
    whole = sum(getattr(one, "ds_numel", one.numel()) for one in trained)
    run.note(f"numel counts {counted} trainable elements, ds_numel {whole}")
    assert whole == 32 * 32 + 32, f"ds_numel counts {whole}"
    assert counted == (0 if run.options.init == "zero_init" else whole), f"numel counts {counted}"
    engine = run.engine(model, hyper=_SGD)
    run.train(engine, intent=run.part("block"))


# -- PEFT --------------------------------------------------------------------------------------


@case(
    kind="CONTROL",
    recipe="LoRA on modules",
    moment="after zero.Init",
    happens="Trains: a linear layer says its sizes itself, so nothing needs to be told.",
    variants=[_STAGE_2, _ZERO_INIT],
    needs=("peft",),
)
def lora_after_zero_init(run: Run) -> None:
    """An adapter around a linear layer that is partitioned already; transformers is not told."""
    model = run.model(wrap=adapted("LoraConfig", r=4, target_modules=["layers.2"]))
    engine = run.engine(model, hyper=_SGD)
    run.train(engine, intent="*lora_*")


@case(
    kind="F",
    refs=["huggingface/peft#2855", "huggingface/peft#2916", "huggingface/peft#3576"],
    fixes=[Fix("peft", "0.21.0", "huggingface/peft#3576")],
    recipe="LoRA on parameters by name",
    moment="after zero.Init",
    happens="Under zero.Init raises an IndexError while the adapter is built, up to PEFT 0.20.0; later ones train.",
    instead="use PEFT 0.21.0 or newer, or put the adapter around a model that is whole.",
    cure="lora_target_parameters_made_whole",
    variants=[_STAGE_2, _ZERO_INIT],
    needs=("peft",),
)
def lora_target_parameters(run: Run) -> None:
    """``target_parameters``, which is meant for experts that are no linear layers.

    ``ParamWrapper`` took in and out features from ``param.shape``; since 0.21.0 from ``ds_shape`` where there is one
    (peft/tuners/lora/layer.py, read at 0.20.0 and 0.21.2).
    """
    model = run.model(wrap=as_told(run, _on_parameters()))
    engine = run.engine(model, hyper=_SGD)
    run.train(engine, intent="*lora_*")


@case(
    kind="CONTROL",
    refs=["huggingface/peft#2855"],
    recipe="LoRA on parameters by name",
    moment="before the engine, without zero.Init",
    happens="Trains: PEFT finds the whole parameter, and the engine partitions both.",
    variants=[_STAGE_3],
    needs=("peft",),
)
def lora_target_parameters_made_whole(run: Run) -> None:
    """``target_parameters`` on a model that was made outside ``zero.Init``."""
    model = run.model(under="plain", wrap=_on_parameters())
    engine = run.engine(model, hyper=_SGD)
    run.train(engine, intent="*lora_*")


def _on_parameters() -> Any:
    return adapted("LoraConfig", r=4, target_modules=[], target_parameters=["layers.2.weight"])


@case(
    kind="F",
    refs=["huggingface/peft#1887"],
    fixes=[Fix("peft", "0.12.0", "huggingface/peft#1887")],
    recipe="LoRA that starts from the weights",
    moment="after zero.Init",
    happens="Trains from PEFT 0.12.0 on, and the base weights are changed as the method wants; before, PEFT computes "
    "with an empty weight and raises.",
    instead="use PEFT 0.12.0 or newer, or put the adapter around a model that is whole.",
    cure="lora_starting_from_weights_made_whole",
    variants=[_STAGE_2, _ZERO_INIT],
    needs=("peft",),
)
def lora_starting_from_weights(run: Run) -> None:
    """PiSSA: adapters from the largest singular vectors, which are taken out of the base weight.

    Since 0.12.0 ``reset_lora_parameters`` gathers the weight on the way (``update_layer`` in
    peft/tuners/lora/layer.py, read at 0.11.1 and 0.12.0).
    """
    model = run.model(wrap=as_told(run, _from_weights()), as_made=True)
    engine = run.engine(model, hyper=_SGD)
    run.train(engine, intent="*lora_*")


@case(
    kind="CONTROL",
    refs=["huggingface/peft#1887"],
    recipe="LoRA that starts from the weights",
    moment="before the engine, without zero.Init",
    happens="Trains, and the base weights are changed as the method wants: PEFT finds them whole.",
    variants=[_STAGE_3],
    needs=("peft",),
)
def lora_starting_from_weights_made_whole(run: Run) -> None:
    """PiSSA around a model that was made outside ``zero.Init``."""
    model = run.model(under="plain", wrap=_from_weights(), as_made=True)
    engine = run.engine(model, hyper=_SGD)
    run.train(engine, intent="*lora_*")


def _from_weights() -> Any:
    return adapted("LoraConfig", r=4, target_modules=["layers.2"], init_lora_weights="pissa")


@case(
    kind="F",
    refs=["huggingface/peft#1887"],
    recipe="LoRA that starts from the weights",
    moment="after zero.Init, transformers not told",
    happens="Raises while the adapter is built: PEFT does not gather, and takes an empty weight apart.",
    instead=_TOLD,
    cure="lora_starting_from_weights",
    variants=[_ZERO_INIT],
    needs=("peft",),
)
def lora_starting_from_weights_untold(run: Run) -> None:
    """PiSSA where ``deepspeed.zero.Init`` was entered by hand, so that transformers knows nothing of it.

    PEFT gathers only where ``transformers.integrations.is_deepspeed_zero3_enabled()`` (``gather_params_ctx`` in
    peft/utils/integrations.py, read at 0.21.2), and that looks for a living ``HfDeepSpeedConfig``, not at the model.
    """
    model = run.model(wrap=_from_weights())
    engine = run.engine(model, hyper=_SGD)
    run.train(engine, intent="*lora_*")


@case(
    kind="F",
    refs=["huggingface/peft#1591"],
    fixes=[Fix("peft", "0.11.0", "huggingface/peft#1591")],
    recipe="prompt tuning from a text",
    moment="after zero.Init",
    happens="Trains from PEFT 0.11.0 on; before, it looks words up in an empty embedding and raises.",
    instead="use PEFT 0.11.0 or newer, or start from random vectors (`RANDOM`).",
    cure="prompt_tuning_from_random",
    variants=_LLAMA,
    needs=("peft",),
)
def prompt_tuning_from_text(run: Run) -> None:
    """Virtual tokens that start as the embeddings of a text.

    ``PromptEmbedding`` calls the model's embedding itself, since 0.11.0 inside a gather
    (peft/tuners/prompt_tuning/model.py, read at 0.10.0 and 0.21.2).
    """
    _tune_prompt(
        run,
        prompt_tuning_init="TEXT",
        prompt_tuning_init_text="a b c d",
        tokenizer_name_or_path=str(_tokenizer(run.folder / "tokenizer", run.rank)),
    )


@case(
    kind="CONTROL",
    refs=["huggingface/peft#1591"],
    recipe="prompt tuning from random vectors",
    moment="after zero.Init",
    happens="Trains: nothing of the model is read.",
    variants=_LLAMA,
    needs=("peft",),
)
def prompt_tuning_from_random(run: Run) -> None:
    """Virtual tokens that start anywhere."""
    _tune_prompt(run, prompt_tuning_init="RANDOM")


def _tune_prompt(run: Run, **settings: Any) -> None:
    wrap = adapted("PromptTuningConfig", task_type="CAUSAL_LM", num_virtual_tokens=4, **settings)
    model = run.model(wrap=as_told(run, wrap))
    engine = run.engine(model, hyper=_SGD)
    run.train(engine, intent="prompt_encoder.*")


def _tokenizer(folder: Path, rank: int) -> Path:
    """Of the four words of the text, in a place of this rank's."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(WordLevel({"a": 0, "b": 1, "c": 2, "d": 3}, unk_token="a"))  # noqa: S106  # no password
    tokenizer.pre_tokenizer = Whitespace()
    place = folder / str(rank)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(place)
    return place


@case(
    kind="F",
    refs=["huggingface/peft#1625"],
    fixes=[Fix("peft", "0.11.0", "huggingface/peft#1625")],
    recipe="AdaLoRA",
    moment="after zero.Init",
    happens="Stage 3 raises up to PEFT 0.10.0 in forward, and with DeepSpeed from 0.16.5 to 0.19.2 in backward: "
    "adapters are multiplied while they are partitioned. DeepSpeed up to 0.16.2 and from 0.19.3 on trains, and so does "
    "stage 2.",
    instead="use LoRA, or stage 2.",
    cure="lora_after_zero_init",
    variants=_LLAMA,
    needs=("peft",),
)
def adalora(run: Run) -> None:
    """Adapters whose singular vectors are held orthogonal by a term of the loss; ranks are left as they are.

    The term multiplies each adapter with itself outside the layer that it belongs to.  Since 0.11.0 PEFT gathers it
    for that, and lets it go before backward, which needs it again (``AdaLoraModel.forward`` in
    peft/tuners/adalora/model.py, read at 0.10.0 and 0.21.2).  Which change of DeepSpeed draws the line is not known.
    """
    model = run.model(wrap=as_told(run, _adalora()))
    engine = run.engine(model, hyper=_SGD)
    with told_of_zero_3(run):
        run.train(engine, intent="*lora_*")


@case(
    kind="F",
    refs=["huggingface/peft#1625"],
    recipe="AdaLoRA that allots ranks",
    moment="between backward and step",
    happens="Stage 3 raises with DeepSpeed from 0.16.5 on, even where AdaLoRA itself trains: PEFT multiplies a "
    "partitioned adapter, which is empty, by its whole gradient. Stages 0 and 2 train.",
    instead="use LoRA, or stage 2.",
    cure="lora_after_zero_init",
    variants=[Options(stage=0), *_LLAMA],
    needs=("peft",),
)
def adalora_allots_ranks(run: Run) -> None:
    """``update_and_allocate`` after backward, as PEFT wants it, at steps that look at gradients and change nothing.

    ``RankAllocator.update_ipt`` asks DeepSpeed for the gradient and takes the parameter as it is;
    ``mask_to_budget``, which comes later, writes it so (peft/tuners/adalora/layer.py, read at 0.11.1 and 0.21.2).
    """
    model = run.model(wrap=as_told(run, _adalora()))
    engine = run.engine(model, hyper=_SGD)
    with told_of_zero_3(run):
        run.intend(engine, "*lora_*")
        for step in range(2):
            engine.backward(engine(**run.draw()).loss)
            model.base_model.update_and_allocate(step)
            engine.step()


def _adalora() -> Any:
    settings = {"init_r": 4, "target_r": 2, "tinit": 5, "tfinal": 2, "total_step": 10}
    return adapted("AdaLoraConfig", task_type="CAUSAL_LM", target_modules=["q_proj"], **settings)


@case(
    kind="CONTROL",
    refs=["huggingface/peft#153"],
    recipe="LoRA on Conv1D",
    moment="after zero.Init",
    happens="Trains: for the layers of GPT-2, which keep no sizes beside their weight, PEFT reads `ds_shape`.",
    variants=_LLAMA,
    needs=("peft",),
)
def lora_on_conv1d(run: Run) -> None:
    """A tiny GPT-2 instead of the variant's model."""
    from harness.cell.zoo._gpt2 import tiny_gpt2

    wrap = adapted("LoraConfig", r=4, target_modules=["c_attn"], fan_in_fan_out=True)
    model = run.model(tiny_gpt2, wrap=wrap)
    engine = run.engine(model, hyper=_SGD)
    run.train(engine, intent="*lora_*", batch=tiny_llama.batch)


# -- transformers ------------------------------------------------------------------------------

_ENDS = ("lm_head.*", "model.embed_tokens.*")


def _eight_more_tokens(model: Any) -> Any:
    model.resize_token_embeddings(72)
    return model


@case(
    kind="F",
    refs=[
        "huggingface/transformers#25241",
        "huggingface/transformers#25394",
        "huggingface/transformers#25977",
        "huggingface/transformers#26398",
        "huggingface/transformers#32170",
        "huggingface/transformers#32192",
    ],
    fixes=[Fix("transformers", "4.43.2", "huggingface/transformers#32192")],
    recipe="resize_token_embeddings",
    moment="after zero.Init",
    happens="Trains, old rows and new ones right. With transformers 4.43.0 and 4.43.1 the embedding keeps its old "
    "size, silently, or raising in forward where the head is tied.",
    instead="use another release of transformers, or resize a model that is whole.",
    cure="resized_embeddings_made_whole",
    variants=[*_LLAMA, Options(model="tied_llama", init="zero_init")],
)
def resized_embeddings(run: Run) -> None:
    """Eight tokens more, then embedding and head train; the old rows must be the old ones, the new ones as drawn.

    4.43.0 began to put the new data into the old parameter, which keeps its own partition and size; since 4.43.2 that
    is done inside a gather (``_get_resized_embeddings`` in transformers/modeling_utils.py, read at 4.43.1 and 4.43.4).
    """
    _train_resized(run, run.model(wrap=as_told(run, _eight_more_tokens), as_made=True))


@case(
    kind="CONTROL",
    refs=["huggingface/transformers#32192"],
    recipe="resize_token_embeddings",
    moment="before the engine, without zero.Init",
    happens="Trains, old rows and new ones right: the engine partitions what was resized.",
    variants=[Options(), Options(model="tied_llama")],
)
def resized_embeddings_made_whole(run: Run) -> None:
    """Eight tokens more in a model that is whole, then embedding and head train."""
    _train_resized(run, run.model(under="plain", wrap=_eight_more_tokens, as_made=True))


def _train_resized(run: Run, model: Any) -> None:
    assert model.config.vocab_size == 72, f"vocab_size is {model.config.vocab_size}"
    freeze_except(model, _ENDS)
    engine = run.engine(model, hyper=_SGD)
    run.train(engine, intent=_ENDS[1:] if run.options.model == "tied_llama" else _ENDS)


@case(
    kind="F",
    refs=["huggingface/transformers#26398"],
    recipe="resize_token_embeddings",
    moment="after zero.Init, transformers not told",
    happens="Raises at once: transformers does not gather, and unpacks the two sizes of an embedding that has one.",
    instead=_TOLD,
    cure="resized_embeddings",
    variants=[Options(init="zero_init")],
)
def resized_embeddings_untold(run: Run) -> None:
    """Eight tokens more where ``deepspeed.zero.Init`` was entered by hand.

    ``_get_resized_embeddings`` gathers where ``is_deepspeed_zero3_enabled()``
    (transformers/modeling_utils.py, read at 5.16.1), which looks for a living ``HfDeepSpeedConfig``.
    """
    model = run.model(wrap=_eight_more_tokens)
    freeze_except(model, _ENDS)
    engine = run.engine(model, hyper=_SGD)
    run.train(engine, intent=_ENDS)


@case(
    kind="F",
    recipe="a model with a padding token, by its class",
    moment="inside zero.Init",
    happens="Raises while the model is built, with transformers newer than 4.46: the row of the padding token is to be "
    "filled with zeros, and the embedding has no rows any more.",
    instead="load it by `from_pretrained`, with a `transformers.integrations.HfDeepSpeedConfig` alive.",
    cure="architectures_freeze_except",
    variants=[Options(model="llama", stage=2), Options(model="llama", init="zero_init")],
)
def padding_token_inside_zero_init(run: Run) -> None:
    """``LlamaForCausalLM(config)`` inside ``deepspeed.zero.Init``, with ``pad_token_id`` in the configuration.

    When the model is whole, transformers draws its weights again and zeros the row of the padding token, by when every
    parameter is partitioned.  In transformers/modeling_utils.py of 4.46.3 that goes by ``Module.apply``, which
    ``zero.Init`` wraps in a gather (``apply_with_gather`` in deepspeed/runtime/zero/partition_parameters.py, 0.19.8);
    by 4.53.3 it goes by a ``smart_apply`` of transformers' own, which nobody wraps (read in 5.16.1, too).
    ``from_pretrained`` draws nothing that it loads.
    """
    model = run.model()
    freeze_except(model, run.part("block"))
    engine = run.engine(model)
    run.train(engine, intent=run.part("block"))


@case(
    kind="F",
    refs=["huggingface/transformers#41959"],
    recipe="a head rebuilt by hand",
    moment="after zero.Init",
    happens="Raises: the old weight that is to be copied is empty.",
    instead="copy inside `deepspeed.zero.GatheredParameters`.",
    cure="head_rebuilt_in_gather",
    variants=[_STAGE_2, _STAGE_3, _ZERO_INIT],
)
def head_rebuilt(run: Run) -> None:
    """A new linear layer in place of the old head, and the old weight copied in.

    A partitioned parameter's data is an empty tensor until it is gathered (``free_param`` in
    deepspeed/runtime/zero/partition_parameters.py, read at 0.19.8).
    """
    model = run.model(wrap=lambda model: _with_new_head(model, gather=False), as_made=True)
    freeze_except(model, run.part("head"))
    engine = run.engine(model, hyper=_SGD)
    run.train(engine, intent=run.part("head"))


@case(
    kind="CONTROL",
    refs=["huggingface/transformers#41959"],
    recipe="a head rebuilt by hand",
    moment="after zero.Init, inside a gather",
    happens="Trains: the new layer is whole until the engine partitions it with the rest.",
    variants=[_STAGE_3, _ZERO_INIT],
)
def head_rebuilt_in_gather(run: Run) -> None:
    """A new linear layer in place of the old head, whose weight is gathered while it is copied in."""
    model = run.model(wrap=lambda model: _with_new_head(model, gather=True), as_made=True)
    freeze_except(model, run.part("head"))
    engine = run.engine(model, hyper=_SGD)
    run.train(engine, intent=run.part("head"))


def _with_new_head(model: Any, *, gather: bool) -> Any:
    import deepspeed
    import torch

    old, new = model.head, torch.nn.Linear(32, 8)
    with deepspeed.zero.GatheredParameters(old.weight, enabled=gather), torch.no_grad():
        new.weight[:8] = old.weight
    model.head = new
    return model
