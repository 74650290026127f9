"""Measure many stacks, one environment each, and keep what was seen."""

from __future__ import annotations

from harness.control.sweep._alone import NotMeasured, alone
from harness.control.sweep._measure import Measured, Measurer
from harness.control.sweep._plan import Shard, cases_left, is_measured, ordered, room_needed, torch_of

__all__ = [
    "Measured",
    "Measurer",
    "NotMeasured",
    "Shard",
    "alone",
    "cases_left",
    "is_measured",
    "ordered",
    "room_needed",
    "torch_of",
]
