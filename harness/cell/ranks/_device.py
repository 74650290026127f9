"""The device axis: what ``cpu`` and ``cuda`` mean to a rank.  No case names a device."""

from __future__ import annotations

import os
import subprocess
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Final

from harness.cell.ranks._programs import import_path, program
from harness.cell.ranks._stack import installed_versions
from harness.cell.ranks._start import own_session

__all__ = ["DEVICES", "Census", "Device", "environment"]


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
        # Importing torch._inductor, as DeepSpeed from 0.16.9 on does, would start a pool on torch 2.2.
        environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
        # Importing pyarrow, as the Trainer does where `datasets` is installed, would start a thread.
        environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"
        # Axolotl tells its makers of every run unless this stands there when it is imported, which the zygote may do.
        environ["AXOLOTL_DO_NOT_TRACK"] = "1"
        # Importing bitsandbytes would ask the Hub for a kernel; a case of one's own that downloads sets this to 0.
        environ.setdefault("HF_HUB_OFFLINE", "1")
        environ["DS_ACCELERATOR"] = self.name
        if self.name == "cpu":
            # Busy GPUs must neither be used nor initialised by a CPU run.
            environ["CUDA_VISIBLE_DEVICES"] = ""
        else:
            # Otherwise is_available() initialises the driver, which no forked rank survives.
            environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"

    def shortage(self, world: int, gpus: int | None = None) -> str:
        """Why ``world`` ranks cannot run here; empty when they can.

        :param gpus: how many GPUs there are; None imports torch and asks it.
        """
        if self.name == "cpu":
            return ""
        there = _count() if gpus is None else gpus
        if world <= there:
            return ""
        asked = "1 rank needs a GPU" if world == 1 else f"{world} ranks need {world} GPUs, one each"
        return f"{asked}; torch {installed_versions().get('torch', '')} sees {there or 'none'} here"

    def enter(self, local_rank: int) -> str:
        """Make this rank use its own device; its torch name, e.g. ``cuda:1``."""
        if self.name == "cpu":
            return "cpu"
        import torch

        torch.cuda.set_device(local_rank)
        return f"cuda:{local_rank}"


DEVICES: Final = {"cpu": Device("cpu", "gloo"), "cuda": Device("cuda", "nccl")}


class Census:
    """Counts the GPUs in a process of its own, while this one goes on.

    Where torch cannot ask NVML it asks the driver, and a process that did must not fork ranks.
    """

    def __init__(self, device: str) -> None:
        self._process: subprocess.Popen[str] | None = None
        if device != "cpu":
            self._process = subprocess.Popen(
                program("harness.cell.ranks._device"),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | import_path(),
            )

    def result(self) -> int:
        """How many there are; 0 where torch cannot say, having said why on standard error."""
        if self._process is None:
            return 0
        said, _ = self._process.communicate()
        last = said.split()[-1:]  # libraries may talk when imported
        return int(last[0]) if last and last[0].isdecimal() else 0


def _count() -> int:
    import torch

    return torch.cuda.device_count()


def environment(device: str) -> dict[str, str]:
    """A copy of our environment, made ready for processes that run on ``device``."""
    environ = dict(os.environ)
    DEVICES[device].environ(environ)
    return environ


if __name__ == "__main__":
    own_session()  # nobody awaits the answer of an orphan
    print(_count())
