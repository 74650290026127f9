"""A tiny model of the same architecture with the same parameter names."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["shrink"]

#: Sizes that may shrink to the second; what is smaller stays.  What is not named here stays, as it decides names.
_WIDTHS: Final = {
    "hidden_size": 32,
    "d_model": 32,
    "n_embd": 32,
    "embed_dim": 32,
    "word_embed_proj_dim": 32,
    "embedding_size": 32,
    "intermediate_size": 48,
    "ffn_dim": 48,
    "n_inner": 48,
    "d_ff": 48,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "ffn_hidden_size": 48,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "intermediate_size_mlp": 48,
    "projection_dim": 32,
    "d_kv": 8,
    "head_dim": 8,
    "global_head_dim": 8,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "q_lora_rank": 8,
    "kv_lora_rank": 8,
    "vocab_size": 96,
    "max_position_embeddings": 64,
    "n_positions": 64,
    "n_ctx": 64,
    "max_source_positions": 64,
    "max_target_positions": 64,
    "image_size": 28,
}
#: Numbers of heads, which must divide the width; and of those that share keys, which must divide these.
_HEADS: Final = ("num_attention_heads", "n_head", "num_heads", "encoder_attention_heads", "decoder_attention_heads")
_SHARED: Final = ("num_key_value_heads", "num_kv_heads", "multi_query_group_num")
#: Tables of token numbers, which have to stay inside what is left of the vocabulary.
_TOKENS: Final = (
    "bos_token_id eos_token_id pad_token_id sep_token_id cls_token_id decoder_start_token_id image_token_id "
    "image_token_index video_token_id vision_start_token_id vision_end_token_id vision_token_id audio_token_id "
    "forced_eos_token_id forced_bos_token_id boi_token_index eoi_token_index"
).split()
_LAYERS: Final = (
    "num_hidden_layers n_layer num_layers n_layers encoder_layers decoder_layers num_decoder_layers depth".split()
)


def shrink(config: Any, *, layers: int) -> Any:
    """A copy of a configuration object, narrow, with at most ``layers`` layers.

    Names are made of layers, experts, ties and which parts there are, so of these only layers lose any.
    """
    tiny = copy.deepcopy(config)
    for one in _parts(tiny):
        _shrink_one(one, layers)
    return tiny


def _parts(config: Any) -> Iterator[Any]:
    """The configuration and those inside it, as models of several towers have them."""
    yield config
    for key, value in vars(config).items():
        if key.endswith("_config") and hasattr(value, "to_dict"):
            yield from _parts(value)


def _shrink_one(config: Any, layers: int) -> None:
    def get(key: str) -> Any:
        value = getattr(config, key, None)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    heads = next((get(key) for key in _HEADS if get(key)), None)
    for key, width in _WIDTHS.items():
        value = get(key)
        if value is not None and value > width:
            setattr(config, key, width)
    for key in _HEADS:
        value = get(key)
        if value is not None:
            setattr(config, key, math.gcd(value, 4) or 1)
    for key in _SHARED:
        value = get(key)
        if value is not None:
            # As many or fewer, as it was: then projections keep or lose their own shape alike.
            new_heads = next((found for head in _HEADS if (found := get(head))), 4)
            setattr(config, key, new_heads if value == heads else max(1, new_heads // 2))
    _tokens(config)
    _fewer(config, layers)
    _drop(config)


def _fewer(config: Any, layers: int) -> None:
    for key in _LAYERS:
        value = getattr(config, key, None)
        if isinstance(value, int) and not isinstance(value, bool) and value > layers:
            _cut_lists(config, value, layers)
            setattr(config, key, layers)


def _cut_lists(config: Any, before: int, layers: int) -> None:
    """What is listed for each layer, such as its kind of attention."""
    for key, value in vars(config).items():
        if isinstance(value, (list, tuple)) and len(value) == before:
            setattr(config, key, value[:layers])


def _tokens(config: Any) -> None:
    size = getattr(config, "vocab_size", None)
    if not isinstance(size, int):
        return
    for number, key in enumerate(_TOKENS):
        value = getattr(config, key, None)
        if isinstance(value, int) and value >= size:
            setattr(config, key, number + 1)
        elif isinstance(value, (list, tuple)) and any(isinstance(one, int) and one >= size for one in value):
            setattr(config, key, [number + 1])


def _drop(config: Any) -> None:
    """No dropout: the twin cannot draw the same mask."""
    for key, value in vars(config).items():
        if isinstance(value, float) and ("dropout" in key or key.endswith(("_pdrop", "drop_path_rate", "layerdrop"))):
            setattr(config, key, 0.0)
