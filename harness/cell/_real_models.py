"""Tiny models of the architectures that people fine-tune, with the names that transformers gives their parameters."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from harness.cell._model import Batch, Model

if TYPE_CHECKING:
    import torch

__all__ = ["REAL"]


def _build(name: str) -> torch.nn.Module:
    from harness.cell.zoo._architectures import BUILD

    return BUILD[name]()


def _tokens(generator: torch.Generator) -> Batch:
    import torch

    tokens = torch.randint(3, 60, (2, 16), generator=generator)
    return {"input_ids": tokens, "labels": tokens.clone(), "attention_mask": torch.ones_like(tokens)}


def _tokens_and_image(generator: torch.Generator) -> Batch:
    """A picture before each text; what stands for it is no label."""
    import torch

    from harness.cell.zoo._architectures import IMAGE, IMAGE_SIZE

    batch = _tokens(generator)
    batch["input_ids"][:, 1] = IMAGE
    batch["labels"][:, 1] = -100
    pixels = torch.randn(2, 3, IMAGE_SIZE, IMAGE_SIZE, generator=generator)
    return {**batch, "pixel_values": pixels}


def _named(name: str, layers: str, embedding: str, head: tuple[str, ...] = ("lm_head.*",)) -> Model:
    parts = {
        "block": (f"{layers}.2.*",),
        "other block": (f"{layers}.1.*",),
        "embedding": (f"{embedding}.*",),
        **({"head": head} if head else {}),
    }
    return Model(name, partial(_build, name), _tokens, parts, needs=(f"transformers.models.{name}",))


_LLAMA_LIKE: Final = ("llama", "mistral", "qwen2", "qwen3", "phi3", "mixtral")

#: The heads of Gemma and GPT-2 are tied to the embedding, so they have no name of their own.
#: Llava's names changed with 4.52: globs hold for both.
REAL: Final = (
    *(_named(name, "model.layers", "model.embed_tokens", head=()) for name in ("gemma2", "gemma3")),
    _named("gpt2", "transformer.h", "transformer.wte", head=()),
    *(_named(name, "model.layers", "model.embed_tokens") for name in sorted(_LLAMA_LIKE)),
    Model(
        "llava",
        partial(_build, "llava"),
        _tokens_and_image,
        {
            "block": ("*language_model.*layers.2.*",),
            "other block": ("*language_model.*layers.1.*",),
            "embedding": ("*language_model.*embed_tokens.*",),
            "head": ("*lm_head.*",),
            "tower": ("*vision_tower.*",),
            "projector": ("*multi_modal_projector.*",),
        },
        needs=("transformers.models.llava",),
    ),
)
