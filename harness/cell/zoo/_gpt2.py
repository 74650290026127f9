"""A tiny GPT-2: its layers are transformers' ``Conv1D``, which keep no sizes beside the weight."""

from __future__ import annotations

import torch
from transformers import GPT2Config, GPT2LMHeadModel

__all__ = ["tiny_gpt2"]


def tiny_gpt2() -> torch.nn.Module:
    """Two blocks, tied head, no dropout."""
    config = GPT2Config(
        vocab_size=64,
        n_positions=32,
        n_embd=32,
        n_layer=2,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
    )
    model: torch.nn.Module = GPT2LMHeadModel(config)
    return model
