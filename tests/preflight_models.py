"""Real sizes of known architectures, as the keyword arguments of their configuration classes; nothing is downloaded."""

from __future__ import annotations

from typing import Any

__all__ = ["MODELS"]


def _decoder(
    kind: str, hidden: int, inner: int, layers: int, heads: int, shared: int, vocabulary: int, **more: Any
) -> Any:
    return {
        "model_type": kind,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": shared,
        "vocab_size": vocabulary,
        **more,
    }


#: Name -> its config.json, and the elements that it has, in billions, as its authors round them.
MODELS: dict[str, tuple[dict[str, Any], float]] = {
    "llama-3-8b": (_decoder("llama", 4096, 14336, 32, 32, 8, 128256), 8.03),
    "llama-3-70b": (_decoder("llama", 8192, 28672, 80, 64, 8, 128256), 70.6),
    "mistral-7b": (_decoder("mistral", 4096, 14336, 32, 32, 8, 32000), 7.24),
    "mixtral-8x7b": (_decoder("mixtral", 4096, 14336, 32, 32, 8, 32000, num_local_experts=8), 46.7),
    "qwen2-7b": (_decoder("qwen2", 3584, 18944, 28, 28, 4, 152064), 7.62),
    "qwen2-0.5b": (_decoder("qwen2", 896, 4864, 24, 14, 2, 151936, tie_word_embeddings=True), 0.494),
    "qwen3-8b": (_decoder("qwen3", 4096, 12288, 36, 32, 8, 151936, head_dim=128), 8.19),
    "qwen3-30b-a3b": (
        _decoder("qwen3_moe", 2048, 6144, 48, 32, 4, 151936, head_dim=128, num_experts=128, moe_intermediate_size=768),
        30.5,
    ),
    "gemma-2-9b": (_decoder("gemma2", 3584, 14336, 42, 16, 8, 256000, head_dim=256), 9.24),
    "phi-3-mini": (_decoder("phi3", 3072, 8192, 32, 32, 32, 32064, pad_token_id=32000), 3.82),
    "gpt-neox-20b": (_decoder("gpt_neox", 6144, 24576, 44, 64, 64, 50432), 20.6),
    "gpt2-xl": ({"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25}, 1.56),
    "opt-6.7b": (
        {
            "model_type": "opt",
            "hidden_size": 4096,
            "ffn_dim": 16384,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
        },
        6.66,
    ),
    "falcon-7b": (
        {"model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71},
        6.92,
    ),
    "t5-3b": (
        {
            "model_type": "t5",
            "d_model": 1024,
            "d_kv": 128,
            "d_ff": 16384,
            "num_heads": 32,
            "num_layers": 24,
            "architectures": ["T5ForConditionalGeneration"],
        },
        2.85,
    ),
    "bert-large": (
        {
            "model_type": "bert",
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "architectures": ["BertForMaskedLM"],
        },
        0.335,
    ),
    "llava-1.5-7b": (
        {
            "model_type": "llava",
            "text_config": _decoder("llama", 4096, 11008, 32, 32, 32, 32064),
            "vision_config": {
                "model_type": "clip_vision_model",
                "hidden_size": 1024,
                "intermediate_size": 4096,
                "num_hidden_layers": 24,
                "num_attention_heads": 16,
                "image_size": 336,
                "patch_size": 14,
                "projection_dim": 768,
            },
            "architectures": ["LlavaForConditionalGeneration"],
        },
        7.06,
    ),
}
