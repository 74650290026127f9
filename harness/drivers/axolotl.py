"""Axolotl's own freezing code, as its ``unfrozen_parameters`` setting runs it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from importlib import metadata
from typing import TYPE_CHECKING

from harness.cell._case import LibraryMissing

if TYPE_CHECKING:
    from torch import nn

__all__ = ["freeze_layers_except"]

_MODULE = "axolotl.utils.freeze"


def freeze_layers_except(model: nn.Module, patterns: Sequence[str]) -> None:
    """Call the real ``axolotl.utils.freeze.freeze_layers_except``.

    :param patterns: Axolotl's: regular expressions matched from the start of a name, with every
        dot a literal one, and perhaps a range of rows behind: ``^model.layers.2.``,
        ``^lm_head.weight$[32:64]``.
    :raises LibraryMissing: where Axolotl is absent or, as its wheels up to 0.5.0 without their
        dependencies, cannot be imported.
    """
    try:
        module = importlib.import_module(_MODULE)
    except Exception as error:  # a release that does not suit the stack fails on import in every way there is
        raise LibraryMissing(_why(error)) from error
    module.freeze_layers_except(model, list(patterns))


def _why(error: Exception) -> str:
    try:
        found = f"axolotl {metadata.version('axolotl')} is installed, but importing {_MODULE} fails"
    except metadata.PackageNotFoundError:
        found = f"{_MODULE} cannot be imported, since axolotl is not installed"
    return f"{found} ({type(error).__name__}: {error}); install a release that suits this stack, dependencies left out"
