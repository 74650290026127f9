"""What one case gave, as plain data: the line that is stored, merged, compared and shown."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.cell.outcome._verdict import Verdict

__all__ = ["SCHEMA", "CaseRecord", "Failure", "ParameterVerdict"]

#: Of the JSON line.  Raised when a field changes its meaning or goes.
SCHEMA = 1


def _told(record: Any) -> dict[str, Any]:
    """The fields of a dataclass that differ from their defaults."""
    plain = {}
    for one in dataclasses.fields(record):
        default = one.default if one.default_factory is dataclasses.MISSING else one.default_factory()
        if (value := getattr(record, one.name)) != default:
            plain[one.name] = value
    return plain


@dataclass(frozen=True)
class ParameterVerdict:
    """One parameter: what was meant, what was seen, and where they first parted."""

    name: str
    verdict: Verdict
    intended: bool
    #: ``requires_grad`` at the last optimizer step
    flag: bool
    #: shape this rank saw before any gather, e.g. ``[0]`` for a partitioned parameter
    local_shape: Sequence[int]
    full_shape: Sequence[int]
    #: index of the optimizer group that holds it; None when no group does
    group: int | None = None
    moment: str = ""
    expected: str = ""
    found: str = ""
    #: number of the optimizer step at which they parted; 0 before the first
    step: int | None = None
    #: relative L2 error of the reduced gradient against the twin's; None where either is absent
    grad_error: float | None = None
    #: the same of the step taken; 0 where it is within one rounding of the model's precision
    update_error: float | None = None
    #: largest absolute change of a weight over the run, here and in the twin
    moved: float | None = None
    twin_moved: float | None = None
    #: where a parameter trains in part: the rows that are meant to, and those that moved
    rows: str = ""
    moved_rows: str = ""
    #: the one rank whose view this is, where ranks differ
    rank: int | None = None

    @property
    def when(self) -> float:
        """A key to sort by: when it parted from what was meant."""
        return math.inf if self.step is None else self.step

    def as_dict(self) -> dict[str, Any]:
        """Without the fields that say nothing, since a line has one of these per parameter."""
        return _told(self) | {"verdict": str(self.verdict)}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> ParameterVerdict:
        known = {one.name for one in dataclasses.fields(cls)}
        kept = {key: value for key, value in plain.items() if key in known}
        return cls(**{**kept, "verdict": Verdict(plain["verdict"])})


@dataclass(frozen=True)
class Failure:
    """Why a process-level verdict was given: what ended the ranks, and which."""

    moment: str
    type: str
    message: str
    ranks: Sequence[int] = ()


@dataclass
class CaseRecord:
    """One case on one stack."""

    case: str
    kind: str
    options: dict[str, Any]
    id: str
    verdict: Verdict
    headline: str
    world: int
    device: str
    launcher: str
    failure: Failure | None = None
    parameters: list[ParameterVerdict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    #: stacks of every rank (HANG, and peers that were blocked when one raised)
    stacks: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    stack: str = ""
    harness: str = ""
    #: a digest of the case's code
    code: str = ""
    started: str = ""
    expected: dict[str, Any] | None = None
    as_expected: bool | None = None

    def as_dict(self) -> dict[str, Any]:
        plain = _told(self) | {"schema": SCHEMA, "verdict": str(self.verdict)}
        if self.failure:
            plain["failure"] = dataclasses.asdict(self.failure)
        if self.parameters:
            plain["parameters"] = [one.as_dict() for one in self.parameters]
        return plain

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> CaseRecord:
        known = {one.name for one in dataclasses.fields(cls)}
        kept = {key: value for key, value in plain.items() if key in known}
        kept["verdict"] = Verdict(plain["verdict"])
        kept["failure"] = Failure(**plain["failure"]) if plain.get("failure") else None
        kept["parameters"] = [ParameterVerdict.from_dict(one) for one in plain.get("parameters", [])]
        return cls(**kept)

    def worst(self) -> list[ParameterVerdict]:
        """The parameters that carry the headline, those that parted first at the front.

        One parameter's fault may make the next step of all others wrong (ranks that have drifted
        apart); it is the first that leads to the cause.
        """
        return sorted((one for one in self.parameters if one.verdict is self.verdict), key=lambda one: one.when)
