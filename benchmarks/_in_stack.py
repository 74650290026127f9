"""The part of ``benchmarks.stacks`` that runs inside a stack: prints seconds as one line of JSON."""

from __future__ import annotations

import json
import statistics
import sys
import time

from harness.cases.core import freeze_except_before_engine
from harness.cell import Options
from harness.cell.ranks._launch import Request, ZygoteLauncher

__all__ = ["main"]


def main(repeat: int) -> dict[str, float]:
    figures = {"first_zygote": _start()}
    launcher = ZygoteLauncher()
    try:
        for model in ("mlp", "tiny_llama"):
            _case(launcher, model)  # teaches the zygote of this environment what to import
            _case(launcher, model)  # and waits until it has
        launcher.close()
        _start()  # which tries what there was no time to try
        figures["zygote"] = _start()
        launcher = ZygoteLauncher()
        for model in ("mlp", "tiny_llama"):
            _case(launcher, model)
            figures[model] = statistics.median(_case(launcher, model) for _ in range(repeat))
    finally:
        launcher.close()
    return figures


def _start() -> float:
    """Seconds from nothing to a zygote that is ready."""
    launcher = ZygoteLauncher()
    began = time.perf_counter()
    try:
        launcher.start()
        return time.perf_counter() - began
    finally:
        launcher.close()


def _case(launcher: ZygoteLauncher, model: str) -> float:
    variant = Options(model=model, stage=3)
    began = time.perf_counter()
    record = launcher.result(launcher.submit(Request(freeze_except_before_engine, variant, 2))).record
    if not record.parameters:
        sys.exit(f"{record.id}: {record.verdict}: {record.headline}")
    return time.perf_counter() - began


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))
