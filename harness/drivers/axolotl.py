"""Axolotl's own freezing code, as its ``unfrozen_parameters`` setting runs it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from importlib import metadata
from typing import TYPE_CHECKING

from harness.cell._case import LibraryMissing

if TYPE_CHECKING:
    from torch import nn

__all__ = ["absent", "freeze_layers_except"]

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
        raise absent(_MODULE, error, "dependencies left out") from error
    module.freeze_layers_except(model, list(patterns))


def absent(module: str, error: Exception, how: str) -> LibraryMissing:
    """What to raise where a module of Axolotl cannot be imported.

    :param how: a release that suits is to be installed.
    """
    try:
        found = f"axolotl {metadata.version('axolotl')} is installed, but importing {module} fails"
    except metadata.PackageNotFoundError:
        found = f"{module} cannot be imported, since axolotl is not installed"
    why = f"{type(error).__name__}: {error}"
    return LibraryMissing(f"{found} ({why}); install a release that suits this stack, {how}")
