"""What a user means to do, whatever tool they told it to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Literal

from harness.preflight._deepspeed import DeepSpeed
from harness.preflight._source import Source

__all__ = ["Adapter", "Plan", "checkpointing_kind"]

Checkpointing = Literal["none", "reentrant", "non_reentrant"]


def checkpointing_kind(kwargs: Mapping[str, Any] | None) -> Checkpointing:
    """Which that transformers enables is; without a word it was the reentrant one until 5.0.0 (modeling_utils.py)."""
    if kwargs is not None:
        # torch's own default, for who names other settings alone.
        return "non_reentrant" if kwargs.get("use_reentrant") is False else "reentrant"
    try:
        old = int(metadata.version("transformers").partition(".")[0]) < 5
    except (metadata.PackageNotFoundError, ValueError):
        old = False
    return "reentrant" if old else "non_reentrant"


@dataclass(frozen=True)
class Adapter:
    """LoRA, as PEFT is asked for it.

    :ivar targets: names or ends of names of modules; one text is a regular expression, or ``all-linear``.
    :ivar whole: modules that train whole beside it, ``modules_to_save``.
    """

    kind: str
    rank: int = 8
    targets: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """:ivar tool: who reads the patterns and makes the engine.
    :ivar key: what the user calls the patterns: an option, or a key of a file.
    :ivar train: patterns of what is meant to train; None: all of it.
    :ivar dialect: how they are read, a name of :data:`harness.preflight._dialects.DIALECTS`.
    :ivar deepspeed: what the JSON says; None where none is used.
    :ivar settings: those of the tool, as given, for what is asked of them once.
    """

    tool: Literal["deepspeed", "trainer", "axolotl"]
    source: Source
    key: str
    train: tuple[str, ...] | None = None
    dialect: str = "glob"
    deepspeed: DeepSpeed | None = None
    adapter: Adapter | None = None
    optimizer: str = "AdamW"
    lr: float | None = None
    weight_decay: float | None = None
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    checkpointing: Checkpointing = "none"
    accumulation: int = 1
    clipping: float | None = None
    trust: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
