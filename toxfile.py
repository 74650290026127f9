"""The tox plugin of this checkout: each stack of matrix/stacks.toml becomes an environment of the same name.

What the environments share is in tox.ini; a stack adds its description, its labels, its Python and its lock file.
An environment of tox.ini with `stack = NAME` uses the Python and the lock file of that stack.
"""

from __future__ import annotations

import configparser
import functools
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from packaging.version import InvalidVersion, Version
from tox.config.loader.memory import MemoryLoader
from tox.plugin import impl
from tox.report import HandledError
from tox.tox_env.errors import Skip

_LOG: Final = logging.getLogger(__name__)
ROOT: Final = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))  # tox runs in an environment of its own, where thawcheck is not installed

from harness.control.locks._file import Lock, LockState, state_of  # noqa: E402
from harness.control.stacks import Matrix, MatrixError, Stack, load_matrix  # noqa: E402

if TYPE_CHECKING:
    from tox.config.main import Config
    from tox.config.sets import ConfigSet, EnvConfigSet
    from tox.session.state import State
    from tox.tox_env.api import ToxEnv

__all__ = ["find_links_for_uv", "path_with_pyenv"]


def find_links_for_uv(environ: Mapping[str, str]) -> str | None:
    """Say what UV_FIND_LINKS should be set to, so that uv finds what pip finds; None to leave it alone."""
    if environ.get("UV_FIND_LINKS"):
        return None
    # pip separates several places by white space, uv by commas.
    return ",".join(environ.get("PIP_FIND_LINKS", "").split()) or None


def path_with_pyenv(environ: Mapping[str, str]) -> str:
    """The PATH with every Python that pyenv has: its shims answer for the chosen versions alone."""
    path = environ.get("PATH", os.defpath)
    root = environ.get("PYENV_ROOT")
    if not root and (pyenv := shutil.which("pyenv", path=path)):
        root = subprocess.run([pyenv, "root"], capture_output=True, text=True, check=False).stdout.strip()
    found: list[tuple[Version, str]] = []
    for folder in Path(root).glob("versions/3.*/bin") if root else ():
        try:
            found.append((Version(folder.parent.name), str(folder)))
        except InvalidVersion:  # a virtual environment of pyenv's
            continue
    more = [folder for _, folder in sorted(found, reverse=True) if folder not in path.split(os.pathsep)]
    return os.pathsep.join([path, *more])


@functools.cache
def _matrix() -> Matrix:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.read(ROOT / "tox.ini", encoding="utf-8")
    try:
        # Elsewhere for `thawcheck bisect`, whose stacks are in no file of this checkout.
        folder = Path(os.environ.get("THAWCHECK_MATRIX") or ROOT / "matrix")
        return load_matrix(folder, [section.partition(":")[2] for section in parser.sections()])
    except MatrixError as error:
        raise HandledError(str(error)) from None


@functools.cache
def _lock(name: str) -> tuple[Lock | None, LockState]:
    matrix = _matrix()
    return state_of(matrix.stacks[name], matrix.lock(name))


@functools.cache
def _choose_python(versions: tuple[str, ...]) -> str | None:
    """Return the first version that uv can find; tox-uv itself does not look, and takes the first of a list."""
    try:
        from uv import find_uv_bin  # noqa: PLC0415  (not there beside tox-uv-bare, which uses the uv on PATH)

        uv: str | None = find_uv_bin()
    except (ImportError, FileNotFoundError):
        uv = shutil.which("uv")
    if uv is None:
        return versions[0]
    # the question that `uv venv` asks itself when tox-uv makes the environment
    command = [uv, "python", "find", "--no-project", "--no-python-downloads", "--python-preference=system"]
    for version in versions:
        if subprocess.run([*command, version], capture_output=True, check=False).returncode == 0:
            return version
    return None


class _StackLoader(MemoryLoader):
    """Settings of a stack; looks for its Python only when somebody asks for it."""

    def __init__(self, stack: Stack, **settings: object) -> None:
        super().__init__(base_python=[], **settings)
        self._stack = stack

    def load_raw(self, key: str, conf: Config | None, env_name: str | None) -> object:
        """Give no Python where none is there: what is named, tox-uv takes to be there."""
        if key != "base_python":
            return super().load_raw(key, conf, env_name)
        found = _choose_python(self._stack.python)
        if found is None:
            _LOG.warning("there is no Python %s here", " or ".join(self._stack.python))
        return [found] if found else []


@impl
def tox_extend_envs() -> Iterable[str]:
    """Name an environment after each stack."""
    return tuple(_matrix().stacks)


@impl
def tox_add_core_config(core_conf: ConfigSet, state: State) -> None:  # noqa: ARG001  (the hook's signature)
    """Let uv look for packages where pip does, and for Pythons where pyenv has them."""
    if (links := find_links_for_uv(os.environ)) is not None:
        os.environ["UV_FIND_LINKS"] = links
    os.environ["PATH"] = path_with_pyenv(os.environ)


@impl
def tox_add_env_config(env_conf: EnvConfigSet, state: State) -> None:  # noqa: ARG001  (the hook's signature)
    """Give an environment the Python and the lock file of its stack."""
    matrix = _matrix()
    own = env_conf.name if env_conf.name in matrix.stacks else ""
    env_conf.add_config("stack", of_type=str, default=own, desc="the stack that this environment is built on")
    name = env_conf["stack"]
    if not name:
        return
    if name not in matrix.stacks and matrix.folder != ROOT / "matrix":
        return  # an environment of this checkout, which nobody wants now
    if name not in matrix.stacks:
        message = f"tox.ini: {env_conf.name} asks for stack {name!r}; {matrix.folder / 'stacks.toml'} has no such"
        raise HandledError(message)
    stack = matrix.stacks[name]
    settings = _dependencies(matrix, stack)
    if own:
        settings["description"] = f"run the suite on {stack.description}"
        settings["labels"] = list(stack.labels)
    env_conf.loaders.insert(0, _StackLoader(stack, **settings))


def _dependencies(matrix: Matrix, stack: Stack) -> dict[str, object]:
    if stack.dev:
        return {"deps": "\n".join(stack.requires), "pip_pre": stack.prereleases}
    lock = matrix.lock(stack.name)
    return {
        "deps": f"-r {lock}",
        # What is installed beside the lock (test tools, thawcheck itself) must not move a locked version.
        "constraints": str(lock),
    }


@impl
def tox_on_install(tox_env: ToxEnv, arguments: object, section: str, of_type: str) -> None:  # noqa: ARG001
    """Install no stack that has no solution, and none by a lock that answers another question."""
    name = tox_env.conf["stack"] if "stack" in tox_env.conf else ""  # noqa: SIM401  (tox's has no get)
    if not name or _matrix().stacks[name].dev:
        return
    lock, state = _lock(name)
    if lock is None or state is not LockState.FRESH:
        path = _matrix().lock(name)
        raise HandledError(f"{path}: {state.value}; solve it with `thawcheck lock {name}`")
    if lock.unsolvable:
        raise Skip(f"UNSOLVABLE: {lock.unsolvable}")
