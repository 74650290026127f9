"""TRL's ``SFTTrainer`` on a data set that is tokenized already, with a tokenizer that is made on the spot.

It is a Trainer and goes its way; what it does otherwise (TRL 1.16.0):

- Unless told, it trains in bf16 and with checkpointing. It is told.
- It computes log-probabilities and loss from the weight of the head itself, whose forward nobody calls then
  (``add_fused_lm_head`` in trl/trainer/utils.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from harness.cell._case import MalformedCase
from harness.drivers.trainer import train_by

if TYPE_CHECKING:
    from harness.cell._run import Run
    from harness.cell.models import Batch
    from harness.drivers._script import Script

__all__ = ["train"]

#: Sequences in a micro-batch of the tiny language models; here each is an item of the data set.
_ROWS: Final = 2
_SPECIAL: Final = ("<pad>", "<eos>")


def train(run: Run, script: Script) -> None:
    """As with transformers' Trainer.

    :raises MalformedCase: for models that are not transformers'.
    """
    train_by(_Sft(run), run, script)


class _Sft:
    """TRL's, for supervised fine-tuning."""

    def __init__(self, run: Run) -> None:
        self._who = f"case on {run.options.id}"
        self._checkpointing = run.options.checkpointing != "none"

    def arguments(self, settings: dict[str, Any]) -> Any:
        import huggingface_hub
        from trl import SFTConfig

        huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY = True
        ours = {
            "per_device_train_batch_size": _ROWS,
            "gradient_checkpointing": self._checkpointing,
            "dataset_kwargs": {"skip_prepare_dataset": True},
        }
        return SFTConfig(**{**settings, **ours})

    def trainer(self, *, model: Any, arguments: Any, batches: list[Batch], callbacks: list[Any]) -> Any:
        from datasets import Dataset
        from trl import SFTTrainer

        rows = [{key: one.tolist() for key, one in batch.items()} for batch in batches]
        if any({*row} != {"input_ids", "labels"} or len(row["input_ids"]) != _ROWS for row in rows):
            raise MalformedCase(
                self._who, f"the SFTTrainer takes micro-batches of {_ROWS} sequences with input_ids and labels"
            )
        items = [dict(zip(row, values, strict=True)) for row in rows for values in zip(*row.values(), strict=True)]
        return SFTTrainer(
            model=model,
            args=arguments,
            train_dataset=Dataset.from_list(items),
            processing_class=_tokenizer(),
            callbacks=callbacks,
        )


def _tokenizer() -> Any:
    """It is asked for its special tokens only."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    pad, end = _SPECIAL
    words = WordLevel({word: number for number, word in enumerate(_SPECIAL)}, unk_token=pad)
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words), pad_token=pad, eos_token=end)
