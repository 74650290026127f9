"""Solve a stack with uv: one solve each, never a forced second install."""

from __future__ import annotations

import datetime as dt
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from harness.control.locks._file import Lock
from harness.control.stacks._stack import Stack, normalize

__all__ = ["SolverFailed", "cache_folder", "find_uv", "solve"]

#: torch pins these exactly by itself where its build wants them; a CPU build wants none.
_OF_TORCHS_BUILD = re.compile(r"nvidia-.*|triton|cuda-.*")
_LINE = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;+]+)(?:\+\S+)?(?:.*# via (?P<via>.*))?")
#: What uv says when the question has no answer.
_NO_ANSWER = ("No solution found", "Failed to build", "build backend returned an error", "Failed to parse metadata")
#: What it says, perhaps beside that, when it could not ask: then nothing is known.
_NOT_ASKED = re.compile(
    r"network was disabled|not found in the (?:cache|package registry)|Failed to fetch|Failed to download|"
    r"error sending request|dns error|Request failed after|Connection (?:refused|reset)|No space left",
    re.IGNORECASE,
)
#: Of uv's variables those that say where packages are and how to get there.  All others would bend the answer, and
#: nobody could tell from the lock: UV_TORCH_BACKEND, UV_CONSTRAINT, UV_RESOLUTION ...  UV_FIND_LINKS too: what lies
#: in a folder has no date, and would be taken into any era.
_HARMLESS = re.compile(
    r"UV_(?:INDEX\w*|DEFAULT_INDEX|EXTRA_INDEX_URL|CACHE_DIR|NATIVE_TLS|SYSTEM_CERTS|HTTP_\w+|REQUEST_TIMEOUT|"
    r"KEYRING_PROVIDER|INSECURE_HOST|OFFLINE|PYTHON\w*|CONCURRENT_\w+|LINK_MODE)"
)
#: Every platform that the lock is for; else the machine that solves decides which wheels will do.
_PLATFORM = "x86_64-manylinux_2_28"


class SolverFailed(Exception):
    """uv is not there, or could not work: nothing is known of the stack."""


def find_uv() -> str:
    """The uv that is installed beside us, or that is on the PATH.  Raises SolverFailed."""
    try:
        from uv import find_uv_bin

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
    if found is None:
        raise SolverFailed("there is no uv: install it (`pip install uv`), or run through ./toxw")
    return found


def cache_folder() -> Path:
    """Where uv keeps packages, or the folder nearest to it that exists yet.  Raises SolverFailed."""
    done = subprocess.run([find_uv(), "cache", "dir"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SolverFailed(f"uv does not say where its cache is: {_short(done.stderr)}")
    folder = Path(done.stdout.strip()).resolve()
    return next(one for one in (folder, *folder.parents) if one.exists())


def solve(stack: Stack, root: Path, uv: str) -> Lock:
    """Ask uv.

    :param root: the checkout, whose pyproject.toml says that Axolotl's own pins decide nothing; a stack that wants a
        package whole is solved away from it.
    :raises SolverFailed: when nothing can be said; a stack without a solution is a Lock that says why.
    """
    if not stack.whole:
        _check_root(stack, root)
    command = [
        uv,
        "pip",
        "compile",
        "-",
        "--quiet",
        "--annotation-style=line",
        "--no-header",
        "--python-version",
        stack.python[0],
    ]
    command += ["--python-platform", _PLATFORM]
    if stack.as_of is not None:
        # uv leaves out what came on the given day's midnight (UTC) or later.
        command += ["--exclude-newer", _midnight_after(stack)]
        for package in stack.pins:
            command += ["--exclude-newer-package", f"{package}={_FAR}"]
    with tempfile.TemporaryDirectory() as elsewhere:
        done = subprocess.run(
            command,
            input="\n".join(stack.requires),
            capture_output=True,
            text=True,
            cwd=elsewhere if stack.whole else root,
            check=False,
            env={
                name: value
                for name, value in os.environ.items()
                if not name.startswith("UV_") or _HARMLESS.fullmatch(name)
            },
        )
    version = subprocess.run([uv, "--version"], capture_output=True, text=True, check=False).stdout.split()
    solver = f"uv {version[1]}" if len(version) > 1 else "uv"
    if done.returncode:
        if _NOT_ASKED.search(done.stderr) or not any(text in done.stderr for text in _NO_ANSWER):
            raise SolverFailed(f"{stack.name}: uv could not work: {_short(done.stderr)}")
        return Lock(stack.question, solver, unsolvable=_reason(done.stderr))
    found = [one for line in done.stdout.splitlines() if (one := _LINE.match(line))]
    kept = {
        name: one["version"]
        for one in found
        if not _OF_TORCHS_BUILD.fullmatch(name := normalize(one["name"])) or (stack.whole and _is_asked_for(one["via"]))
    }
    return Lock(stack.question, solver, kept)


def _is_asked_for(via: str | None) -> bool:
    """Whether anything but torch and its build asks for it: pyproject.toml hides who does when it is installed."""
    askers = [normalize(one.strip()) for one in (via or "").split(",")]
    return any(one and one != "torch" and not _OF_TORCHS_BUILD.fullmatch(one) for one in askers)


#: After everything; a package that is pinned exactly is taken whenever it came.
_FAR = "2100-01-01T00:00:00Z"


def _midnight_after(stack: Stack) -> str:
    assert stack.as_of is not None
    try:
        return f"{stack.as_of + dt.timedelta(days=1)}T00:00:00Z"
    except OverflowError:
        raise SolverFailed(f"{stack.name}: there is no day after {stack.as_of}, its as_of") from None


def _check_root(stack: Stack, root: Path) -> None:
    """Axolotl's own pins would decide what a stack is made of, if pyproject.toml did not say otherwise."""
    project = root / "pyproject.toml"
    asked = "axolotl" in {normalize(requirement.partition("=")[0]) for requirement in stack.requires}
    if asked and not (project.is_file() and 'name = "axolotl"' in project.read_text(encoding="utf-8")):
        raise SolverFailed(f"{stack.name}: {project} says nothing of Axolotl's dependencies; solve in a checkout")


def _reason(said: str) -> str:
    """The solver's own words, on one line; of a failed build the error that ended it."""
    if "No solution found" in said:
        causes = re.findall(r"(?:cause:|╰─▶)\s*(.*(?:\n(?!\s*(?:hint|cause)).*)*)", said)
        return _short(causes[0] if causes else said)
    name = re.search(r"Failed to build `([^`]+)`", said)
    errors = re.findall(r"^\s*(\w*(?:Error|Exception): .*)$", said, re.MULTILINE)
    ended = errors[-1] if errors else said
    return _short(f"{name[1] if name else 'a package'} cannot be built: {ended}")


def _short(text: str) -> str:
    return " ".join(text.split())[:600]
