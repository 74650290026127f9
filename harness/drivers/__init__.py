"""How a user reaches the engine, one module per way, each with a function ``train`` (:class:`Driver`).

:func:`train` takes the way that the variant names (``Options.driver``), so that one case goes them all.
Importing these modules imports neither torch nor a library; calling them does.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from harness.drivers._script import Driver, Script

if TYPE_CHECKING:
    from harness.cell._options import Driver as Name
    from harness.cell._run import Run

__all__ = ["Driver", "Script", "train"]

_MODULES: Final[Mapping[Name, str]] = {
    "engine": "harness.drivers.plain",
    "accelerate": "harness.drivers.accelerated",
    "trainer": "harness.drivers.trainer",
    "sft_trainer": "harness.drivers.sft_trainer",
}


def train(run: Run, **script: Any) -> None:
    """Build the variant's model, dress it as the variant says, and train it by the variant's driver.

    :param script: the fields of :class:`Script`; ``wrap`` is for cases that heed no other.
    """
    from harness.drivers._releases import that_hold
    from harness.drivers.dress import dress

    run.heed("driver")
    for difference in that_hold(run.options):
        run.note(difference)
    drive: Driver = importlib.import_module(_MODULES[run.options.driver]).train
    drive(run, Script(**{"wrap": dress(run), **script}))
