"""Ranks that something else started: torchrun, SLURM, the deepspeed launcher."""

from __future__ import annotations
