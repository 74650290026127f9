"""Cases with one planted fault each, on real DeepSpeed; ``tests/test_verdicts.py`` runs them."""

from __future__ import annotations
