"""Kind Q: flags and patterns that do not freeze, or train, what their author meant."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from harness.cell import Fix, Model, Options, case, freeze_all_then_unfreeze, freeze_except
from harness.cell.models import deep_mlp
from harness.drivers.axolotl import freeze_layers_except
from harness.drivers.trainer import train_with_trainer

if TYPE_CHECKING:
    import torch
    from torch import nn

    from harness.cell._run import Run
    from harness.cell.models import Batch

_MLP = [Options(model="mlp", stage=stage) for stage in (0, 3)]
_DEEP = [Options(model="deep_mlp", stage=stage) for stage in (2, 3)]
_LLAMA = [Options(stage=stage) for stage in (2, 3)]
_TOWERS = [Options(model="towers")]


# -- flags ---------------------------------------------------------------------------------------


@case(
    kind="Q",
    recipe="`module.requires_grad = False`",
    moment="before the engine",
    happens="Everything trains: a module has no such flag, so the line makes an attribute that nobody reads.",
    instead="call `module.requires_grad_(False)`.",
    cure="flag_by_the_modules_method",
    variants=_MLP,
)
def flag_set_on_modules(run: Run) -> None:
    """Set ``requires_grad`` on each part of the model that must not train, instead of on its parameters.

    ``Module.__setattr__`` in torch/nn/modules/module.py (2.13.0) takes any name that is no parameter, module or buffer
    for a plain attribute. ``requires_grad_`` there goes through ``parameters()``.
    """
    model = run.model()
    for part in (model.stem, model.layers):
        part.requires_grad = False
    engine = run.engine(model)
    run.train(engine, intent=run.part("head"))


@case(
    kind="Q",
    recipe="`parameter.data.requires_grad = False`",
    moment="before the engine",
    happens="Everything trains: `.data` is a new tensor each time, and the flag of that one is what was set.",
    instead="set the flag on the parameter itself.",
    cure="flag_by_the_modules_method",
    variants=_MLP,
)
def flag_set_on_data(run: Run) -> None:
    """The flag is set on ``parameter.data``.

    Autograd asks the parameter for its flag, and so does DeepSpeed (``is_optimized_parameter`` in
    deepspeed/runtime/utils.py, 0.19.8). A tensor from ``.data`` shares memory with it and nothing else, and is gone
    after the line.
    """
    model = run.model()
    for part in (model.stem, model.layers):
        for parameter in part.parameters():
            parameter.data.requires_grad = False
    engine = run.engine(model)
    run.train(engine, intent=run.part("head"))


@case(
    kind="CONTROL",
    recipe="`module.requires_grad_(False)`",
    moment="before the engine",
    happens="Trains: the method sets the flag of every parameter in the module.",
    variants=_MLP,
)
def flag_by_the_modules_method(run: Run) -> None:
    """Call ``requires_grad_(False)`` on each part of the model that must not train."""
    model = run.model()
    for part in (model.stem, model.layers):
        part.requires_grad_(False)
    engine = run.engine(model)
    run.train(engine, intent=run.part("head"))


@case(
    kind="Q",
    recipe="`module.eval()` as if it froze",
    moment="before the engine",
    happens="Everything trains: `eval` switches dropout and running averages, and no flag. Stage 3 of DeepSpeed up to "
    "0.14.5 refuses a backward through what is in evaluation mode.",
    instead="call `module.requires_grad_(False)`.",
    cure="flag_by_the_modules_method",
    variants=_MLP,
)
def eval_mode_is_no_freezing(run: Run) -> None:
    """What must not train is put into evaluation mode, and nothing else is done to it.

    ``Module.eval`` in torch/nn/modules/module.py (2.13.0) is ``train(False)``, which sets ``training`` on a module and
    on those below it, and touches no parameter.
    """
    model = run.model()
    model.stem.eval()
    model.layers.eval()
    engine = run.engine(model)
    run.train(engine, intent=run.part("head"))


@case(
    kind="Q",
    recipe="forward under `no_grad` as if it froze",
    moment="in forward",
    happens="The part has no gradient and shrinks all the same, at every stage: DeepSpeed gives what its optimizer "
    "holds a gradient of zeros, and AdamW decays it. In plain PyTorch it would stay.",
    instead="turn its flags off as well, before the engine is created.",
    cure="freeze_except_before_engine",
    variants=[Options(model="mlp", stage=stage) for stage in (0, 2, 3)],
)
def no_grad_is_no_freezing(run: Run) -> None:
    """The stem runs under ``torch.no_grad()`` and keeps its flags.

    The zeros are made in ``_get_gradients_for_reduction`` (runtime/engine.py) at stage 0, in ``get_all_grad_tensors``
    (runtime/zero/stage_1_and_2.py) at stage 2, and are what a partition's buffer starts with at stage 3
    (runtime/zero/stage3.py, all 0.19.8). torch's AdamW skips a gradient only if it is None (torch/optim/adam.py,
    2.13.0).
    """
    model = run.model(wrap=_stem_without_grad)
    engine = run.engine(model)
    run.train(engine, intent=("layers.*", "head.*"))


def _stem_without_grad(model: Any) -> Any:
    import torch

    model.stem.forward = torch.no_grad()(model.stem.forward)
    return model


@case(
    kind="CONTROL",
    recipe="left out of the optimizer, flags on",
    moment="as the engine is made",
    happens="Trains what was given and nothing else; the rest has gradients made for it, which cost time and memory.",
    instead="turn the flags off, too: backward is cheaper.",
    variants=[Options(model="mlp", stage=stage) for stage in (0, 2, 3)],
)
def left_out_of_the_optimizer(run: Run) -> None:
    """All flags stay on, and DeepSpeed is given the head's parameters alone.

    ZeRO puts its hooks on what is in the optimizer's groups (``create_gradient_handling_hooks`` in
    runtime/zero/stage_1_and_2.py, ``create_reduce_and_remove_grad_hooks`` in runtime/zero/stage3.py, 0.19.8). Stage 0
    reduces all that has its flag on (``_get_gradients_for_reduction`` in runtime/engine.py, 0.19.8).
    """
    model = run.model()
    engine = run.engine(model, parameters=list(model.head.parameters()))
    run.train(engine, intent=run.part("head"))


@case(
    kind="CONTROL",
    refs=["hiyouga/LlamaFactory#8436"],
    recipe="the first layer trains, the rest is frozen",
    moment="before the engine",
    happens="Trains. It takes as much memory for activations as if all trained, since the gradient must come down "
    "through everything above: no fault, though reported as one.",
    instead="train layers near the output where memory is short.",
    variants=[Options(model="deep_mlp", stage=stage) for stage in (0, 3)],
)
def first_layer_trains(run: Run) -> None:
    """The stem trains; what backward keeps for it is held against what it would keep for the head.

    Autograd records an operation if any input requires a gradient, which above a first layer that trains is every one.
    The hooks of ``saved_tensors_hooks`` in torch/autograd/graph.py (2.13.0) see each tensor that is kept for that, so
    the case counts there.
    """
    kept = {part: _kept_for(run, run.part(part)) for part in ("embedding", "head")}
    run.note(f"elements kept for backward: {kept['embedding']} for the first layer, {kept['head']} for the last")
    assert kept["embedding"] > 5 * kept["head"], f"kept for backward: {kept}"
    model = run.model()
    freeze_except(model, run.part("embedding"))
    engine = run.engine(model)
    run.train(engine, intent=run.part("embedding"))


def _kept_for(run: Run, trained: tuple[str, ...]) -> int:
    """Elements of the tensors that one forward of a whole model keeps, when this part trains."""
    import torch

    model = run.bystander(deep_mlp, under="plain")
    freeze_except(model, trained)
    kept = 0

    def count(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal kept
        kept += tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        model(**deep_mlp.batch(torch.Generator()))
    return kept


# -- patterns ------------------------------------------------------------------------------------


def _freeze_but(model: nn.Module, wanted: Any) -> None:
    for name, parameter in model.named_parameters():
        parameter.requires_grad = bool(wanted(name))


@case(
    kind="Q",
    recipe='`name.startswith("layers.1")`',
    moment="before the engine",
    happens="Layers 10 and 11 train, too: their names begin so.",
    instead="end the prefix with its dot, as in `layers.1.`.",
    cure="prefix_with_its_dot",
    variants=_DEEP,
)
def prefix_without_its_dot(run: Run) -> None:
    """Layer 1 of twelve is meant.

    A name is the path of modules and the parameter, with dots between (``_named_members`` in
    torch/nn/modules/module.py, 2.13.0), and a layer in a list is called by its number. A string knows nothing of where
    a number ends.
    """
    model = run.model()
    _freeze_but(model, lambda name: name.startswith("layers.1"))
    engine = run.engine(model)
    run.train(engine, intent="layers.1.*")


@case(
    kind="CONTROL",
    recipe='`name.startswith("layers.1.")`',
    moment="before the engine",
    happens="Trains layer 1 alone.",
    variants=_DEEP,
)
def prefix_with_its_dot(run: Run) -> None:
    """Layer 1 of twelve, by a prefix that ends with its dot."""
    model = run.model()
    _freeze_but(model, lambda name: name.startswith("layers.1."))
    engine = run.engine(model)
    run.train(engine, intent="layers.1.*")


@case(
    kind="Q",
    recipe='`re.match("layers.1.", name)`',
    moment="before the engine",
    happens="Layers 10 and 11 train, too: a dot in a regular expression is any character, a digit as well.",
    instead=r"escape the dots, as in `layers\.1\.`.",
    cure="regex_with_escaped_dots",
    variants=_DEEP,
)
def regex_with_bare_dots(run: Run) -> None:
    """Layer 1 of twelve is meant, and the name is written as it is.

    The names have dots (``_named_members`` in torch/nn/modules/module.py, 2.13.0), and behind ``layers.1`` the
    pattern's dot is as content with the second digit of 10. ``re.match`` wants no end.
    """
    model = run.model()
    _freeze_but(model, lambda name: re.match("layers.1.", name))
    engine = run.engine(model)
    run.train(engine, intent="layers.1.*")


@case(
    kind="CONTROL",
    recipe=r'`re.match(r"layers\.1\.", name)`',
    moment="before the engine",
    happens="Trains layer 1 alone.",
    variants=_DEEP,
)
def regex_with_escaped_dots(run: Run) -> None:
    """Layer 1 of twelve, by a pattern with escaped dots; Axolotl wants them bare."""
    model = run.model()
    _freeze_but(model, lambda name: re.match(r"layers\.1\.", name))
    engine = run.engine(model)
    run.train(engine, intent="layers.1.*")


@case(
    kind="Q",
    recipe=r'`re.search(r"layers\.1\.", name)`',
    moment="before the engine",
    happens="Layer 1 of the other tower trains, too: without `^` a pattern may begin anywhere in a name.",
    instead=r"begin with `^` and the whole path, as in `^language\.layers\.1\.`.",
    cure="search_with_its_beginning",
    variants=_TOWERS,
)
def search_without_its_beginning(run: Run) -> None:
    """Layer 1 of the language tower is meant, and both towers have layers.

    A name begins with the outermost module that the model has (``_named_members`` in torch/nn/modules/module.py,
    2.13.0), and ``re.search`` looks for a pattern from every letter on, where ``re.match`` looks from the first alone.
    """
    _train_searched(run, r"layers\.1\.")


@case(
    kind="CONTROL",
    recipe=r'`re.search(r"^language\.layers\.1\.", name)`',
    moment="before the engine",
    happens="Trains layer 1 of the language tower alone.",
    variants=_TOWERS,
)
def search_with_its_beginning(run: Run) -> None:
    """Layer 1 of the language tower, by the whole path from its beginning."""
    _train_searched(run, r"^language\.layers\.1\.")


@case(
    kind="Q",
    recipe=r'`re.search(r"^language\.layers\.1$", name)`',
    moment="before the engine",
    happens="Everything is frozen, and engine creation fails deep inside DeepSpeed: `$` is the end of a parameter's "
    "name, and no parameter is called as its module is.",
    instead=r"end with the dot, as in `^language\.layers\.1\.`, or name the parameters.",
    cure="search_with_its_beginning",
    variants=_TOWERS,
)
def search_with_an_end_too_early(run: Run) -> None:
    """Layer 1 of the language tower, as its module is called.

    ``named_parameters`` puts the parameter's own name behind its module's (``_named_members`` in
    torch/nn/modules/module.py, 2.13.0). What then fails is told in ``freeze_all_engine_unfreeze``.
    """
    _train_searched(run, r"^language\.layers\.1$")


def _train_searched(run: Run, pattern: str) -> None:
    model = run.model()
    _freeze_but(model, lambda name: re.search(pattern, name))
    engine = run.engine(model)
    run.train(engine, intent="language.layers.1.*")


# -- Axolotl's own rules -------------------------------------------------------------------------


@case(
    kind="CONTROL",
    recipe="Axolotl's own function, the name up to its last dot",
    moment="before the engine",
    happens="Trains layer 1 alone: Axolotl takes every dot for a dot.",
    variants=_DEEP,
    needs=("axolotl",),
)
def axolotl_prefix_with_its_dot(run: Run) -> None:
    """``layers.1.`` of twelve layers."""
    _train_by_axolotl(run, "layers.1.", intent="layers.1.*")


@case(
    kind="Q",
    recipe="Axolotl's own function, a name that ends in `.*`",
    moment="before the engine",
    happens="Layers 10 and 11 train, too. The dot before the star is taken for a dot, so `.*` means any number of "
    "dots, none among them, and the pattern ends with the digit.",
    instead="write `layers.1.` and nothing behind it.",
    cure="axolotl_prefix_with_its_dot",
    variants=_DEEP,
    needs=("axolotl",),
)
def axolotl_name_and_star(run: Run) -> None:
    """``layers.1.*``, as a regular expression and as a glob the usual way to say: all of layer 1.

    ``LayerNamePattern`` in axolotl/utils/freeze.py (0.19.0) escapes each dot that no plus follows, and matches from
    the start of a name, not to its end.
    """
    _train_by_axolotl(run, "layers.1.*", intent="layers.1.*")


@case(
    kind="Q",
    recipe="Axolotl's own function, `.*` inside a name",
    moment="before the engine",
    happens="Matches nothing, and engine creation fails deep inside DeepSpeed: `.*` means any number of dots.",
    instead="write `.+`, which Axolotl leaves alone, or `[0-9]+`.",
    cure="axolotl_plus_inside",
    variants=_DEEP,
    needs=("axolotl",),
)
def axolotl_star_inside(run: Run) -> None:
    """``layers.*.bias``: the biases of all layers are meant (axolotl/utils/freeze.py, 0.19.0).

    ``LayerNamePattern`` in axolotl/utils/freeze.py (0.19.0) escapes each dot that no plus follows, the one before the
    star, too. What then fails is told in ``teacher_in_training_engine``: DeepSpeed with nothing to train.
    """
    _train_by_axolotl(run, "layers.*.bias", intent="layers.*.bias")


@case(
    kind="CONTROL",
    recipe="Axolotl's own function, `.+` inside a name",
    moment="before the engine",
    happens="Trains the biases of all layers.",
    variants=_DEEP,
    needs=("axolotl",),
)
def axolotl_plus_inside(run: Run) -> None:
    """``layers.+.bias``: the one dot that Axolotl does not escape is that before a plus."""
    _train_by_axolotl(run, "layers.+.bias", intent="layers.*.bias")


@case(
    kind="Q",
    recipe="Axolotl's own function, a name that ends in `[12]`",
    moment="before the engine",
    happens="Silent: row 12 of every layer trains, and nothing else of layers 1 and 2. Under `zero.Init` it is all "
    "rows from 12 on, since a partitioned weight looks as if it had none.",
    instead="write `layers.(1|2).`, or put a dot behind the brackets.",
    cure="axolotl_alternatives",
    variants=[*_DEEP, Options(model="deep_mlp", init="zero_init")],
    needs=("axolotl",),
)
def axolotl_brackets_at_the_end(run: Run) -> None:
    """``layers.[12]``: layers 1 and 2 are meant.

    Digits in brackets at the end of a pattern are a range of rows (``_parse_pattern`` in axolotl/utils/freeze.py,
    0.19.0).
    """
    _train_by_axolotl(run, "layers.[12]", intent=("layers.1.*", "layers.2.*"))


@case(
    kind="CONTROL",
    recipe="Axolotl's own function, alternatives in parentheses",
    moment="before the engine",
    happens="Trains layers 1 and 2.",
    variants=_DEEP,
    needs=("axolotl",),
)
def axolotl_alternatives(run: Run) -> None:
    """``layers.(1|2).``, which has no brackets to be taken for rows."""
    _train_by_axolotl(run, "layers.(1|2).", intent=("layers.1.*", "layers.2.*"))


def _train_by_axolotl(run: Run, pattern: str, *, intent: Any) -> None:
    model = run.model()
    freeze_layers_except(model, [pattern])
    engine = run.engine(model)
    run.train(engine, intent=intent)


# -- names that change under a pattern -----------------------------------------------------------


@case(
    kind="Q",
    recipe="patterns for the model that was put into a PeftModel",
    moment="before the engine",
    happens="Everything is frozen, and engine creation fails deep inside DeepSpeed: behind `get_peft_model` all names "
    "begin with `base_model.model.`.",
    instead="freeze before `get_peft_model`, or write the names as they are then.",
    cure="peft_names_as_they_are",
    variants=_LLAMA,
    needs=("peft",),
)
def peft_prefix_forgotten(run: Run) -> None:
    """``model.layers.2.`` is to train beside its adapters, in the model's own names.

    ``PeftModel`` keeps the tuner as ``base_model`` (peft/peft_model.py, 0.21.2), and the tuner the model as ``model``
    (peft/tuners/tuners_utils.py, 0.21.2); names have both in front. What then fails is told in
    ``teacher_in_training_engine``.
    """
    model = run.model(wrap=_lora)
    freeze_all_then_unfreeze(model, "model.layers.2.*")
    engine = run.engine(model)
    run.train(engine, intent="base_model.model.model.layers.2.*")


@case(
    kind="CONTROL",
    recipe="patterns for the PeftModel",
    moment="before the engine",
    happens="Trains, layer and adapters.",
    variants=_LLAMA,
    needs=("peft",),
)
def peft_names_as_they_are(run: Run) -> None:
    """``base_model.model.model.layers.2.`` trains beside its adapters, in the names that there are."""
    model = run.model(wrap=_lora)
    freeze_all_then_unfreeze(model, "base_model.model.model.layers.2.*")
    engine = run.engine(model)
    run.train(engine, intent="base_model.model.model.layers.2.*")


@case(
    kind="Q",
    refs=["huggingface/peft#2765", "huggingface/peft#2936"],
    fixes=[
        Fix(
            "peft",
            "0.18.0",
            "huggingface/peft#2765",
            because="from then on `inference_mode=True` may be asked for; what is not asked still turns the flags on.",
        )
    ],
    recipe="adapters are frozen, then `set_adapter`",
    moment="before the engine",
    happens="All adapters train: `set_adapter` turns the flags of the adapter on that it makes active, those that "
    "were turned off by hand among them, even where it was active before.",
    instead="freeze after the last call of `set_adapter`.",
    cure="peft_adapters_frozen_last",
    variants=_LLAMA,
    needs=("peft",),
)
def peft_set_adapter_unfreezes(run: Run) -> None:
    """The adapters of one layer are to train; ``set_adapter`` is called once more before the engine.

    ``BaseTunerLayer.set_adapter`` in peft/tuners/tuners_utils.py (0.21.2) sets the flag of every adapter it makes
    active, unless ``inference_mode=True`` is given, which it takes from 0.18.0 on.
    """
    model = run.model(wrap=_lora)
    freeze_except(model, "*layers.2.*lora_*")
    model.set_adapter("default")
    engine = run.engine(model)
    run.train(engine, intent="*layers.2.*lora_*")


@case(
    kind="Q",
    refs=["huggingface/peft#2765"],
    recipe="adapters are frozen, then a reference pass without them",
    moment="before the engine",
    happens="All adapters train: on its way out `disable_adapter` makes them active again, flags and all.",
    instead="freeze after the last `disable_adapter`.",
    cure="peft_adapters_frozen_last",
    variants=_LLAMA,
    needs=("peft",),
)
def peft_disable_adapter_unfreezes(run: Run) -> None:
    """The adapters of one layer are to train; a reference pass turns adapters off for a while before the engine.

    ``PeftModel.disable_adapter`` in peft/peft_model.py (0.21.2) ends with ``enable_adapter_layers``, and that comes
    down to ``set_adapter`` in each layer (``BaseTunerLayer.enable_adapters`` in peft/tuners/tuners_utils.py, 0.21.2).
    """
    model = run.model(wrap=_lora)
    freeze_except(model, "*layers.2.*lora_*")
    with model.disable_adapter():
        pass
    engine = run.engine(model)
    run.train(engine, intent="*layers.2.*lora_*")


@case(
    kind="CONTROL",
    recipe="`set_adapter`, then adapters are frozen",
    moment="before the engine",
    happens="Trains the adapters of one layer alone.",
    variants=_LLAMA,
    needs=("peft",),
)
def peft_adapters_frozen_last(run: Run) -> None:
    """``set_adapter`` comes first, and then all but the adapters of one layer is frozen."""
    model = run.model(wrap=_lora)
    model.set_adapter("default")
    freeze_except(model, "*layers.2.*lora_*")
    engine = run.engine(model)
    run.train(engine, intent="*layers.2.*lora_*")


def _lora(model: Any) -> Any:
    from peft import LoraConfig, get_peft_model

    return get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "up_proj"]))


@case(
    kind="Q",
    recipe="patterns for the model that was put into `torch.compile`",
    moment="before the engine",
    happens="Everything is frozen, and engine creation fails deep inside DeepSpeed: behind `torch.compile` all names "
    "begin with `_orig_mod.`. At stage 3 a compiled module fails whatever its names (`frozen_before_compile`).",
    instead="freeze first, and compile the model's `forward` instead of the model, or call `engine.compile` once the "
    "engine is there (`engine_compiled`).",
    cure="frozen_and_forward_compiled",
    variants=[Options(model="mlp", stage=stage) for stage in (2, 3)],
)
def compile_prefix_forgotten(run: Run) -> None:
    """``layers.2.`` is to train, in the model's own names.

    ``OptimizedModule`` in torch/_dynamo/eval_frame.py (2.13.0) is a module around the model, which it has as
    ``_orig_mod``. What then fails is told in ``teacher_in_training_engine``.
    """
    import torch

    model = run.model(wrap=lambda model: torch.compile(model, backend="eager"))
    freeze_all_then_unfreeze(model, run.part("block"))
    engine = run.engine(model)
    run.train(engine, intent="_orig_mod.layers.2.*")


@case(
    kind="Q",
    recipe="frozen, then put into `torch.compile`",
    moment="before the engine",
    happens="Stage 2 trains; stage 3 raises in the first forward (torch 2.13), since the engine takes the parameters "
    "of a compiled module away: its flags were right, and it makes no difference.",
    instead="compile the model's `forward` instead of the model, or call `engine.compile` once the engine is there "
    "(`engine_compiled`).",
    cure="frozen_and_forward_compiled",
    variants=[Options(model="mlp", stage=stage) for stage in (2, 3)],
    deadline=60.0,
)
def frozen_before_compile(run: Run) -> None:
    """The block is chosen by the model's own names, and then the whole model compiled.

    The model behind ``torch.compile`` is a wrapper that sets attributes on what it wraps
    (``OptimizedModule.__setattr__`` in torch/_dynamo/eval_frame.py, 2.13.0), and ``_inject_parameters`` in
    runtime/zero/parameter_offload.py (0.19.8) gives it an empty container of parameters: as told in ``compiled_layer``.
    """

    def freeze_and_compile(model: Any) -> Any:
        import torch

        freeze_except(model, run.part("block"))
        return torch.compile(model, backend="eager")

    engine = run.engine(run.model(wrap=freeze_and_compile))
    run.train(engine, intent="_orig_mod.layers.2.*")


@case(
    kind="CONTROL",
    recipe="frozen, then its `forward` compiled",
    moment="before the engine",
    happens="Trains: no module stands between, and all names stay.",
    variants=[Options(model="mlp", stage=stage) for stage in (2, 3)],
    deadline=60.0,
)
def frozen_and_forward_compiled(run: Run) -> None:
    """The block is chosen by the model's own names, and ``model.forward`` compiled."""
    import torch

    model = run.model()
    freeze_except(model, run.part("block"))
    model.forward = torch.compile(model.forward, backend="eager")
    engine = run.engine(model)
    run.train(engine, intent=run.part("block"))


# -- a setting that is not applied ----------------------------------------------------------------


@case(
    kind="Q",
    refs=["axolotl-ai-cloud/axolotl#2754"],
    recipe="a DeepSpeed JSON without an optimizer and without a scheduler",
    moment="before the Trainer",
    happens="With transformers 5.1.0 alone the Trainer makes no DeepSpeed engine and says nothing: each rank trains by "
    "itself, without ZeRO. The case stops there and says so. Others train.",
    instead="use transformers 5.0.0 or 5.2.0 and newer; with 5.1.0 name a scheduler in the JSON.",
    cure="trainer_with_a_scheduler_in_the_json",
    variants=[Options(stage=2), Options(init="zero_init")],
    needs=("transformers", "accelerate"),
)
def trainer_without_an_engine(run: Run) -> None:
    """The Trainer's own optimizer and schedule, as most people have them; one block trains.

    ``_inner_training_loop`` in transformers/trainer.py (5.1.0) asks under DeepSpeed whether the schedule is
    accelerate's ``DummyScheduler``, which stands for one in the JSON, and calls ``accelerator.prepare`` if it is and
    nothing if it is not. 5.0.0 does not ask, 5.2.0 has the other branch. Nothing in it depends on the device.
    """
    _train_through_the_trainer(run)


@case(
    kind="CONTROL",
    recipe="a DeepSpeed JSON with a scheduler",
    moment="before the Trainer",
    happens="Trains: with a scheduler in the JSON the Trainer makes its engine in 5.1.0, too.",
    variants=[Options(stage=2), Options(init="zero_init")],
    needs=("transformers", "accelerate"),
)
def trainer_with_a_scheduler_in_the_json(run: Run) -> None:
    """The schedule is DeepSpeed's, of a constant rate; one block trains."""
    rate = {"warmup_min_lr": run.hyper.lr, "warmup_max_lr": "auto", "warmup_num_steps": "auto"}
    scheduler = {"type": "WarmupLR", "params": rate}
    _train_through_the_trainer(run, arguments={"warmup_steps": 2}, config={"scheduler": scheduler})


def _train_through_the_trainer(run: Run, **settings: Any) -> None:
    train_with_trainer(
        run, freeze=lambda model: freeze_except(model, run.part("block")), intent=run.part("block"), **settings
    )


@case(
    kind="Q",
    refs=["axolotl-ai-cloud/axolotl#3586", "modelscope/ms-swift#7226"],
    recipe="patterns for a language tower, as it used to be called",
    moment="before the engine",
    happens="Everything is frozen, and engine creation fails deep inside DeepSpeed: transformers called the tower "
    "`language_model.model.layers` once, and calls it `model.language_model.layers`.",
    instead="print the names, and write patterns that hold for both.",
    cure="language_tower_by_both_names",
    variants=_LLAMA,
)
def language_tower_by_its_old_name(run: Run) -> None:
    """One layer of the language model in a tiny Llava is to train.

    transformers/models/llava/modeling_llava.py has a model with its head as ``language_model`` in 4.51.3, and since
    4.52.4, at the latest, one without, inside a ``model`` that both towers share (read in 4.51.3, 4.52.4 and 5.16.1).
    What then fails is told in ``teacher_in_training_engine``.
    """
    _train_tower(run, "language_model.model.layers.2.*")


@case(
    kind="CONTROL",
    refs=["axolotl-ai-cloud/axolotl#3586"],
    recipe="patterns for a language tower that hold whatever it is called",
    moment="before the engine",
    happens="Trains.",
    variants=_LLAMA,
)
def language_tower_by_both_names(run: Run) -> None:
    """One layer of the language model in a tiny Llava trains, by a pattern that asks for less than the whole name."""
    _train_tower(run, "*language_model.*layers.2.*")


def _train_tower(run: Run, pattern: str) -> None:
    model = run.model(Model("tiny_llava", _build_llava, _text))
    freeze_all_then_unfreeze(model, pattern)
    engine = run.engine(model)
    run.train(engine, intent="*language_model.*layers.2.*")


def _build_llava() -> nn.Module:
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
    vision = CLIPVisionConfig(**sizes, num_hidden_layers=1, image_size=8, patch_size=4, projection_dim=32)
    text = LlamaConfig(
        **sizes, vocab_size=64, num_hidden_layers=4, num_key_value_heads=2, max_position_embeddings=32, use_cache=False
    )
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_index=63)
    model: nn.Module = LlavaForConditionalGeneration(config)
    return model


def _text(generator: torch.Generator) -> Batch:
    """No image: how many tokens one stands for depends on the release."""
    import torch

    tokens = torch.randint(1, 60, (2, 16), generator=generator)
    return {"input_ids": tokens, "labels": tokens.clone(), "attention_mask": torch.ones_like(tokens)}
