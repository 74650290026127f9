"""The settings of a variant as command-line options, the same for every program of ours."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from harness.cell._options import Options

__all__ = ["add_axes", "asked_axes"]

_HELP = {
    "stage": (int, "N", "ZeRO stage, 0 to 3"),
    "model": (str, "NAME", "tiny_llama, mlp, ..."),
    "init": (str, "HOW", "plain or zero_init"),
    "persistence": (str, "HOW", "zero or default"),
    "precision": (str, "HOW", "fp32 or bf16"),
    "checkpointing": (str, "HOW", "none, reentrant or non_reentrant"),
    "offload": (str, "HOW", "none, cpu or cpu_adam"),
    "accumulation": (int, "N", "micro-batches per optimizer step"),
    "clipping": (float, "NORM", "largest gradient norm, 0 for none"),
    "overlap": (str, "HOW", "overlap_comm: default, on or off"),
    "embeddings": (str, "HOW", "as_built or resized"),
    "driver": (str, "NAME", "engine, accelerate, trainer or sft_trainer"),
    "adapters": (str, "NAME", "none, lora, lora_head or lora_tokens"),
}


def add_axes(parser: argparse.ArgumentParser) -> None:
    """One option for each setting."""
    for axis, (convert, metavar, text) in _HELP.items():
        parser.add_argument(f"--{axis}", type=convert, metavar=metavar, help=text)
    parser.add_argument(
        "--gather-16bit", action="store_true", default=None, help="stage3_gather_16bit_weights_on_model_save"
    )


def asked_axes(args: argparse.Namespace) -> dict[str, Any]:
    """Those that were given."""
    axes = [one.name for one in dataclasses.fields(Options)]
    return {axis: getattr(args, axis) for axis in axes if getattr(args, axis) is not None}
