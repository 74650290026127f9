"""Combinations of settings that nobody asked for, run against the twin: where the faults are that no case shows yet.

`thawcheck explore` runs them; ``explained.py`` says which case shows the same fault.
"""

from __future__ import annotations
