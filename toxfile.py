"""The tox plugin of this checkout: each stack of matrix/stacks.toml becomes an environment of the same name.

What the environments share is in tox.ini; a stack adds its description, its Python and its lock file.
An environment of tox.ini with `stack = NAME` uses the Python and the lock file of that stack.
"""

from __future__ import annotations

import configparser
import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tox.config.loader.memory import MemoryLoader
from tox.plugin import impl
from tox.report import HandledError

if sys.version_info >= (3, 11):
    import tomllib
else:  # tox depends on tomli there
    import tomli as tomllib

if TYPE_CHECKING:
    from tox.config.sets import ConfigSet, EnvConfigSet
    from tox.session.state import State

__all__ = ["Stack", "StackFileError", "find_links_for_uv", "load_stacks"]

ROOT: Final = Path(__file__).resolve().parent
STACKS: Final = ROOT / "matrix" / "stacks.toml"

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:[.-][a-z0-9]+)*")
# tox reads such a part of an environment's name as a Python version.
_PYTHON_FACTOR: Final = re.compile(r"(?:py|python|pypy|cpython)?[23]\.?\d*|py|pypy|cpython|python")
_PYTHON: Final = re.compile(r"3\.\d+")
_REQUIREMENT: Final = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?:==(?P<version>[0-9][A-Za-z0-9.!]*))?"
)
_LOCK_LINE: Final = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;#]+)", re.MULTILINE)


@dataclass(frozen=True)
class Stack:
    """One entry of matrix/stacks.toml, checked."""

    name: str
    description: str
    python: tuple[str, ...]
    requires: tuple[str, ...]
    lock: Path


class StackFileError(HandledError):
    """matrix/stacks.toml cannot be used; tox prints the message without a traceback."""

    def __init__(self, path: Path, faults: Iterable[str]) -> None:
        self.path = path
        self.faults = tuple(faults)
        count = "1 fault" if len(self.faults) == 1 else f"{len(self.faults)} faults"
        super().__init__("\n".join([f"{path}: {count}", *(f"  {fault}" for fault in self.faults)]))


def load_stacks(path: Path, taken: Iterable[str] = ()) -> dict[str, Stack]:
    """Read and check the stack file; every fault found is in the one StackFileError.

    `taken` are the names that environments of tox.ini have.
    """
    try:
        document: dict[str, object] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StackFileError(path, [f"cannot be read: {error.strerror or error}"]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StackFileError(path, [f"is not valid TOML: {error}"]) from error

    faults = [f"{key}: unknown key; only tables [stack.NAME] may stand here" for key in document if key != "stack"]
    tables = document.get("stack")
    if not isinstance(tables, Mapping) or not tables:
        faults.append("stack: there must be at least one table [stack.NAME]")
        raise StackFileError(path, faults)
    stacks = {}
    for name, table in tables.items():
        stack = _check_stack(str(name), table, path.parent / "locks", frozenset(taken), faults)
        stacks[stack.name] = stack
    if faults:
        raise StackFileError(path, faults)
    return stacks


def _check_stack(name: str, table: object, locks: Path, taken: frozenset[str], faults: list[str]) -> Stack:
    where = f"stack.{name}"
    if not _NAME.fullmatch(name):
        faults.append(f"{where}: the name must be of lower-case letters, digits, dots and dashes")
    faults.extend(
        f"{where}: tox would read {factor!r} in the name as a Python version"
        for factor in name.split("-")
        if _PYTHON_FACTOR.fullmatch(factor)
    )
    if name in taken:
        faults.append(f"{where}: tox.ini has an environment of this name")
    if not isinstance(table, Mapping):
        faults.append(f"{where}: must be a table, found {_toml_type(table)}")
        return Stack(name, "", (), (), locks)
    known = ("description", "python", "requires")
    faults.extend(f"{where}.{key}: unknown key; known are {', '.join(known)}" for key in table if key not in known)
    faults.extend(f"{where}.{key}: missing" for key in known if key not in table)

    description = _check_line(f"{where}.description", table.get("description", "-"), faults)
    python = _check_strings(f"{where}.python", table.get("python", ["3.0"]), faults)
    faults.extend(
        f"{where}.python: {version!r} is not a version such as '3.11'"
        for version in python
        if not _PYTHON.fullmatch(version)
    )
    requires = _check_strings(f"{where}.requires", table.get("requires", ["-"]), faults)
    lock = locks / f"{name}.txt"
    if "requires" in table:
        _check_requires(f"{where}.requires", requires, lock, faults)
    return Stack(name, description, python, requires, lock)


def _check_line(where: str, value: object, faults: list[str]) -> str:
    if not isinstance(value, str):
        faults.append(f"{where}: must be a string, found {_toml_type(value)}")
        return ""
    if not value.strip() or len(value.splitlines()) != 1:
        faults.append(f"{where}: must be one line of text")
    return value


def _check_strings(where: str, value: object, faults: list[str]) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        found = "an empty array" if value == [] else _toml_type(value)
        faults.append(f"{where}: must be an array of strings with at least one entry, found {found}")
        return ()
    strings = []
    for entry in value:
        if not isinstance(entry, str):
            faults.append(f"{where}: {entry!r} must be a string, found {_toml_type(entry)}")
        elif entry in strings:
            faults.append(f"{where}: {entry!r} stands there twice")
        else:
            strings.append(entry)
    return tuple(strings)


def _check_requires(where: str, requires: tuple[str, ...], lock: Path, faults: list[str]) -> None:
    """Each requirement is well formed, and the lock file answers it."""
    locked = _locked_versions(lock)
    if locked is None:
        faults.append(f"{where}: no lock file {lock} that can be read")
    for entry in requires:
        match = _REQUIREMENT.fullmatch(entry)
        if match is None:
            faults.append(f"{where}: {entry!r} is neither a bare name nor an exact pin such as 'torch==2.13.0'")
            continue
        if locked is None:
            continue
        found = locked.get(_normalize(match["name"]))
        if found is None:
            faults.append(f"{where}: {entry!r} is not in {lock.name}; solve the lock again")
        elif match["version"] not in (None, found):
            faults.append(f"{where}: {entry!r}, but {lock.name} has {found}; solve the lock again")


def _locked_versions(lock: Path) -> dict[str, str] | None:
    try:
        text = lock.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return {_normalize(match["name"]): match["version"] for match in _LOCK_LINE.finditer(text)}


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _toml_type(value: object) -> str:
    # bool before int: a Python bool is an int, a TOML boolean is not an integer.
    names = {bool: "a boolean", str: "a string", int: "an integer", float: "a float", list: "an array"}
    for kind, name in names.items():
        if isinstance(value, kind):
            return name
    return "a table" if isinstance(value, Mapping) else "a date or time"


def find_links_for_uv(environ: Mapping[str, str]) -> str | None:
    """Say what UV_FIND_LINKS should be set to, so that uv finds what pip finds; None to leave it alone."""
    if environ.get("UV_FIND_LINKS"):
        return None
    # pip separates several places by white space, uv by commas.
    return ",".join(environ.get("PIP_FIND_LINKS", "").split()) or None


@functools.cache
def _stacks() -> dict[str, Stack]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.read(ROOT / "tox.ini", encoding="utf-8")
    return load_stacks(STACKS, taken=[section.partition(":")[2] for section in parser.sections()])


@functools.cache
def _choose_python(versions: tuple[str, ...]) -> str:
    """Return the first version that uv can find: tox-uv itself looks at the first of a list only."""
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
    return versions[0]


@impl
def tox_extend_envs() -> Iterable[str]:
    """Name an environment after each stack."""
    return tuple(_stacks())


@impl
def tox_add_core_config(core_conf: ConfigSet, state: State) -> None:  # noqa: ARG001  (the hook's signature)
    """Let uv look for packages where pip does."""
    if (links := find_links_for_uv(os.environ)) is not None:
        os.environ["UV_FIND_LINKS"] = links


@impl
def tox_add_env_config(env_conf: EnvConfigSet, state: State) -> None:  # noqa: ARG001  (the hook's signature)
    """Give an environment the Python and the lock file of its stack."""
    stacks = _stacks()
    own = env_conf.name if env_conf.name in stacks else ""
    env_conf.add_config("stack", of_type=str, default=own, desc="the stack that this environment is built on")
    name = env_conf["stack"]
    if not name:
        return
    if name not in stacks:
        message = f"tox.ini: {env_conf.name} asks for stack {name!r}; {STACKS} has {', '.join(stacks)}"
        raise HandledError(message)
    stack = stacks[name]
    settings: dict[str, object] = {
        "base_python": [_choose_python(stack.python)],
        "deps": f"-r {stack.lock}",
        # What is installed beside the lock (test tools, thawcheck itself) must not move a locked version.
        "constraints": str(stack.lock),
    }
    if own:
        settings["description"] = f"run the suite on {stack.description}"
    env_conf.loaders.insert(0, MemoryLoader(**settings))
