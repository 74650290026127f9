"""What a combination is made of, and its name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from harness.cell import Hyper, Options

__all__ = ["HYPERS", "MOMENTS", "RECIPES", "parse"]

HYPERS: Final[Mapping[str, Hyper]] = {
    "adamw": Hyper(),
    "momentum": Hyper(optimizer="SGD", lr=0.1, momentum=0.9, weight_decay=0.1),
    "plain_sgd": Hyper(optimizer="SGD", lr=1.0, weight_decay=0.0),
}
RECIPES: Final = ("exclusion", "literal_loop", "thaw_more", "switch")
MOMENTS: Final = ("loaded", "engine", "stepped")

_ID: Final = re.compile(r"(?P<recipe>\w+?)__(?P<moment>\w+?)__(?P<optimizer>\w+)\[(?P<variant>[^\]]+)\]")


def parse(text: str) -> tuple[str, str, str, Options]:
    """Recipe, moment, optimizer and variant of a combination.  Raises ValueError."""
    found = _ID.fullmatch(text)
    if (
        found is None
        or found["recipe"] not in RECIPES
        or found["moment"] not in MOMENTS
        or found["optimizer"] not in HYPERS
    ):
        raise ValueError(f"{text!r} is no combination, such as 'exclusion__loaded__adamw[mlp-z2]'")
    return found["recipe"], found["moment"], found["optimizer"], Options.from_id(found["variant"])
