"""The architectures that people fine-tune, from transformers' own configuration classes, three tiny blocks each.

Whatever a release of transformers calls the parameters, they are called so here: nothing is built by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
import transformers

__all__ = ["BUILD", "IMAGE", "IMAGE_SIZE"]

#: The token that stands for an image, which is one patch of as many pixels each way, so that releases which put
#: one token into a prompt for each image and those which put one for each patch mean the same.
IMAGE: Final = 63
IMAGE_SIZE: Final = 4

_SIZES: Final = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
#: Some configurations take a padding token from far outside this vocabulary unless told.
_TEXT: Final = {
    **_SIZES,
    "vocab_size": 64,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
    "use_cache": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def _causal(name: str, **settings: Any) -> Callable[[], torch.nn.Module]:
    def build() -> torch.nn.Module:
        config = getattr(transformers, f"{name}Config")(**_TEXT, **settings)
        model: torch.nn.Module = getattr(transformers, f"{name}ForCausalLM")(config)
        return model

    return build


def _gemma_3() -> torch.nn.Module:
    config = transformers.Gemma3TextConfig(**_TEXT, head_dim=8, query_pre_attn_scalar=8, sliding_window=8)
    model: torch.nn.Module = transformers.Gemma3ForCausalLM(config)
    return model


def _gpt_2() -> torch.nn.Module:
    config = transformers.GPT2Config(
        vocab_size=64,
        n_positions=32,
        n_embd=32,
        n_layer=3,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
        bos_token_id=1,
        eos_token_id=2,
    )
    model: torch.nn.Module = transformers.GPT2LMHeadModel(config)
    return model


def _llava() -> torch.nn.Module:
    vision = transformers.CLIPVisionConfig(
        **{**_SIZES, "num_hidden_layers": 2}, image_size=IMAGE_SIZE, patch_size=IMAGE_SIZE, projection_dim=32
    )
    config = transformers.LlavaConfig(
        vision_config=vision, text_config=transformers.LlamaConfig(**_TEXT), image_token_index=IMAGE, pad_token_id=0
    )
    model: torch.nn.Module = transformers.LlavaForConditionalGeneration(config)
    return model


BUILD: Final[Mapping[str, Callable[[], torch.nn.Module]]] = {
    "llama": _causal("Llama"),
    "mistral": _causal("Mistral", sliding_window=8),
    "qwen2": _causal("Qwen2"),
    "qwen3": _causal("Qwen3", head_dim=8),
    "gemma2": _causal("Gemma2", head_dim=8, query_pre_attn_scalar=8, sliding_window=8),
    "gemma3": _gemma_3,
    "phi3": _causal("Phi3"),
    # Of as many experts as each token goes to, none is ever left out, whatever the router says.
    "mixtral": _causal("Mixtral", num_local_experts=2, num_experts_per_tok=2, sliding_window=None),
    "gpt2": _gpt_2,
    "llava": _llava,
}
