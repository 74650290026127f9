"""Combinations of settings that nobody asked for, run against the twin: where the faults are that no case shows yet.

`thawcheck explore` runs them.  What is known of them stands in ``known.toml`` here, in the form of
expectations, each with the case that explains it.
"""

from __future__ import annotations
