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


def _known(by: str, *verdicts: Verdict, type: str | None = None, **where: tuple[Any, ...]) -> list[Explanation]:  # noqa: A002
    return [Explanation(by, verdict, where, type) for verdict in verdicts]


_FREEZE: Final = ("exclusion", "literal_loop")

#: Measured on the stack ``latest``.  What speaks of less comes first.
EXPLANATIONS: Final = (
    # A step too small to show in a weight is no NO_UPDATE: then it is its local gradient that tells.
    *_known(
        "unfreeze_more_in_bf16",
        Verdict.NO_UPDATE,
        Verdict.WRONG_GRAD,
        recipe=("thaw_more",),
        moment=_LATE,
        stage=(0,),
        precision=("bf16",),
    ),
    *_known(
        "switch_part_in_bf16",
        Verdict.NO_UPDATE,
        Verdict.WRONG_GRAD,
        Verdict.FROZEN_DRIFT,
        recipe=("switch",),
        moment=_LATE,
        stage=(0,),
        precision=("bf16",),
    ),
    *_known(
        "unfreeze_more_after_engine",
        Verdict.NO_UPDATE,
        Verdict.WRONG_GRAD,
        Verdict.WRONG_UPDATE,
        recipe=("thaw_more",),
        moment=_LATE,
        stage=_ZERO,
    ),
    *_known(
        "switch_part_after_engine",
        Verdict.NO_UPDATE,
        Verdict.WRONG_GRAD,
        Verdict.FROZEN_DRIFT,
        recipe=("switch",),
        moment=_LATE,
        stage=(3,),
    ),
    *_known(
        "switch_part_after_engine",
        Verdict.RAISES,
        type="IndexError",
        recipe=("switch",),
        moment=_LATE,
        stage=(1, 2),
    ),
    *_known(
        "freeze_after_steps_offloaded",
        Verdict.FROZEN_DRIFT,
        recipe=_FREEZE,
        moment=("stepped",),
        offload=("cpu",),
    ),
    *_known(
        "freeze_after_steps_sgd_momentum",
        Verdict.FROZEN_DRIFT,
        recipe=_FREEZE,
        moment=("stepped",),
        optimizer=("momentum",),
        stage=_ZERO,
    ),
    *_known(
        "freeze_after_steps_adamw",
        Verdict.FROZEN_DRIFT,
        recipe=_FREEZE,
        moment=("stepped",),
        optimizer=("adamw",),
        stage=_ZERO,
    ),
    *_known(
        "freeze_except_after_engine_decay",
        Verdict.FROZEN_DRIFT,
        recipe=_FREEZE,
        moment=("engine",),
        optimizer=("adamw", "momentum"),
        stage=_ZERO,
    ),
    # Its optimizer's own step on zero gradients counts for Adam, and fills a momentum with decay.
    *_known(
        "freeze_except_in_bf16",
        Verdict.WRONG_UPDATE,
        Verdict.FROZEN_DRIFT,
        optimizer=("adamw", "momentum"),
        stage=(0,),
        precision=("bf16",),
    ),
    *_known(
        "reentrant_without_input_grads",
        Verdict.RAISES,
        type="AssertionError",
        model=("mlp",),
        checkpointing=("reentrant",),
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
