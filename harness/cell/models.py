"""Tiny models that look to a freezing recipe like the real ones.

A model is a record: how to build it, how to draw a micro-batch, and names for the parts that
cases freeze and train, so that one case runs on all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.cell._model import Batch, Model
from harness.cell._patterns import nearest
from harness.cell._real_models import REAL

if TYPE_CHECKING:
    import torch

__all__ = ["MODELS", "Batch", "Model", "find_model", "mlp", "tiny_llama"]


def _build_llama(*, tied: bool = False) -> torch.nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    model: torch.nn.Module = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=32,
            tie_word_embeddings=tied,
            use_cache=False,
        )
    )
    return model


def _build_tied_llama() -> torch.nn.Module:
    return _build_llama(tied=True)


def _llama_batch(generator: torch.Generator) -> Batch:
    import torch

    tokens = torch.randint(0, 64, (2, 16), generator=generator)
    return {"input_ids": tokens, "labels": tokens.clone()}


def _build_mlp() -> torch.nn.Module:
    from harness.cell.zoo._mlp import Mlp

    return Mlp()


def _build_normed() -> torch.nn.Module:
    from harness.cell.zoo._blocks import Blocks

    return Blocks()


def _build_reused() -> torch.nn.Module:
    from harness.cell.zoo._blocks import Blocks

    return Blocks(times=2)


def _build_towers() -> torch.nn.Module:
    from harness.cell.zoo._blocks import Towers

    return Towers()


def _build_deep_mlp() -> torch.nn.Module:
    from harness.cell.zoo._mlp import Mlp

    return Mlp(layers=12)


def _build_branches() -> torch.nn.Module:
    from harness.cell.zoo._branches import Branches

    return Branches()


def _build_experts() -> torch.nn.Module:
    from harness.cell.zoo._experts import MoeMlp

    return MoeMlp()


def _mlp_batch(generator: torch.Generator) -> Batch:
    import torch

    return {
        "inputs": torch.randn(4, 16, generator=generator),
        "targets": torch.randn(4, 8, generator=generator),
    }


def _experts_batch(generator: torch.Generator) -> Batch:
    import torch

    return {**_mlp_batch(generator), "choice": torch.arange(4)}


_LLAMA_PARTS = {
    "head": ("lm_head.*",),
    "embedding": ("model.embed_tokens.*",),
    "block": ("model.layers.2.*",),
    "other block": ("model.layers.1.*",),
    "linears": ("model.layers.*.self_attn.*", "model.layers.*.mlp.*"),
}

#: Four Llama blocks, untied head: 39 parameters of 32 to 2,048 elements.
tiny_llama = Model("tiny_llama", _build_llama, _llama_batch, _LLAMA_PARTS, needs=("transformers",))

#: The same with ``tie_word_embeddings``: the head is the embedding and has no name of its own.
tied_llama = Model("tied_llama", _build_tied_llama, _llama_batch, _LLAMA_PARTS, needs=("transformers",))

#: Five linear layers in plain torch: what is left when transformers is not to blame.
mlp = Model(
    "mlp",
    _build_mlp,
    _mlp_batch,
    {
        "head": ("head.*",),
        "embedding": ("stem.*",),
        "block": ("layers.2.*",),
        "other block": ("layers.1.*",),
    },
)

_BLOCK_PARTS = {
    "head": ("head.*",),
    "embedding": ("body.stem.*",),
    "block": ("body.layers.2.*",),
    "other block": ("body.layers.1.*",),
    "linears": ("body.layers.*.linear.*",),
}

#: Four blocks of a norm and a linear layer: what needs a frozen norm beside a layer that trains.
normed = Model("normed", _build_normed, _mlp_batch, _BLOCK_PARTS)

#: The same, each block run twice in a row.
reused = Model("reused", _build_reused, _mlp_batch, _BLOCK_PARTS)

#: Two stacks of two such blocks beside each other, their outputs added.
towers = Model(
    "towers",
    _build_towers,
    _mlp_batch,
    {
        "head": ("head.*",),
        "block": ("language.layers.1.*",),
        "vision": ("vision.*",),
        "language": ("language.*",),
    },
)

#: The same with twelve layers, so that one has a number which begins another's.
deep_mlp = Model("deep_mlp", _build_deep_mlp, _mlp_batch, mlp.parts)

#: A stem, a tower for images, four layers and a head; what of it runs is up to the batch.
branches = Model(
    "branches",
    _build_branches,
    _mlp_batch,
    {"head": ("head.*",), "tower": ("tower.*",), "block": ("layers.2.*",), "other block": ("layers.1.*",)},
)

#: A router over four experts between two linear layers.
experts = Model(
    "experts",
    _build_experts,
    _experts_batch,
    {"head": ("head.*",), "embedding": ("stem.*",), "experts": ("moe.experts.*",), "router": ("moe.router.*",)},
)

MODELS: dict[str, Model] = {
    one.name: one for one in (tiny_llama, tied_llama, mlp, normed, reused, towers, branches, experts, deep_mlp, *REAL)
}


def find_model(name: str) -> Model:
    """Raises LookupError with near names."""
    try:
        return MODELS[name]
    except KeyError:
        raise LookupError(f"no model is called {name!r}; {nearest(name, MODELS)}") from None
