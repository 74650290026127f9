"""Which rank this process is, as torchrun, SLURM or the deepspeed launcher tell it."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["NoPlace", "Place", "first_host", "this_machine"]

_HOW = """\
this program is one rank of several and something must start all of them:
  torchrun --nproc-per-node 2 -m harness.cell CASE
  srun --ntasks 2 python -m harness.cell CASE
  deepspeed --num_gpus 2 --module harness.cell CASE
or anything that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each.
To have the ranks started for you: thawcheck run CASE"""


class NoPlace(Exception):
    """The environment does not say which rank this is."""


@dataclass(frozen=True)
class Place:
    """One rank among those that something else started."""

    launcher: str
    rank: int
    world: int
    #: a server of torch's key-value store, or where rank 0 is to start one
    address: str
    port: int
    #: the launcher runs that server
    served: bool = False
    #: rank on this machine and number of ranks here, where the launcher says so
    local_rank: int | None = None
    local_world: int | None = None
    #: tells apart what one server keeps for several attempts of one launch
    attempt: str = ""

    @property
    def first_here(self) -> bool:
        """Whether it falls to this rank to tell of faults that all ranks of the machine share."""
        return self.rank == 0 or self.local_rank in (None, 0)

    @classmethod
    def find(cls, environ: Mapping[str, str]) -> Place:
        """:raises NoPlace: with every fault, and how to launch."""
        if "RANK" in environ or "WORLD_SIZE" in environ:
            return _from_torch(environ)
        if "SLURM_PROCID" in environ and ("SLURM_STEP_NUM_TASKS" in environ or "SLURM_NTASKS" in environ):
            return _from_slurm(environ)
        raise NoPlace(f"neither RANK and WORLD_SIZE nor SLURM_PROCID and SLURM_NTASKS are set: {_HOW}")


def _from_torch(environ: Mapping[str, str]) -> Place:
    read = _Reader(environ)
    torchrun = "TORCHELASTIC_RUN_ID" in environ
    return read.done(
        Place(
            launcher="torchrun" if torchrun else "environment",
            rank=read.number("RANK"),
            world=read.number("WORLD_SIZE", least=1),
            address=read.text("MASTER_ADDR"),
            port=read.number("MASTER_PORT", least=1),
            served=environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
            local_rank=read.optional("LOCAL_RANK"),
            # torchrun's name, then that of the deepspeed launcher
            local_world=read.optional("LOCAL_WORLD_SIZE") or read.optional("LOCAL_SIZE"),
            attempt=f"{environ.get('TORCHELASTIC_RUN_ID', '')}/{environ.get('TORCHELASTIC_RESTART_COUNT', '0')}",
        )
    )


def _from_slurm(environ: Mapping[str, str]) -> Place:
    read = _Reader(environ)
    # The step's own count: that of the job may be larger.
    world = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in environ else "SLURM_NTASKS"
    hosts = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST", "")
    job, step = (read.optional(name) or 0 for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    return read.done(
        Place(
            launcher="srun",
            rank=read.number("SLURM_PROCID"),
            world=read.number(world, least=1),
            address=environ.get("MASTER_ADDR") or first_host(hosts) or read.text("MASTER_ADDR"),
            # Equal for all tasks of a step, different for steps that may run at the same time.
            port=read.optional("MASTER_PORT") or 20000 + (16 * job + step) % 20000,
            local_rank=read.optional("SLURM_LOCALID"),
        )
    )


class _Reader:
    """Reads variables and collects what is wrong with them."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._faults: list[str] = []

    def text(self, name: str) -> str:
        if not self._environ.get(name):
            self._faults.append(f"{name} is not set")
        return self._environ.get(name, "")

    def number(self, name: str, least: int = 0) -> int:
        text = self.text(name)
        if text and not (text.isdecimal() and int(text) >= least):
            self._faults.append(f"{name} must be a number from {least}, found {text!r}")
        return int(text) if text.isdecimal() else least

    def optional(self, name: str) -> int | None:
        return self.number(name) if self._environ.get(name) else None

    def done(self, place: Place) -> Place:
        if not self._faults and place.rank >= place.world:
            self._faults.append(f"rank {place.rank} is not below the number of ranks, {place.world}")
        if not self._faults and place.port >= 1 << 16:
            self._faults.append(f"MASTER_PORT must be below 65536, found {place.port}")
        if self._faults:
            raise NoPlace(f"{'; '.join(self._faults)}: {_HOW}")
        return place


def first_host(nodes: str) -> str:
    """The first host of a SLURM list such as ``gpu[03-05,9],login``; rank 0 runs there."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", nodes)
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", first.group()) if first else ""


def this_machine() -> str:
    """Equal for processes of one running machine; not a host name alone, which images share."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()}/{boot}"
