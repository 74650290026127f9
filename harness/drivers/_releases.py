"""What single releases of the libraries do otherwise on the way to the engine: one table.

None of it is mended: it is what is under test. Drivers do the same on every release, and a record says which of
these hold where it was made, so that a verdict that differs between stacks has its cause beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from harness.cell._options import Adapters, Driver, Options
from harness.cell.ranks._stack import installed_versions

__all__ = ["DIFFERENCES", "Difference", "that_hold"]

_TRAINERS: Final[tuple[Driver, ...]] = ("trainer", "sft_trainer")


@dataclass(frozen=True)
class Difference:
    """One thing that a release does otherwise than the newest."""

    package: str
    #: a version specifier
    versions: str
    what: str
    #: releases whose source was read, or that were run
    known_from: tuple[str, ...]
    #: of the variants that it shows in; empty: any
    drivers: tuple[Driver, ...] = ()
    adapters: tuple[Adapters, ...] = ()

    def holds(self, options: Options) -> bool:
        """Whether this variant, on what is installed here, may show it."""
        from packaging.specifiers import SpecifierSet

        installed = installed_versions().get(self.package)
        return (
            installed is not None
            and SpecifierSet(self.versions, prereleases=True).contains(installed)
            and (not self.drivers or options.driver in self.drivers)
            and (not self.adapters or options.adapters in self.adapters)
        )


#: Where a range ends between two releases that were not told apart, it ends at the newer one that differs.
DIFFERENCES: Final = (
    Difference(
        "transformers",
        "==5.1.0",
        "the Trainer makes no engine unless the DeepSpeed JSON has an optimizer or a scheduler: it has accelerate "
        "prepare a DummyScheduler alone",
        ("5.0.0", "5.1.0", "5.2.0"),
        drivers=_TRAINERS,
    ),
    Difference(
        "transformers",
        "<5.1.0",
        "the Trainer's scheduler is made for two optimizer groups, of which DeepSpeed drops an empty one; a torch that "
        "compares their numbers (2.13.0, not 2.2.2) raises at the first step where all that trains decays",
        ("4.36.2", "5.0.0", "5.1.0"),
        drivers=_TRAINERS,
    ),
    Difference(
        "transformers",
        ">=4.46,<4.53.3",
        "the Trainer divides the loss by the tokens of one rank's micro-batches, DeepSpeed by their number once more",
        ("4.46.3", "4.48.3"),
        drivers=_TRAINERS,
    ),
    Difference(
        "transformers",
        "<4.46",
        "the Trainer takes the mean loss that the model gave of each micro-batch",
        ("4.36.2", "4.38.2", "4.44.2"),
        drivers=_TRAINERS,
    ),
    Difference(
        "peft",
        "<0.9.0",
        "a copy of a partitioned head is made of its placeholders",
        ("0.7.1", "0.8.2", "0.9.0"),
        adapters=("lora_head",),
    ),
)


def that_hold(options: Options) -> Iterator[str]:
    """In words, those that this variant may show on what is installed here."""
    for one in DIFFERENCES:
        if one.holds(options):
            yield f"{one.package} {installed_versions()[one.package]}: {one.what}"
