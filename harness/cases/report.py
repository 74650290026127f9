"""The report that thawcheck grew from, as nearly as it can be: Axolotl of early 2024, and what it became until it was a
package that can be installed by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from harness.cell import Hyper, Model, Options, case
from harness.cell.models import tiny_llama
from harness.drivers.axolotl_past import checked_ranges, first_loop, unchecked_ranges
from harness.drivers.pretrained import as_told
from harness.drivers.trainer import train_with_trainer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from harness.cell._run import Run

_SGD: Final = Hyper(optimizer="SGD", lr=0.1, weight_decay=0.0)


# -- the first loop ----------------------------------------------------------------------------


def _ten_blocks() -> nn.Module:
    """So that there is a layer 8."""
    from transformers import LlamaConfig, LlamaForCausalLM

    model: nn.Module = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=56,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=10,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=32,
            use_cache=False,
        )
    )
    return model


_EMBEDDING: Final = "model.embed_tokens.weight"
_LAYER: Final = "model.layers.8.self_attn.q_proj.weight"
_MEANT: Final = ("model.embed_tokens.*", "model.layers.8.*")

_AS_REPORTED: Final = [
    Options(stage=2),
    Options(init="zero_init"),
    Options(init="zero_init", persistence="default"),
    Options(init="zero_init", precision="bf16"),
]


def _as_many_tokens_as_the_tokenizer(model: Any) -> Any:
    model.resize_token_embeddings(64)
    return model


def _train_as_reported(run: Run, freeze: Any) -> None:
    def print_and_freeze(model: Any) -> None:
        shapes = {name: tuple(one.shape) for name, one in model.named_parameters()}
        printed = {name: shapes[name] for name in (_EMBEDDING, "lm_head.weight", _LAYER)}
        run.note("before training: " + ", ".join(f"{name} prints {list(one)}" for name, one in printed.items()))
        whole = {_EMBEDDING: (64, 32), "lm_head.weight": (64, 32)}
        assert printed == {**whole, _LAYER: (0,) if run.options.stage == 3 else (32, 32)}, printed
        freeze(model)

    train_with_trainer(
        run,
        Model("ten_blocks", _ten_blocks, tiny_llama.batch),
        batch=tiny_llama.batch,
        wrap=as_told(run, _as_many_tokens_as_the_tokenizer),
        freeze=print_and_freeze,
        intent=_MEANT,
    )


@case(
    kind="CONTROL",
    refs=["axolotl-ai-cloud/axolotl#950"],
    recipe="Axolotl's first loop, as in the report",
    moment="before the Trainer, after a resize",
    happens="Trains: `embed_tokens` and layer 8, and nothing else. Before training `embed_tokens` and `lm_head` print "
    "their whole size, since the resize made them anew outside zero.Init, and layer 8 prints torch.Size([0]).",
    variants=_AS_REPORTED,
    needs=("transformers", "accelerate"),
)
def report_first_loop(run: Run) -> None:
    """A Llama loaded under zero.Init, resized to the tokenizer, frozen by Axolotl's first loop, of December 2023."""
    _train_as_reported(run, lambda model: first_loop(model, ["model.embed_tokens.", "model.layers.8."]))


@case(
    kind="CONTROL",
    refs=["axolotl-ai-cloud/axolotl#950"],
    recipe="the report's remedy",
    moment="before the Trainer, after a resize",
    happens="Trains the same, and no more than the loop that it replaced; the sizes print as before.",
    variants=_AS_REPORTED,
    needs=("transformers", "accelerate"),
)
def report_remedy(run: Run) -> None:
    """The Llama of the report, in which only what matches nothing is touched."""

    def freeze_the_rest(model: Any) -> None:
        for name, parameter in model.named_parameters():
            if not name.startswith(("model.embed_tokens.", "model.layers.8.")):
                parameter.requires_grad = False

    _train_as_reported(run, freeze_the_rest)


# -- ranges of rows ----------------------------------------------------------------------------

_RANGES: Final = [
    Options(model="mlp", stage=2),
    Options(model="mlp"),
    Options(model="mlp", init="zero_init"),
]
_BY_HOOK: Final = "mask the rows by a hook of one's own, which knows how many there are."


def _train_rows(run: Run, freeze: Any, patterns: Sequence[str], rows: slice) -> None:
    model = run.model()
    freeze(model, patterns)
    engine = run.engine(model, hyper=_SGD)
    run.train(engine, intent="head.weight", rows={"head.weight": rows})


@case(
    kind="E",
    refs=["axolotl-ai-cloud/axolotl#1390"],
    recipe="Axolotl's row range, open, of March to July 2024",
    moment="before the engine",
    happens="Trains, under zero.Init by luck: the open end becomes 0, the range 5 to 0, and what lies before it is "
    "rows 0 to 5 all the same.",
    variants=_RANGES,
)
def unchecked_open_range(run: Run) -> None:
    """``[5:]`` behind the name of a parameter of eight rows, which prints as none."""
    _train_rows(run, unchecked_ranges, ["^head.weight$[5:]"], slice(5, 8))


@case(
    kind="E",
    refs=["axolotl-ai-cloud/axolotl#1390"],
    recipe="Axolotl's row range, closed, of March to July 2024",
    moment="before the engine",
    happens="Under zero.Init silent: the rows before the range keep still, those behind it train. Otherwise trains.",
    instead=_BY_HOOK,
    cure="row_hook_after_engine",
    variants=_RANGES,
)
def unchecked_closed_range(run: Run) -> None:
    """``[2:5]``: nothing is left behind the last range of a parameter that has no rows.

    ``_invert_ranges`` in axolotl/utils/freeze.py is given ``len(param)`` (read in the commit of 2024-03-15, and in
    0.19.0, where it still is).
    """
    _train_rows(run, unchecked_ranges, ["^head.weight$[2:5]"], slice(2, 5))


@case(
    kind="E",
    refs=["axolotl-ai-cloud/axolotl#1686"],
    recipe="Axolotl's row range, open, since July 2024",
    moment="before the engine",
    happens="Under zero.Init raises, where the same range had worked by luck: 5 to 0 is no range. Otherwise trains.",
    instead=_BY_HOOK,
    cure="row_hook_after_engine",
    variants=_RANGES,
)
def checked_open_range(run: Run) -> None:
    """``[5:]``, with the check that was put in for ranges that make no sense.

    ``_merge_ranges`` in axolotl/utils/freeze.py takes ``len(param)`` for an open end and then wants it behind the start
    (read in the commit of 2024-07-05, and in 0.19.0).
    """
    _train_rows(run, checked_ranges, ["^head.weight$[5:]"], slice(5, 8))
