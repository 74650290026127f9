"""By which road a case reaches the engine: what of :mod:`harness.drivers` its function calls."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Final

from harness.cell._case import Case

__all__ = ["ENGINE", "driver_title", "drivers_of"]

#: Of a case that calls ``deepspeed.initialize`` through ``run.engine`` and nothing else.
ENGINE: Final = "engine"

_PACKAGE: Final = "harness.drivers."

_TITLES: Final = {
    ENGINE: "deepspeed.initialize alone",
    "adapters": "PEFT adapters",
    "axolotl": "Axolotl",
    "disk": "checkpoints on disk",
    "pretrained": "from_pretrained",
    "trainer": "Hugging Face Trainer",
}


def driver_title(driver: str) -> str:
    return _TITLES.get(driver, driver)


def drivers_of(case: Case) -> tuple[str, ...]:
    """In the order of the alphabet."""
    found = {
        module.removeprefix(_PACKAGE).lstrip("_").partition(".")[0]
        for name in _names(case.function.__code__)
        if (module := _module(getattr(case.function, "__globals__", {}).get(name))).startswith(_PACKAGE)
    }
    return tuple(sorted(found)) or (ENGINE,)


def _module(thing: object) -> str:
    return thing.__name__ if isinstance(thing, types.ModuleType) else str(getattr(thing, "__module__", "") or "")


def _names(code: types.CodeType) -> Iterator[str]:
    """Those that it looks up, and those of the functions inside it."""
    yield from code.co_names
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield from _names(one)
