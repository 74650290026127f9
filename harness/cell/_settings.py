"""The plugin's options: one table, from which command line, ini file and checks are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.cell._device import DEVICES
from harness.cell._expect import default_folder
from harness.cell._patterns import nearest
from harness.cell._session import Settings

__all__ = ["add_options", "results_paths", "settings_from"]


@dataclass(frozen=True)
class _Option:
    name: str
    help: str
    metavar: str = ""
    flag: bool = False
    convert: Callable[[str], Any] = str


_OPTIONS = (
    _Option("results", "write a JSON line per case to FILE, as they come", "FILE", convert=Path),
    _Option("markdown", "write the freeze table to FILE, as Markdown", "FILE", convert=Path),
    _Option("device", f"run ranks on one of: {', '.join(DEVICES)}", "DEVICE"),
    _Option("stack", "name of the set of versions, kept with each result", "NAME"),
    _Option("expected", "folder of TOML files with expected verdicts", "DIR", convert=Path),
    _Option("deadline", "seconds without progress that make a HANG", "SECONDS", convert=float),
    _Option("world", "number of ranks, instead of what each case says", "N", convert=int),
    _Option("jobs", "cases under way at once (default 2)", "N", convert=int),
    _Option("keep", "keep the ranks' folders", flag=True),
    _Option("show-logs", "attach every rank's log to every report", flag=True),
    _Option("table", "print the freeze table at the end", flag=True),
)


def add_options(parser: pytest.Parser) -> None:
    """Each as ``--thaw-NAME`` and as ini value ``thaw_NAME``."""
    group = parser.getgroup("thawcheck", "freezing under DeepSpeed ZeRO")
    for option in _OPTIONS:
        ini = f"thaw_{option.name.replace('-', '_')}"
        flag = f"--thaw-{option.name}"
        if option.flag:
            group.addoption(flag, dest=ini, action="store_true", default=None, help=option.help)
            parser.addini(ini, option.help, type="bool", default=False)
        else:
            group.addoption(flag, dest=ini, metavar=option.metavar, default=None, help=option.help)
            parser.addini(ini, option.help, default="")


def value_of(config: pytest.Config, name: str) -> Any:
    """The option as given on the command line, else in the ini file; None when neither.

    :raises pytest.UsageError: for a value that does not convert.
    """
    option = next(one for one in _OPTIONS if one.name == name)
    ini = f"thaw_{name.replace('-', '_')}"
    value = config.getoption(ini)
    if value is None:
        value = config.getini(ini)
    if option.flag or value in ("", None):
        return bool(value) if option.flag else None
    try:
        return option.convert(value)
    except ValueError:
        raise pytest.UsageError(f"--thaw-{name}: {value!r} is not a number") from None


def settings_from(config: pytest.Config) -> Settings:
    """:raises pytest.UsageError: with every fault at once."""
    faults = []
    device = value_of(config, "device") or "cpu"
    if device not in DEVICES:
        faults.append(f"--thaw-device: no device is called {device!r}; {nearest(device, DEVICES)}")
    for name in ("deadline", "world", "jobs"):
        value = value_of(config, name)
        if value is not None and not value > 0:
            faults.append(f"--thaw-{name}: must be positive, found {value}")
    expected = value_of(config, "expected")
    if expected is not None and not expected.is_dir():
        faults.append(f"--thaw-expected: there is no folder {expected}")
    if faults:
        raise pytest.UsageError("\n".join(faults))
    return Settings(
        device=device,
        stack=value_of(config, "stack") or "",
        expected=expected or default_folder(),
        deadline=value_of(config, "deadline"),
        world=value_of(config, "world"),
        keep=value_of(config, "keep"),
        show_logs=value_of(config, "show-logs"),
        jobs=value_of(config, "jobs") or 2,
        in_process=bool(config.getoption("usepdb", False)),
    )


def results_paths(config: pytest.Config) -> tuple[Path | None, Path | None, bool]:
    """Where results and Markdown go, and whether the table is printed."""
    return value_of(config, "results"), value_of(config, "markdown"), value_of(config, "table")
