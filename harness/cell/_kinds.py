"""The kinds of faults, as the catalogue sorts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["CONTROL", "KINDS"]

#: Of a case that shows a thing to be no fault.
CONTROL: Final = "CONTROL"

#: Letter -> what the kind is about.
KINDS: Final[Mapping[str, str]] = {
    "A": "Optimizer groups in which nothing trains",
    "B": "Groups, their settings and schedulers out of step",
    "C": "Unfreezing, or switching parts, after the engine exists",
    "D": "Frozen values that move all the same",
    "E": "Rows and elements of a parameter",
    "F": "Code that reads a size of 0",
    "G": "Adapters that are saved empty or unchanged",
    "H": "Modules attached, replaced or delegated to after the engine exists",
    "I": "Activation checkpointing over frozen parameters",
    "J": "Trained and frozen parameters of different dtypes",
    "K": "Checkpoints, resuming and export",
    "L": "Ranks that do not do the same",
    "M": "Leaf modules",
    "N": "Several models, one of them frozen",
    "O": "Weights that are wrong before the first step",
    "P": "Variants of the engine",
    "Q": "Flags and patterns that do not say what they seem to",
    CONTROL: "Recipes that work, and things that are no fault",
}
