"""What a user of Axolotl has on disk before it starts: base model, tokenizer, texts, DeepSpeed JSON, YAML."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["write_files", "write_texts", "write_tokenizer"]

#: What a tokenizer has beside its words.
_SPECIAL = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


def write_files(
    folder: Path, model: Any, *, rows: int, config: Mapping[str, Any], deepspeed: Mapping[str, Any]
) -> None:
    """All of it, into ``folder``; ``config.yml`` is what Axolotl is given.

    :param model: of transformers, whose words are numbered from 0.
    :param rows: texts in the data set.
    """
    import yaml

    vocabulary = model.config.vocab_size
    model.save_pretrained(folder / "base")
    write_tokenizer(folder / "base", vocabulary)
    write_texts(folder / "data.jsonl", rows, vocabulary)
    (folder / "deepspeed.json").write_text(json.dumps(deepspeed), encoding="utf-8")
    (folder / "config.yml").write_text(yaml.safe_dump(dict(config)), encoding="utf-8")


def write_tokenizer(folder: Path, vocabulary: int) -> None:
    """One that knows ``vocabulary`` words, all short; a real one, made here."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = [*_SPECIAL.values(), *_words(vocabulary)]
    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))  # noqa: S106
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=made, **_SPECIAL).save_pretrained(folder)


def write_texts(path: Path, rows: int, vocabulary: int) -> None:
    """Texts of different lengths in those words, a JSON object a line; always the same."""
    words = _words(vocabulary)
    drawn = random.Random(rows)  # noqa: S311  # reproducible, not secret
    texts = (" ".join(drawn.choices(words, k=drawn.randint(8, 14))) for _ in range(rows))
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")


def _words(vocabulary: int) -> list[str]:
    return [f"w{number}" for number in range(vocabulary - len(_SPECIAL))]
