"""The solution of each stack, kept in matrix/locks/: exact versions, no hashes."""

from __future__ import annotations

from harness.control.locks._file import Lock, LockState, read_lock, state_of, write_lock
from harness.control.locks._solve import SolverFailed, cache_folder, find_uv, solve

__all__ = [
    "Lock",
    "LockState",
    "SolverFailed",
    "cache_folder",
    "find_uv",
    "read_lock",
    "solve",
    "state_of",
    "write_lock",
]
