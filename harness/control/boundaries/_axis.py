"""Stacks that differ in one package, in the order of its releases."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from packaging.version import Version

from harness.control.stacks import Stack

__all__ = ["Axis", "axes_of"]


@dataclass(frozen=True)
class Axis:
    """One sweep of the matrix."""

    sweep: str
    package: str
    #: by their release, oldest first
    stacks: tuple[Stack, ...]


def axes_of(stacks: Iterable[Stack], package: str) -> list[Axis]:
    """Those along which ``package`` moves, in the order of the matrix."""
    sweeps: dict[str, list[Stack]] = {}
    for stack in stacks:
        if stack.moves == package:
            sweeps.setdefault(stack.sweep, []).append(stack)
    return [
        Axis(sweep, package, tuple(sorted(found, key=lambda one: Version(one.at)))) for sweep, found in sweeps.items()
    ]
