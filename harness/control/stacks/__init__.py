"""The stacks: which sets of versions there are, as matrix/stacks.toml and matrix/releases.toml say.

tox imports this through toxfile.py, in an environment of its own: packaging and the standard library only.
"""

from __future__ import annotations

from harness.control.stacks._expand import Matrix, load_matrix
from harness.control.stacks._faults import MatrixError
from harness.control.stacks._stack import Stack

__all__ = ["Matrix", "MatrixError", "Stack", "load_matrix"]
