"""The plugin's options: one table, from which command line, ini file and checks are made."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.cell.outcome._expect import default_folder
from harness.cell.outcome._nearby import default_observed
from harness.cell.plug._session import Settings
from harness.cell.ranks._device import DEVICES

__all__ = ["Outputs", "add_options", "outputs_from", "settings_from"]


def _whole(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError
    return value


#: What a value must be, by what makes it one.
_WANTED: dict[Callable[[str], Any], str] = {
    _whole: "a whole number, 1 or more",
    _seconds: "a positive number of seconds",
}


@dataclass(frozen=True)
class _Option:
    name: str
    help: str
    metavar: str = ""
    flag: bool = False
    convert: Callable[[str], Any] = str

    @property
    def ini(self) -> str:
        return f"thaw_{self.name.replace('-', '_')}"


_OPTIONS = (
    _Option("results", "write a JSON line per case to FILE, as they come", "FILE", convert=Path),
    _Option("markdown", "write the freeze table to FILE, as Markdown", "FILE", convert=Path),
    _Option("device", f"run ranks on one of: {', '.join(DEVICES)}", "DEVICE"),
    _Option("stack", "name of the set of versions, kept with each result", "NAME"),
    _Option("expected", "folder of TOML files with expected verdicts", "DIR", convert=Path),
    _Option("observed", "folder of observed stacks, for what to compare a difference with", "DIR", convert=Path),
    _Option("deadline", "seconds without progress that make a HANG", "SECONDS", convert=_seconds),
    _Option("world", "number of ranks, instead of what each case says", "N", convert=_whole),
    _Option("jobs", "cases under way at once (default 2)", "N", convert=_whole),
    _Option("keep", "keep the ranks' folders", flag=True),
    _Option("show-logs", "attach every rank's log to every report", flag=True),
    _Option("table", "print the freeze table at the end", flag=True),
)


@dataclass(frozen=True)
class Outputs:
    """What the reporter is to make."""

    results: Path | None = None
    markdown: Path | None = None
    table: bool = False


def add_options(parser: pytest.Parser) -> None:
    """Each as ``--thaw-NAME`` and as ini value ``thaw_NAME``."""
    group = parser.getgroup("thawcheck", "freezing under DeepSpeed ZeRO")
    for option in _OPTIONS:
        flag = f"--thaw-{option.name}"
        if option.flag:
            group.addoption(flag, dest=option.ini, action="store_true", default=None, help=option.help)
            parser.addini(option.ini, option.help, type="bool", default=False)
        else:
            group.addoption(flag, dest=option.ini, metavar=option.metavar, default=None, help=option.help)
            parser.addini(option.ini, option.help, default="")


def settings_from(config: pytest.Config) -> Settings:
    """:raises pytest.UsageError: with every fault at once."""
    values, faults = _values(config)
    device = values["device"] or "cpu"
    if device not in DEVICES:
        faults.append(f"--thaw-device: no device is called {device!r}; there is: {', '.join(DEVICES)}")
    expected = values["expected"]
    if expected is not None and not expected.is_dir():
        faults.append(f"--thaw-expected: there is no folder {expected}")
    if faults:
        raise pytest.UsageError("\n".join(faults))
    return Settings(
        device=device,
        stack=values["stack"] or "",
        expected=expected or default_folder(),
        observed=values["observed"] or default_observed(),
        deadline=values["deadline"],
        world=values["world"],
        keep=values["keep"],
        show_logs=values["show-logs"],
        jobs=values["jobs"] or Settings.jobs,
        in_process=bool(config.getoption("usepdb", default=False)),
    )


def outputs_from(config: pytest.Config) -> Outputs:
    values, _ = _values(config)
    return Outputs(values["results"], values["markdown"], values["table"])


def _values(config: pytest.Config) -> tuple[dict[str, Any], list[str]]:
    """Every option by name, None where it is not given; and what is wrong with some."""
    values: dict[str, Any] = {}
    faults: list[str] = []
    for option in _OPTIONS:
        given = config.getoption(option.ini)
        value = config.getini(option.ini) if given is None else given
        if option.flag:
            values[option.name] = bool(value)
            continue
        values[option.name] = None
        if value == "":
            continue
        try:
            converted = option.convert(value)
        except ValueError:
            faults.append(f"--thaw-{option.name}: must be {_WANTED[option.convert]}, found {value!r}")
            continue
        if option.convert is Path and given is None and config.inipath is not None:
            converted = config.inipath.parent / converted  # as pytest reads its own paths
        values[option.name] = converted
    return values, faults
