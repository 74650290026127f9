"""Axolotl from end to end: its own ``train`` on a YAML file, judged by its engine and by what lies on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.cell import Hyper, Options, case
from harness.cell.models import Model, tiny_llama
from harness.drivers.axolotl_train import NEEDS, train_with_axolotl

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from torch import nn

    from harness.cell._run import Run

#: At stage 3 Axolotl makes every model under zero.Init.
_ZERO_3 = Options(init="zero_init")
_HEAD = "lm_head.weight"
_FROM_YAML = "Axolotl's `train`, from YAML to disk"

#: The first case in a fresh environment imports all of Axolotl, and single extension modules may take long to load.
_DEADLINE = 60.0


@case(
    kind="CONTROL",
    refs=["axolotl-ai-cloud/axolotl#1747"],
    recipe="`unfrozen_parameters` that match",
    moment=_FROM_YAML,
    happens="Trains what the patterns name and nothing else, and saves it.",
    variants=[
        _ZERO_3,
        Options(init="zero_init", persistence="default"),
        Options(init="zero_init", accumulation=2, clipping=0.5),
    ],
    needs=NEEDS,
    deadline=_DEADLINE,
)
def axolotl_train_patterns(run: Run) -> None:
    """One layer and the head."""
    train_with_axolotl(run, ["model.layers.2.", "^lm_head.weight$"], intent=(*run.part("block"), _HEAD))


@case(
    kind="Q",
    refs=["axolotl-ai-cloud/axolotl#1747"],
    recipe="`unfrozen_parameters` that match nothing",
    moment=_FROM_YAML,
    happens="Axolotl warns that all parameters are frozen and goes on; deep inside DeepSpeed, engine creation fails: "
    "`IndexError: list index out of range`.",
    instead="write the name from its first letter: Axolotl matches from the start.",
    cure="axolotl_train_patterns",
    variants=[_ZERO_3],
    needs=NEEDS,
    deadline=_DEADLINE,
)
def axolotl_train_matches_nothing(run: Run) -> None:
    """``layers.2.`` for parameters that are called ``model.layers.2.*``.

    ``freeze_layers_except`` in axolotl/utils/freeze.py (0.19.0) only logs a warning.  The Trainer then makes an
    optimizer without a parameter, and ZeRO-3 asks the first of its groups for its dtype (deepspeed/runtime/zero/
    stage3.py, 0.18.9).
    """
    train_with_axolotl(run, ["layers.2."], intent=run.part("block"), checked=False)


def _build_deep_llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    model: nn.Module = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=11,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=32,
            use_cache=False,
        )
    )
    return model


@case(
    kind="Q",
    recipe="`unfrozen_parameters` with a layer's number and no dot behind it",
    moment=_FROM_YAML,
    happens="Silent: layer 10 trains as well as layer 1.",
    instead="write the dot behind the number.",
    cure="axolotl_train_patterns",
    variants=[_ZERO_3],
    needs=NEEDS,
    deadline=_DEADLINE,
)
def axolotl_train_number_without_dot(run: Run) -> None:
    """``model.layers.1`` in a model of eleven layers.

    ``LayerNamePattern`` in axolotl/utils/freeze.py (0.19.0) matches the beginning of a name.
    """
    deep_llama = Model("deep_llama", _build_deep_llama, tiny_llama.batch)
    train_with_axolotl(run, ["model.layers.1"], source=deep_llama, intent="model.layers.1.*")


@case(
    kind="E",
    refs=["axolotl-ai-cloud/axolotl#1687"],
    recipe="`unfrozen_parameters` with a closed range of rows",
    moment=_FROM_YAML,
    happens="Silent: the rows before the range keep still, those behind it train.",
    instead="train all rows, or mask them by a hook of one's own, which knows how many there are.",
    cure="row_hook_after_engine",
    variants=[_ZERO_3],
    needs=NEEDS,
    deadline=_DEADLINE,
)
def axolotl_train_closed_row_range(run: Run) -> None:
    """Rows 8 to 31 of a head of 64.

    As ``axolotl_closed_row_range``, whose model is put under ``zero.Init`` by the case; here it is Axolotl that does so
    (``_invert_ranges`` in axolotl/utils/freeze.py, 0.19.0).
    """
    _train_rows(run, "[8:32]", slice(8, 32))


@case(
    kind="E",
    refs=["axolotl-ai-cloud/axolotl#1687", "axolotl-ai-cloud/axolotl#1686"],
    recipe="`unfrozen_parameters` with an open range of rows",
    moment=_FROM_YAML,
    happens="Raises `invalid unfreeze range: start=32, end=0`.",
    instead="train all rows, or mask them by a hook of one's own, which knows how many there are.",
    cure="row_hook_after_engine",
    variants=[_ZERO_3],
    needs=NEEDS,
    deadline=_DEADLINE,
)
def axolotl_train_open_row_range(run: Run) -> None:
    """Rows from 32 on of a head of 64, such as tokens that were added.

    As ``axolotl_open_row_range`` (``_merge_ranges`` in axolotl/utils/freeze.py, 0.19.0).
    """
    _train_rows(run, "[32:]", slice(32, 64))


def _train_rows(run: Run, written: str, meant: slice) -> None:
    """Weight decay would move all rows."""
    patterns = [f"^{_HEAD}${written}"]
    train_with_axolotl(run, patterns, intent=_HEAD, rows={_HEAD: meant}, hyper=Hyper(weight_decay=0.0), checked=False)


@case(
    kind="I",
    refs=["deepspeedai/DeepSpeed#8148"],
    recipe="`unfrozen_parameters` and `gradient_checkpointing`",
    moment=_FROM_YAML,
    happens="Raises, either way: Axolotl refuses reentrant checkpointing beside frozen parameters, and the other kind "
    "raises CheckpointError in the first backward under each DeepSpeed that its extra allows (before 0.19).",
    instead="add `determinism_check: none` to `gradient_checkpointing_kwargs`.",
    cure="axolotl_train_checkpointing_unchecked",
    variants=[
        Options(init="zero_init", checkpointing="non_reentrant"),
        Options(init="zero_init", checkpointing="reentrant"),
    ],
    needs=NEEDS,
    deadline=_DEADLINE,
)
def axolotl_train_checkpointing(run: Run) -> None:
    """One layer trains.

    ``check_use_reentrant_mismatch`` in axolotl/utils/schemas/validation.py (0.19.0) refuses the reentrant kind; with
    none given, that of transformers is non-reentrant, too.  The rest is told in ``frozen_norms_in_checkpoint``.
    """
    train_with_axolotl(run, ["model.layers.2."], intent=run.part("block"))


@case(
    kind="CONTROL",
    refs=["deepspeedai/DeepSpeed#8148"],
    recipe="`unfrozen_parameters` and `gradient_checkpointing` with `determinism_check: none`",
    moment=_FROM_YAML,
    happens="Trains.",
    variants=[_ZERO_3],
    needs=NEEDS,
    deadline=_DEADLINE,
)
def axolotl_train_checkpointing_unchecked(run: Run) -> None:
    """Axolotl's own train checkpoints, and torch does not compare what it recomputes."""
    checkpointing = {"use_reentrant": False, "determinism_check": "none"}
    settings = {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": checkpointing}
    train_with_axolotl(run, ["model.layers.2."], intent=run.part("block"), settings=settings)


@case(
    kind="K",
    recipe="a DeepSpeed JSON without `stage3_gather_16bit_weights_on_model_save`",
    moment=_FROM_YAML,
    happens="Axolotl says that the model was saved, and there are no weights but those of a ZeRO checkpoint.",
    instead="run the `zero_to_fp32.py` that lies beside the checkpoint, or set that in `zero_optimization` before.",
    cure="axolotl_train_saved_by_zero_to_fp32",
    variants=[_ZERO_3],
    needs=NEEDS,
    deadline=_DEADLINE,
)
def axolotl_train_saves_without_gathering(run: Run) -> None:
    """One layer trains.

    ``save_model`` in transformers/trainer.py (5.16.1) then writes an empty state and a checkpoint of the engine;
    ``save_trained_model`` in axolotl/train.py (0.19.0) looks at neither.
    """
    train_with_axolotl(run, ["model.layers.2."], intent=run.part("block"), zero={})


@case(
    kind="CONTROL",
    recipe="a DeepSpeed JSON without `stage3_gather_16bit_weights_on_model_save`, then `zero_to_fp32.py`",
    moment=_FROM_YAML,
    happens="Trains, and the weights are in the ZeRO checkpoint.",
    variants=[_ZERO_3],
    needs=NEEDS,
    deadline=_DEADLINE,
)
def axolotl_train_saved_by_zero_to_fp32(run: Run) -> None:
    """Axolotl's own train saves without gathering, and the checkpoint is put together as its own script does."""
    train_with_axolotl(run, ["model.layers.2."], intent=run.part("block"), zero={}, back=_put_together)


def _put_together(run: Run, folder: Path) -> dict[str, torch.Tensor]:
    import torch.distributed as dist
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    dist.barrier()
    run.reach("converted")
    state: dict[str, torch.Tensor] = get_fp32_state_dict_from_zero_checkpoint(str(folder))
    return state
