"""The stacks of one bisection: a stack of the matrix with one package moved, everything else held."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from packaging.version import InvalidVersion, Version

from harness.control.bisect._line import Line, Place
from harness.control.stacks import Matrix, Stack, load_matrix
from harness.control.stacks._stack import TOOLS, normalize

__all__ = ["companions_on", "moved", "scratch_matrix"]


def moved(base: Stack, line: Line, place: Place, companions: Mapping[str, str], name: str) -> Stack:
    """The base at one place.

    :param companions: other packages that stand elsewhere there, at which version.
    """
    pins = {**companions} if line.clone else {line.package: place.at, **companions}
    kept = [one for one in base.requires if _name(one) not in pins]
    requires = [f"{package}=={version}" for package, version in pins.items()] + kept
    at = f"{line.package} {place.short}"
    return dataclasses.replace(
        base,
        name=name,
        description=f"{base.name} with {at}",
        requires=tuple(requires),
        why={},
        sweep="",
        moves="",
        at=place.at,
    )


def companions_on(matrix: Matrix, packages: Iterable[str], place: Place) -> dict[str, str]:
    """The newest releases of these packages on the day of a place; none where there was none yet."""
    found = {}
    for package in map(normalize, packages):
        known = matrix.releases.get(package, {})
        there = [one for one, day in known.items() if place.day is not None and day <= place.day]
        if there:
            found[package] = there[-1]
    return found


def scratch_matrix(matrix: Matrix, stacks: Sequence[Stack], folder: Path) -> Matrix:
    """A matrix of just these stacks, for tox, in a folder of its own; locks that are there already stay.

    :raises OSError: where it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(matrix.folder / "releases.toml", folder / "releases.toml")
    unknown = {_name(one) for stack in stacks for one in stack.requires} - matrix.releases.keys() - {*TOOLS}
    tables = [*([f"undated = {json.dumps(sorted(unknown))}"] if unknown else []), *map(_table, stacks)]
    (folder / "stacks.toml").write_text("\n".join(tables), encoding="utf-8")
    return load_matrix(folder)


def _table(stack: Stack) -> str:
    """A stack as stacks.toml has it; JSON's strings and lists are TOML's, too."""
    wanted = [one for one in stack.requires if one not in TOOLS]
    pins = {_name(one): one[len(_name(one)) :] for one in wanted if one != _name(one)}
    held = [f"python = {json.dumps([*stack.python])}"]
    if stack.as_of is not None:
        held.append(f"as_of = {stack.as_of.isoformat()}")
    held.append(f"floats = {json.dumps([one for one in wanted if one == _name(one)])}")
    held += [f"pins.{json.dumps(package)} = {json.dumps(_pin(range_))}" for package, range_ in pins.items()]
    return "\n".join(
        [
            f'[base."{stack.name}"]',
            *held,
            f'[stack."{stack.name}"]',
            f"description = {json.dumps(stack.description)}",
            f"labels = {json.dumps([*stack.labels])}",
            f"base = {json.dumps(stack.name)}",
        ]
    )


def _pin(text: str) -> str:
    """``==1.0`` is a release, anything else a range."""
    exact = text.removeprefix("==")
    try:
        Version(exact)
    except InvalidVersion:
        return text
    return exact


def _name(requirement: str) -> str:
    """Of a pin, a range or a bare name."""
    end = next((place for place, one in enumerate(requirement) if one in "=<>!~"), len(requirement))
    return requirement[:end]
