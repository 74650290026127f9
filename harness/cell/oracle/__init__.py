"""What the engine did, and what it should have done: observations, the twin, the judgement."""

from __future__ import annotations
