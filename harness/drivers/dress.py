"""What is done to a model before it is trained, as the variant says: resized embeddings, adapters of PEFT."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from harness.cell._case import MalformedCase
from harness.cell._patterns import matches

if TYPE_CHECKING:
    from torch import nn

    from harness.cell._run import Run

__all__ = ["beside", "dress", "part"]

#: Tokens more than the model was built with, and rows of the embedding that PEFT trains apart.
_MORE_TOKENS: Final = 8
_TRAINED_TOKENS: Final = (1, 2, 3, 4)


def dress(run: Run) -> Callable[[Any], Any]:
    """For ``run.model(wrap=...)``: what ``embeddings`` and ``adapters`` of the variant ask for, in that order."""
    run.heed("embeddings")
    run.heed("adapters")

    def wrap(model: Any) -> Any:
        if run.options.embeddings == "resized":
            model = _resized(run)(model)
        return model if run.options.adapters == "none" else _adapted(run, model)

    return wrap


def part(run: Run, name: str) -> tuple[str, ...]:
    """As ``run.part``; of a model with adapters, those that are in that part."""
    own = run.part(name)
    if run.options.adapters == "none":
        return own
    return tuple(f"base_model.model.{pattern}lora_*" for pattern in own)


def beside(run: Run) -> tuple[str, ...]:
    """Patterns of what trains beside LoRA: PEFT's copy of the head, or its rows of the embedding."""
    if run.options.adapters == "lora_head":
        return tuple(f"base_model.model.{pattern}modules_to_save.*" for pattern in run.part("head"))
    if run.options.adapters == "lora_tokens":
        return tuple(f"base_model.model.{pattern}trainable_tokens_delta*" for pattern in run.part("embedding"))
    return ()


def _resized(run: Run) -> Callable[[Any], Any]:
    from harness.drivers.pretrained import as_told

    def resize(model: Any) -> Any:
        model.resize_token_embeddings(model.get_input_embeddings().num_embeddings + _MORE_TOKENS)
        return model

    return as_told(run, resize)


def _adapted(run: Run, model: Any) -> Any:
    from harness.drivers.adapters import adapted

    beside: dict[str, Any] = {}
    if run.options.adapters == "lora_head":
        beside["modules_to_save"] = _modules(model, run.part("head"))
    if run.options.adapters == "lora_tokens":
        (embedding,) = _modules(model, run.part("embedding"))
        beside["trainable_token_indices"] = {embedding: [*_TRAINED_TOKENS]}
    linear = _linear_layers(model, (*run.part("block"), *run.part("other block")))
    return adapted("LoraConfig", r=4, target_modules=linear, **beside)(model)


def _linear_layers(model: nn.Module, patterns: tuple[str, ...]) -> list[str]:
    """Names of the linear layers, transformers' ``Conv1D`` among them, whose weight matches."""
    found = [
        name
        for name, one in model.named_modules()
        if type(one).__name__ in ("Linear", "Conv1D") and matches(f"{name}.weight", patterns)
    ]
    if not found:
        raise MalformedCase(f"model {type(model).__name__}", f"no linear layer matches {', '.join(patterns)}")
    return found


def _modules(model: nn.Module, patterns: tuple[str, ...]) -> list[str]:
    """Names of the modules that have the parameters which match."""
    names = [name for name, _ in model.named_parameters() if matches(name, patterns)]
    return sorted({name.rpartition(".")[0] for name in names})
