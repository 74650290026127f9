"""Axolotl from end to end: its own ``train`` on a YAML file, judged by its engine and by what it saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.cell import Options, case
from harness.cell.models import Model, tiny_llama
from harness.drivers.axolotl_train import NEEDS, train_with_axolotl

if TYPE_CHECKING:
    from torch import nn

    from harness.cell._run import Run

#: Where the user has ZeRO-3, Axolotl makes the model under zero.Init.
_ZERO_3 = Options(init="zero_init")
_HEAD = "lm_head.weight"


def _build_deep_llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    model: nn.Module = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=12,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=32,
            use_cache=False,
        )
    )
    return model


_deep_llama = Model("deep_llama", _build_deep_llama, tiny_llama.batch)


@case(
    kind="CONTROL",
    refs=["axolotl-ai-cloud/axolotl#1747"],
    recipe="Axolotl's `train`, patterns that match",
    moment="from YAML to disk",
    happens="Trains what the patterns name, and saves it.",
    variants=[
        _ZERO_3,
        Options(init="zero_init", persistence="default"),
        Options(init="zero_init", precision="bf16"),
        Options(init="zero_init", accumulation=2, clipping=0.5),
        Options(init="zero_init", checkpointing="non_reentrant"),
        Options(init="zero_init", checkpointing="reentrant"),
    ],
    needs=NEEDS,
    deadline=60,
)
def axolotl_train_patterns(run: Run) -> None:
    """One layer and the head."""
    train_with_axolotl(run, ["model.layers.2.", "^lm_head.weight$"], intent=(*run.part("block"), _HEAD))


@case(
    kind="Q",
    refs=["axolotl-ai-cloud/axolotl#1747"],
    recipe="Axolotl's `train`, a pattern that matches nothing",
    moment="from YAML to disk",
    happens="?.",
    instead="write the name from its first letter: Axolotl matches from the start.",
    cure="axolotl_train_patterns",
    variants=[_ZERO_3],
    needs=NEEDS,
    deadline=60,
)
def axolotl_train_matches_nothing(run: Run) -> None:
    """``layers.2.`` for parameters that are called ``model.layers.2.*``."""
    train_with_axolotl(run, ["layers.2."], intent=run.part("block"), checked=False)


@case(
    kind="Q",
    recipe="Axolotl's `train`, a layer's number without the dot behind it",
    moment="from YAML to disk",
    happens="?",
    instead="write the dot behind the number.",
    cure="axolotl_train_patterns",
    variants=[_ZERO_3],
    needs=NEEDS,
    deadline=60,
)
def axolotl_train_number_without_dot(run: Run) -> None:
    """``model.layers.1`` in a model of twelve layers."""
    train_with_axolotl(run, ["model.layers.1"], source=_deep_llama, intent="model.layers.1.*")


@case(
    kind="E",
    refs=["axolotl-ai-cloud/axolotl#1687"],
    recipe="Axolotl's `train`, a closed range of rows",
    moment="from YAML to disk",
    happens="?",
    instead="mask",
    cure="row_hook_after_engine",
    variants=[_ZERO_3],
    needs=NEEDS,
    deadline=60,
)
def axolotl_train_closed_row_range(run: Run) -> None:
    """Rows 8 to 32 of the head of 64."""
    train_with_axolotl(run, ["^lm_head.weight$[8:32]"], intent=_HEAD, rows={_HEAD: slice(8, 32)}, checked=False)


@case(
    kind="E",
    refs=["axolotl-ai-cloud/axolotl#1687", "axolotl-ai-cloud/axolotl#1686"],
    recipe="Axolotl's `train`, an open range of rows",
    moment="from YAML to disk",
    happens="?",
    instead="mask",
    cure="row_hook_after_engine",
    variants=[_ZERO_3],
    needs=NEEDS,
    deadline=60,
)
def axolotl_train_open_row_range(run: Run) -> None:
    """Rows from 32 on of the head of 64: tokens that were added."""
    train_with_axolotl(run, ["^lm_head.weight$[32:]"], intent=_HEAD, rows={_HEAD: slice(32, 64)}, checked=False)


@case(
    kind="K",
    recipe="Axolotl's `train`, a DeepSpeed JSON that does not gather weights to save",
    moment="from YAML to disk",
    happens="?",
    instead="set it",
    cure="axolotl_train_patterns",
    variants=[_ZERO_3],
    needs=NEEDS,
    deadline=60,
)
def axolotl_train_saves_without_gathering(run: Run) -> None:
    """As `axolotl_train_patterns`."""
    train_with_axolotl(run, ["model.layers.2."], intent=run.part("block"), zero={})
