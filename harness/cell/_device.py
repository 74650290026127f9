"""The device axis: what ``cpu`` and ``cuda`` mean to a rank.  No case names a device."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Final

__all__ = ["DEVICES", "Device"]


@dataclass(frozen=True)
class Device:
    """How ranks run on one kind of device."""

    name: str
    backend: str

    def environ(self, environ: MutableMapping[str, str]) -> None:
        """Set what must stand in the environment before torch or DeepSpeed are imported."""
        # One thread: a fork is safe only from a single-threaded process, and two ranks on two
        # cores gain nothing from more.
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            environ[name] = "1"
        environ["TOKENIZERS_PARALLELISM"] = "false"
        # Importing pyarrow, as the Trainer does where `datasets` is installed, would start a thread.
        environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"
        environ["DS_ACCELERATOR"] = self.name
        if self.name == "cpu":
            # Busy GPUs must neither be used nor initialised by a CPU run.
            environ["CUDA_VISIBLE_DEVICES"] = ""
        else:
            # Otherwise is_available() initialises the driver, which no forked rank survives.
            environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"

    def shortage(self, world: int) -> str:
        """Why ``world`` ranks cannot run here; empty when they can.  Imports torch for cuda."""
        if self.name == "cpu":
            return ""
        import torch

        gpus = torch.cuda.device_count()
        if world > gpus:
            return f"{world} ranks need {world} GPUs, one each; torch sees {gpus} here"
        return ""

    def enter(self, local_rank: int) -> str:
        """Make this rank use its own device; its torch name, e.g. ``cuda:1``."""
        if self.name == "cpu":
            return "cpu"
        import torch

        torch.cuda.set_device(local_rank)
        return f"cuda:{local_rank}"


DEVICES: Final = {"cpu": Device("cpu", "gloo"), "cuda": Device("cuda", "nccl")}


def environment(device: str) -> dict[str, str]:
    """A copy of our environment, made ready for processes that run on ``device``."""
    environ = dict(os.environ)
    DEVICES[device].environ(environ)
    return environ
