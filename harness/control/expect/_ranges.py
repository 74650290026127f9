"""What two ranges of versions have to do with each other."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.specifiers import SpecifierSet

from harness.cell.outcome._expect_faults import ABSENT

__all__ = ["can_compare", "holds", "is_empty", "meet"]


def can_compare() -> bool:
    """Whether packaging can compare ranges by themselves; else they are compared by the releases that are known."""
    return hasattr(SpecifierSet, "is_disjoint") and hasattr(SpecifierSet, "is_unsatisfiable")


def meet(one: str, other: str, known: Iterable[str]) -> bool:
    """Whether a version, or the absence of any, is in both."""
    if ABSENT in (one, other):
        return one == other
    if can_compare() and "===" not in one + other:  # what that holds is a text, not a version
        return not SpecifierSet(one).is_disjoint(SpecifierSet(other))
    return any(holds(one, release) and holds(other, release) for release in known)


def is_empty(wanted: str) -> bool:
    """Whether no version can be within."""
    return can_compare() and wanted != ABSENT and SpecifierSet(wanted).is_unsatisfiable()


def holds(wanted: str, version: str) -> bool:
    return wanted != ABSENT and SpecifierSet(wanted).contains(version, prereleases=True)
