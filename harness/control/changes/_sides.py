"""The two sides of a diff, as somebody names them: a path, a day, or a stack."""

from __future__ import annotations

import datetime as dt
import io
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from harness.cell._patterns import nearest
from harness.cell.outcome._observed import Observed, ObservedError, load_all
from harness.control.report import SourceError, read_sources

__all__ = ["NoSide", "on_day", "side"]


class NoSide(Exception):
    """What was named gives nothing to compare; says why."""


def side(name: str, observed: Callable[[], Path]) -> list[Observed]:
    """Everything that a name stands for.

    :param observed: the folder of the matrix, asked for only where it is needed.
    :raises NoSide: with every fault.
    """
    path = Path(name)
    if path.exists():
        return _unique(name, _from_path(path))
    if re.fullmatch(r"\d{4}-\d\d-\d\d", name):
        return on_day(name, observed())
    folder = observed()
    names = sorted(one.stem for one in folder.glob("*.jsonl"))
    if name in names:
        return _from_path(folder / f"{name}.jsonl")
    raise NoSide(
        f"{name!r} is no file or folder, no day as YYYY-MM-DD, and no stack that is observed in {folder}; "
        f"{nearest(name, names)}"
    )


def _from_path(path: Path) -> list[Observed]:
    try:
        return list(read_sources([path]).stacks)
    except SourceError as error:
        raise NoSide("\n".join(error.faults)) from None


def _unique(name: str, some: list[Observed]) -> list[Observed]:
    keys = [(one.stack, one.device) for one in some]
    if twice := sorted({stack for stack, device in keys if keys.count((stack, device)) > 1}):
        raise NoSide(f"{name}: has more than one of {', '.join(twice)}; name one file of it")
    return some


def on_day(day: str, folder: Path) -> list[Observed]:
    """As git has the folder at the end of a day."""
    try:
        dt.date.fromisoformat(day)
    except ValueError:
        raise NoSide(f"{day!r} is no day") from None
    commit = _git(folder, day, "rev-list", "-1", f"--before={day}T23:59:59Z", "HEAD", "--", ".").decode().strip()
    if not commit:
        raise NoSide(f"{day}: git has nothing of {folder} that is as old")
    packed = _git(folder, day, "archive", "--format=tar", commit, ".")
    with tempfile.TemporaryDirectory() as room, tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive.getmembers():
            content = archive.extractfile(member)
            # By name alone, so that nothing is written elsewhere.
            if content is not None and member.name.endswith(".jsonl") and "/" not in member.name.removeprefix("./"):
                (Path(room) / Path(member.name).name).write_bytes(content.read())
        try:
            found = list(load_all(Path(room)).values())
        except ObservedError as error:
            faults = [fault.replace(f"{room}/", f"{commit[:12]}:") for fault in error.faults]
            raise NoSide("\n".join([f"{day}: this thawcheck cannot read what was observed then", *faults])) from None
    if not found:
        raise NoSide(f"{day}: nothing was observed in {folder} then")
    return found


def _git(folder: Path, day: str, *arguments: str) -> bytes:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=False)
    except FileNotFoundError:
        raise NoSide(f"{day}: a day is looked up by git, and there is no git on the PATH") from None
    except OSError as error:
        raise NoSide(f"{day}: git cannot be run: {error.strerror}") from None
    if done.returncode:
        said = " ".join(done.stderr.decode(errors="replace").split())
        raise NoSide(f"{day}: a day is looked up by git, which cannot say what {folder} was: {said}")
    return done.stdout
