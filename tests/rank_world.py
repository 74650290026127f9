"""What the tests of ranks share: quick libraries, an environment of their own, who is still alive."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import rank_cases
from rank_cases import SHARED_MEMORY

from harness.cell import Case, CaseRecord, Verdict
from harness.cell.ranks._launch import Request, ZygoteLauncher

#: Nothing takes this long unless it never happens.
PATIENCE: Final = 30.0

#: As much of the libraries as a rank touches before its case, imported in no time.
_STAND_INS: Final = {
    "torch/__init__.py": """\
class _Anything:
    def __getattr__(self, name):
        return _Anything()
    def __call__(self, *args, **kwargs):
        return _Anything()
class cuda:
    @staticmethod
    def is_initialized():
        return False
def __getattr__(name):
    return _Anything()
""",
    "torch/distributed.py": "def __getattr__(name):\n    return lambda *args, **kwargs: None\n",
    "deepspeed/__init__.py": "def init_distributed(*args, **kwargs): pass\n",
    "deepspeed/accelerator.py": """\
class _Cpu:
    def communication_backend_name(self):
        return "gloo"
def get_accelerator():
    return _Cpu()
""",
    "transformers/__init__.py": "",
    "accelerate/__init__.py": "",
}


class World:
    """A place for one launcher: its temporary folder, its environment, and what ever ran in it."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.patch = patch
        self.temporary = folder / "tmp"
        self.libraries = folder / "libraries"
        self.notes = folder / "notes"
        self.environment = folder / "environment"
        for one in (self.temporary, self.libraries, self.notes):
            one.mkdir()
        self.trace = f"{rank_cases.TRACE}={folder}"
        patch.setenv(rank_cases.TRACE, str(folder))
        patch.setenv(rank_cases.NOTES, str(self.notes))
        patch.setenv("TMPDIR", str(self.temporary))
        patch.setattr(tempfile, "tempdir", None)
        patch.syspath_prepend(str(self.libraries))

    def stand_in(self) -> None:
        """Run on stand-ins for the libraries, in an environment that has learned of no modules."""
        for name, text in _STAND_INS.items():
            self.plant(name, text)
        venv.create(self.environment, symlinks=True)
        self.patch.setattr(sys, "executable", str(self.environment / "bin" / "python"))

    def plant(self, file: str, text: str) -> None:
        """A library, or a part of one, that is found before all others."""
        path = self.libraries / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def strays(self) -> dict[int, str]:
        """All that was started in this world and lives; pid -> command."""
        found = {}
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                pid = int(entry.name)
                if self.trace.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found[pid] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        return found

    def left(self) -> dict[str, Any]:
        """All that is there and should not be, once nothing runs in this world."""
        things = {
            "processes": list(self.strays().values()),
            "shared memory": [name for name in self.shared_memory() if (SHARED_MEMORY / name).exists()],
            # os.walk does not mind what is removed under its hands.
            "files": [str(Path(top, name)) for top, _, names in os.walk(self.temporary) for name in names],
            "folders": [top for top, *_ in os.walk(self.temporary) if Path(top).parent.name.startswith("thawcheck-")],
        }
        return {kind: found for kind, found in things.items() if found}

    def told(self, kind: str) -> list[Any]:
        """What ranks noted of a kind, in no order."""
        return [
            json.loads(line)
            for path in self.notes.glob(f"{kind}-*")
            for line in path.read_text(encoding="utf-8").splitlines()
        ]

    def shared_memory(self) -> list[str]:
        return [name for name in self.told("shared memory") if isinstance(name, str)]

    def end_strays(self) -> None:
        """Whatever a failing test left, so that it disturbs no other."""
        for pid in self.strays():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for name in self.shared_memory():
            (SHARED_MEMORY / name).unlink(missing_ok=True)


@contextlib.contextmanager
def new_world(folder: Path) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        world = World(folder, patch)
        try:
            yield world
        finally:
            world.end_strays()


def wait_for(what: Callable[[], Any], *, patience: float = PATIENCE) -> Any:
    """The first true value of ``what()``; its last value once patience ends."""
    until = time.monotonic() + patience
    while not (value := what()) and time.monotonic() < until:
        time.sleep(0.02)
    return value


def request(case: Case, *, world: int = 1, deadline: float | None = None) -> Request:
    return Request(case, case.variants[0], world, deadline=deadline)


def run(launcher: ZygoteLauncher, case: Case, *, world: int = 1, deadline: float | None = None) -> CaseRecord:
    """Run one case."""
    return launcher.result(launcher.submit(request(case, world=world, deadline=deadline))).record


def answer(record: CaseRecord) -> Any:
    """What a case that ends by :class:`rank_cases.Answer` says."""
    assert record.verdict is Verdict.RAISES, record.headline
    assert record.failure is not None
    assert record.failure.type == "Answer", record.headline
    return json.loads(record.failure.message)
