"""The parameters that a model really has: names, shapes and sizes, and who asks for them."""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from harness.cell.ranks._programs import import_path, program

__all__ = ["Inventory", "NoModel", "Parameter", "take_inventory"]

#: Of the process that builds the model; a busy machine took 80 s to import torch and transformers.
_PATIENCE: Final = 300.0
#: Never the network, whatever the libraries would like to look up or report.
OFFLINE: Final[Mapping[str, str]] = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    "WANDB_MODE": "disabled",
}


class NoModel(Exception):
    """The model cannot be built; says why in the user's terms."""


@dataclass(frozen=True)
class Parameter:
    """:ivar others: further names of the same parameter, as a tied head has."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    others: tuple[str, ...] = ()
    module: str = ""

    @property
    def count(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Inventory:
    """:ivar model_class: what was built, e.g. ``LlamaForCausalLM``; empty where names come from files alone.
    :ivar peak: most memory that building it held, in bytes.
    """

    parameters: tuple[Parameter, ...]
    model_class: str = ""
    peak: int = 0

    @property
    def names(self) -> list[str]:
        return [one.name for one in self.parameters]

    @property
    def total(self) -> int:
        return sum(one.count for one in self.parameters)

    def of(self, names: Iterable[str]) -> list[Parameter]:
        wanted = {*names}
        return [one for one in self.parameters if one.name in wanted]

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Inventory:
        return cls(
            tuple(
                Parameter(one["name"], tuple(one["shape"]), one["dtype"], tuple(one["others"]), one["module"])
                for one in plain["parameters"]
            ),
            plain["model_class"],
            plain["peak"],
        )


def take_inventory(request: Mapping[str, Any], *, timeout: float = _PATIENCE) -> dict[str, Any]:
    """Have the models of ``request`` built on the meta device, by a process of its own; what it says of them.

    :param request: as :func:`harness.preflight._meta.answer` takes it.
    :raises NoModel: with the reason.
    """
    try:
        done = subprocess.run(
            program("harness.preflight._meta"),
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=timeout,
            # No accelerator: shapes need none, and those that are there may be busy.
            env={**os.environ, **import_path(), **OFFLINE, "CUDA_VISIBLE_DEVICES": "", "PYTHONWARNINGS": "ignore"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoModel(f"building the model without its weights took longer than {timeout:g} s") from None
    try:
        said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise NoModel(f"building the model without its weights ended with status {done.returncode}: {last}") from None
    if "fault" in said:
        raise NoModel(said["fault"])
    return said
