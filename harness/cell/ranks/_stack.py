"""What is installed in this environment, and what old or optional parts of it need from us."""

from __future__ import annotations

import sys
from functools import cache
from importlib import metadata
from typing import Final

__all__ = ["PACKAGES", "installed_versions", "prepare_accelerator", "quiet_optional_ops"]

#: Whose versions may decide a verdict; kept with every result.
PACKAGES: Final = ("torch", "deepspeed", "transformers", "accelerate", "peft", "trl", "axolotl", "numpy", "pytest")


@cache
def installed_versions() -> dict[str, str]:
    """Python and every one of :data:`PACKAGES` that is installed; reads metadata, imports nothing."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def quiet_optional_ops() -> None:
    """Switch DeepSpeed's optional CPU communication ops off, as on a machine with no compiler.

    The shared-memory op is compiled at the first ``init_distributed`` (30 to 80 s), releases
    share one build folder, and it leaks 66 MiB per rank in /dev/shm (measured on 0.14 to
    0.19).  The table of compatible ops is read when the op would be built, so marking it there
    is enough, and the same in all releases that have the op.
    """
    ops = getattr(sys.modules.get("deepspeed"), "ops", None)
    table = getattr(ops, "__compatible_ops__", None)
    if table is not None:
        for name in ("deepspeed_shm_comm", "deepspeed_ccl_comm"):
            table[name] = False


def prepare_accelerator(backend: str) -> None:
    """Tell DeepSpeed's accelerator which backend the group was made with.

    Releases to 0.13 insist on ``ccl`` for CPU unless told; newer ones already agree.
    """
    from deepspeed.accelerator import get_accelerator

    accelerator = get_accelerator()
    if accelerator.communication_backend_name() != backend:
        accelerator._communication_backend_name = backend  # noqa: SLF001  # there is no other way to say it
