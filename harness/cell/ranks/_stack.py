"""What is installed in this environment."""

from __future__ import annotations

import sys
from functools import cache
from importlib import metadata
from typing import Final

__all__ = ["PACKAGES", "installed_versions"]

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
