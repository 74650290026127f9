"""A checkout whose tox is made up, so that whole sweeps take a moment; see sweep_tox.py."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rank_world import wait_for
from small_matrix import RELEASES, STACKS, make_matrix, solve

import harness
from harness.control.stacks import Matrix

__all__ = ["ORDER", "Checkout", "Ran", "finished", "gone"]

#: In the order of a sweep: those on one torch together.
ORDER: Final = ["torch-2.2.1", "latest", "ds-0.17.0", "ds-0.19.0", "torch-2.13.0"]

#: Builds the wheel of a checkout, without a package index.
BACKEND: Final = """\
import zipfile

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(f"{wheel_directory}/small-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("small-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: small\\nVersion: 1.0\\n")
    return "small-1.0-py3-none-any.whl"
"""

PROJECT: Final = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "small"
version = "1.0"
"""


class Ran(NamedTuple):
    status: int
    out: list[str]
    err: list[str]


class Checkout:
    """A checkout whose tox is made up; see sweep_tox.py."""

    def __init__(self, root: Path, *, stacks: str = STACKS, releases: str = RELEASES) -> None:
        self.root = root
        self._started: list[subprocess.Popen[str]] = []
        self.matrix: Matrix = make_matrix(root, stacks=stacks, releases=releases)
        solve(self.matrix)
        (root / "how").mkdir()
        (root / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
        (root / "backend.py").write_text(BACKEND, encoding="utf-8")
        tox = Path(__file__).with_name("sweep_tox.py")
        (root / "toxw").write_text(f'exec "{sys.executable}" "{tox}" "$@"\n', encoding="utf-8")

    def how(self, stack: str, does: str) -> None:
        (self.root / "how" / stack).write_text(does, encoding="utf-8")

    def start(self, *arguments: str, command: str = "sweep") -> subprocess.Popen[str]:
        words = [sys.executable, "-m", "harness.control.cli", command, *arguments]
        path = os.pathsep.join([str(Path(harness.__file__).parents[1]), *filter(None, sys.path)])
        process = subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": path, "UV_TORCH_BACKEND": "cpu"},
        )
        self._started.append(process)
        return process

    def close(self) -> None:
        for process in self._started:
            with process:  # what a test that failed left running
                process.kill()

    def sweep(self, *arguments: str) -> Ran:
        return finished(self.start(*arguments))

    def ran(self) -> list[str]:
        """The stacks whose environments were made since this was asked last."""
        path = self.root / "ran"
        stacks = path.read_text(encoding="utf-8").split() if path.exists() else []
        path.unlink(missing_ok=True)
        return stacks

    def hanging(self, stack: str) -> list[int]:
        """Wait until a stack hangs; the processes of it."""
        path = self.root / "hanging" / stack
        assert wait_for(path.exists), f"{stack} was to hang"
        return list(map(int, path.read_text(encoding="utf-8").split()))

    def left(self) -> list[str]:
        """Of environments and wheels."""
        return [path.name for path in (self.root / ".tox" / "sweep").iterdir() if path.suffix != ".lock"]

    def bytes_of(self, folder: str) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted((self.root / folder).iterdir())}


def finished(process: subprocess.Popen[str]) -> Ran:
    out, err = process.communicate(timeout=120)
    assert "Traceback" not in out + err, out + err
    return Ran(process.returncode, out.splitlines(), err.splitlines())


def gone(pids: Sequence[int]) -> bool:
    """Whether none of them runs; those that nobody reaped do not count."""
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in "ZX":
            return False
    return True
