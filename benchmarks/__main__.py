"""``python -m benchmarks``."""

from __future__ import annotations

from benchmarks._cli import main

# Processes that multiprocessing starts import this file again, under another name.
if __name__ == "__main__":
    raise SystemExit(main())
