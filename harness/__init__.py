"""thawcheck: does a freezing recipe train, under DeepSpeed ZeRO, what it is meant to train?

``harness.cell`` runs inside the environment under test and needs pytest and the standard
library only; ``harness.control`` runs beside it.  Write cases with :mod:`harness.cell`.
"""

from __future__ import annotations

from importlib import metadata

__all__ = ["__version__"]

try:
    __version__ = metadata.version("thawcheck")
except metadata.PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+unknown"
