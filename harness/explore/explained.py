"""What is known of combinations that do not train: which case shows the same fault, and where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from harness.cell import CaseRecord, Verdict
from harness.explore.names import parse

__all__ = ["EXPLANATIONS", "Explanation", "explain"]

_LATE: Final = ("engine", "stepped")
_ZERO: Final = (1, 2, 3)


@dataclass(frozen=True)
class Explanation:
    """A verdict that a case explains, wherever all of ``where`` holds of a combination."""

    #: name of the case
    by: str
    verdict: Verdict
    #: recipe, moment, optimizer and settings of the variant -> the values that it speaks of
    where: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    #: of the exception, for RAISES
    type: str | None = None

    def speaks_of(self, combination: Mapping[str, Any], verdict: Verdict, exception: str | None) -> bool:
        return (
            verdict is self.verdict
            and self.type in (None, exception)
            and all(combination[axis] in values for axis, values in self.where.items())
        )


#: Measured on the stack ``latest``.
EXPLANATIONS: Final = (
    Explanation(
        "unfreeze_more_after_engine",
        Verdict.NO_UPDATE,
        {"recipe": ("thaw_more",), "moment": _LATE, "stage": _ZERO},
    ),
    Explanation("switch_part_after_engine", Verdict.NO_UPDATE, {"recipe": ("switch",), "moment": _LATE, "stage": (3,)}),
    Explanation(
        "switch_part_after_engine", Verdict.FROZEN_DRIFT, {"recipe": ("switch",), "moment": _LATE, "stage": (3,)}
    ),
    Explanation(
        "switch_part_after_engine",
        Verdict.RAISES,
        {"recipe": ("switch",), "moment": _LATE, "stage": (1, 2)},
        type="IndexError",
    ),
)


def explain(record: CaseRecord, known: Iterable[Explanation] = EXPLANATIONS) -> tuple[list[str], list[Verdict]]:
    """The cases that explain a combination's faults, and the faults that none explains.

    Each kind of fault that any parameter has must be explained, not the headline alone.
    """
    recipe, moment, optimizer, options = parse(record.id)
    combination = {"recipe": recipe, "moment": moment, "optimizer": optimizer, **options.as_dict()}
    clean = (Verdict.TRAINS, Verdict.FROZEN)
    faults = {record.verdict, *(one.verdict for one in record.parameters)}.difference(clean)
    exception = record.failure.type if record.failure else None
    by, unexplained = [], []
    for verdict in sorted(faults, key=str):
        found = next((one.by for one in known if one.speaks_of(combination, verdict, exception)), None)
        if found is None:
            unexplained.append(verdict)
        else:
            by.append(found)
    return by, unexplained
