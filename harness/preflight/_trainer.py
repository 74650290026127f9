"""The arguments of transformers' Trainer, from a JSON or YAML file as its scripts take them."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from harness.preflight._deepspeed import DeepSpeed, read_deepspeed, read_deepspeed_text
from harness.preflight._files import read_text
from harness.preflight._finding import Finding, Level
from harness.preflight._json_text import read_json
from harness.preflight._plan import Checkpointing, checkpointing_kind
from harness.preflight._yaml_text import read_yaml

__all__ = ["TrainerArguments", "read_trainer"]

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "deepspeed": (str, dict),
    "optim": (str,),
    "learning_rate": (int, float, str),
    "weight_decay": (int, float),
    "bf16": (bool,),
    "fp16": (bool,),
    "gradient_checkpointing": (bool,),
    "gradient_checkpointing_kwargs": (dict,),
    "gradient_accumulation_steps": (int,),
    "max_grad_norm": (int, float),
    "model_name_or_path": (str,),
}


class TrainerArguments:
    """What was given, and what the Trainer takes where nothing was (transformers 5.16.1, ``training_args.py``)."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        fitting = {key: value for key, value in given.items() if key in _TYPES and _fits(value, _TYPES[key])}
        self.given = given
        self.model: str | None = fitting.get("model_name_or_path")
        self.optimizer: str = fitting.get("optim", "adamw_torch_fused")
        self.lr = _number(fitting.get("learning_rate"), 5e-5)
        self.weight_decay = _number(fitting.get("weight_decay"), 0.0)
        self.bf16: bool = fitting.get("bf16", False)
        self.fp16: bool = fitting.get("fp16", False)
        self.accumulation: int = fitting.get("gradient_accumulation_steps", 1)
        self.clipping = _number(fitting.get("max_grad_norm"), 1.0)
        kwargs = fitting.get("gradient_checkpointing_kwargs")
        self.checkpointing: Checkpointing = (
            checkpointing_kind(kwargs) if fitting.get("gradient_checkpointing") else "none"
        )


def read_trainer(path: Path) -> tuple[TrainerArguments, DeepSpeed | None, list[Finding]]:
    """The arguments, the DeepSpeed JSON that they name, and all that is wrong."""
    who = str(path)
    text, findings = read_text(path, "--trainer")
    if findings:
        return TrainerArguments({}), None, findings
    if path.suffix == ".json":
        read = read_json(text)
        given, broken, twice = read.value, read.broken, read.twice
        if read.lax:
            lax = f"it is not strict JSON ({'; '.join(read.lax)}), and transformers' own reader refuses that"
            findings.append(Finding(Level.WRONG, "lax-json", who, lax, "take it out"))
    else:
        given, broken, twice = read_yaml(text)
    findings += [Finding(Level.CAUTION, "key-twice", who, one) for one in twice]
    if broken or not isinstance(given, dict):
        told = f"it cannot be read: {broken}" if broken else f"it must be keys and values, found {given!r}"
        return TrainerArguments({}), None, [*findings, Finding(Level.INPUT, "arguments", who, told)]
    findings += [*_faults(given, who)]
    deepspeed, more = _deepspeed(given, path, who)
    return TrainerArguments(given), deepspeed, [*findings, *more]


def _deepspeed(given: Mapping[str, Any], path: Path, who: str) -> tuple[DeepSpeed | None, list[Finding]]:
    asked = given.get("deepspeed")
    if isinstance(asked, dict):
        return read_deepspeed(asked, f"{who}: deepspeed", "trainer")
    if not isinstance(asked, str):
        return None, []
    text, findings = read_text(path.parent / Path(asked).expanduser(), f"{who}: deepspeed")
    return (None, findings) if findings else read_deepspeed_text(text, asked, "trainer")


def _faults(given: Mapping[str, Any], who: str) -> Iterator[Finding]:
    names = {bool: "true or false", dict: "a block", str: "a text", int: "a whole number"}
    for key, value in given.items():
        wanted = _TYPES.get(str(key))
        if wanted is None:
            close = difflib.get_close_matches(str(key), _TYPES, n=1, cutoff=0.86)
            if close and close[0] not in given:
                text = f"it is not {close[0]!r}, so that is not set"
                yield Finding(Level.CAUTION, "unknown-key", f"{who}: {key}", text)
        elif value is not None and not _fits(value, wanted):
            what = " or ".join(dict.fromkeys(names.get(one, "a number") for one in wanted))
            yield Finding(Level.INPUT, "type", f"{who}: {key}", f"it must be {what}, found {value!r}")
    if given.get("bf16") is True and given.get("fp16") is True:
        yield Finding(Level.INPUT, "precision", f"{who}: bf16, fp16", "both are true; leave one of them on")


def _fits(value: Any, wanted: tuple[type, ...]) -> bool:
    return isinstance(value, wanted) and (not isinstance(value, bool) or bool in wanted)


def _number(value: Any, otherwise: float) -> float:
    try:
        return otherwise if value is None else float(value)
    except (TypeError, ValueError):
        return otherwise
