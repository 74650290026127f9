"""The command that shows one outcome again."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from harness.cell._case import Case, MalformedCase
from harness.cell._catalog import shipped
from harness.cell._options import Options

if TYPE_CHECKING:
    from harness.cell.plug._session import Settings

__all__ = ["in_stack", "reproduce"]


def in_stack(stack: str, case: str, options: Options | None = None, more: str = "") -> str:
    """A shipped case, or one variant of it, in the environment of a stack."""
    wanted = f"{case}[{options.id}]" if options else case
    return f'tox run -e {stack} --{more} -- -k "{wanted}"'


def reproduce(settings: Settings, case: Case, options: Options) -> str:
    """What was run, as a command for the shell."""
    more = f" --world {settings.world}" if settings.world else ""
    more += f" --device {settings.device}" if settings.device != "cpu" else ""
    is_shipped = any(one.path == case.path for one in shipped())
    if is_shipped and settings.stack:
        return in_stack(settings.stack, case.name, options, more)
    file = shlex.quote(os.path.relpath(case.path))
    name = case.name if is_shipped else f"{file}::{case.name}"
    few: dict[str, object] = {"model": options.model, "stage": options.stage}
    all_ = few | {"init": options.init, "persistence": options.persistence, "precision": options.precision}
    for asked in (few, all_):
        if _first(case, asked) == options:
            return f"thawcheck run {name} {' '.join(f'--{axis} {value}' for axis, value in asked.items())}{more}"
    # `run` has no option for what else this variant sets.
    return f'thawcheck suite{"" if is_shipped else f" {file}"}{more} -- -k "{case.name}[{options.id}]"'


def _first(case: Case, asked: dict[str, object]) -> Options | None:
    """The variant that `thawcheck run` would take."""
    try:
        return case.choose(**asked)
    except MalformedCase:
        return None
