"""From what was observed to what is expected: matrix/expected/ is made from matrix/observed/, and held against it."""

from __future__ import annotations

from harness.control.expect._causes import Cause, read_causes
from harness.control.expect._check import entry_faults, gaps
from harness.control.expect._compare import compare, few, said, told
from harness.control.expect._notes import cause_of, unexplained
from harness.control.expect._points import Measured, gather
from harness.control.expect._ranges import can_compare
from harness.control.expect._update import NotReproduced, Update, make_update

__all__ = [
    "Cause",
    "Measured",
    "NotReproduced",
    "Update",
    "can_compare",
    "cause_of",
    "compare",
    "entry_faults",
    "few",
    "gaps",
    "gather",
    "make_update",
    "read_causes",
    "said",
    "told",
    "unexplained",
]
