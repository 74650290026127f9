"""Start a module of ours in a fresh interpreter that imports just what this one would."""

from __future__ import annotations

import os
import sys
from typing import Final

__all__ = ["import_path", "program"]

#: Not ``python -m``: that puts the working directory first, and in a checkout of ours the
#: harness of the source tree would then serve the one that is installed and under test.
_BOOT: Final = """\
import runpy, sys
if sys.path[:1] == [""]:
    del sys.path[0]
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def program(module: str, *arguments: str) -> list[str]:
    """The command line that runs ``module`` as a program; give it :func:`import_path`, too."""
    return [sys.executable, "-c", _BOOT, module, *arguments]


def import_path() -> dict[str, str]:
    """The environment variable that lets a fresh interpreter import all that this one can."""
    return {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
