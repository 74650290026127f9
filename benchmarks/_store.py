"""The figures as JSON."""

from __future__ import annotations

import dataclasses
import datetime as dt
import errno
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks._bounds import Check
from benchmarks._case import VARIANT, WORLD, exclusion
from benchmarks._figures import Figures
from harness import __version__
from harness.cell.ranks._stack import installed_versions

__all__ = ["as_dict", "claim", "store"]


def claim(path: Path) -> None:
    """See that ``path`` can be written before minutes are spent.  Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    with tempfile.TemporaryFile(dir=path.parent):
        pass


def as_dict(figures: Figures, checks: Sequence[Check]) -> dict[str, Any]:
    return {
        "schema": 1,
        "case": f"{exclusion.name}[{VARIANT.id}]",
        "world": WORLD,
        "finished": dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
        "harness": __version__,
        "versions": installed_versions(),
        "machine": {"cores": os.cpu_count(), "load": os.getloadavg()},
        "labels": figures.labels,
        "seconds": figures.seconds,
        "zygote_start_seconds": figures.zygote_start_seconds,
        "memory_bytes": dataclasses.asdict(figures.memory),
        "bounds": [
            {
                "what": one.bound.what,
                "sign": one.bound.sign,
                "limit": one.bound.limit,
                "unit": one.bound.unit,
                "found": one.found,
                "met": one.met,
            }
            for one in checks
        ],
    }


def store(path: Path, figures: Figures, checks: Sequence[Check]) -> None:
    """Write the file whole or not at all.  Raises OSError."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        fresh.write_text(json.dumps(as_dict(figures, checks), indent=1) + "\n")
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
