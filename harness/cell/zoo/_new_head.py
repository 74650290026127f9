"""A transformers model whose new head starts from a constant, so that it can be told from one that was never set."""

from __future__ import annotations

import torch
from transformers import LlamaForCausalLM

__all__ = ["NewHead"]


class NewHead(LlamaForCausalLM):  # type: ignore[misc]  # transformers' types are not followed
    """As custom models have it: ``_init_weights`` says what becomes of weights that no file has."""

    def _init_weights(self, module: torch.nn.Module) -> None:
        super()._init_weights(module)
        if module is self.lm_head:
            torch.nn.init.constant_(module.get_parameter("weight"), 0.125)
