"""Runs inside the environment under test: cases, ranks, twin, verdicts.

Depends on pytest and the standard library, beside what is under test.  Importing it imports
neither torch nor DeepSpeed.
"""

from __future__ import annotations

from harness.cell._case import Case, Fix, MalformedCase, case
from harness.cell._hyper import Group, Hyper
from harness.cell._options import Options, grid
from harness.cell.models import Model
from harness.cell.outcome._record import CaseRecord, Failure, ParameterVerdict
from harness.cell.outcome._verdict import Verdict
from harness.cell.recipes import freeze_all, freeze_all_then_unfreeze, freeze_except, train_rows, unfreeze

__all__ = [
    "Case",
    "CaseRecord",
    "Failure",
    "Fix",
    "Group",
    "Hyper",
    "MalformedCase",
    "Model",
    "Options",
    "ParameterVerdict",
    "Verdict",
    "case",
    "freeze_all",
    "freeze_all_then_unfreeze",
    "freeze_except",
    "grid",
    "train_rows",
    "unfreeze",
]
