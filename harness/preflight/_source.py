"""Where a model's configuration, names and shapes are: a folder, a config.json, safetensors headers; never weights."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from harness.preflight._files import read_text
from harness.preflight._finding import Finding, Level
from harness.preflight._inventory import Parameter
from harness.preflight._json_text import read_json

__all__ = ["Source", "find_source"]

#: The longest header that is read; those of the largest models are some megabytes.
_HEADER: Final = 64 << 20
_DTYPES: Final[Mapping[str, str]] = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I64": "int64",
    "I32": "int32",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}


@dataclass(frozen=True)
class Source:
    """:ivar config: what config.json says; None where there is none.
    :ivar folder: where files beside it are.
    :ivar stored: what the headers of its weights name, under the names in the files.
    """

    config: Mapping[str, Any] | None = None
    folder: Path | None = None
    stored: tuple[Parameter, ...] = field(default_factory=tuple)


def find_source(asked: str, who: str, start: Path) -> tuple[Source, list[Finding]]:
    """:param asked: a folder, a file, or the name of a model that was downloaded before.
    :param who: the option or key that asked for it.
    :param start: where a relative path starts.
    """
    path = start / Path(asked).expanduser()
    if not path.exists():
        cached = _cached(asked)
        if cached is None:
            return Source(), [_nowhere(asked, path, who)]
        path = cached
    if path.is_file() and path.suffix == ".safetensors":
        stored, findings = _headers([path], who)
        return Source(None, path.parent, stored), findings
    if path.is_file() and path.name.endswith(".safetensors.index.json"):
        stored, findings = _headers(_shards(path), who)
        return Source(None, path.parent, stored), findings
    if path.is_dir() and not (path / "config.json").is_file():
        return _without_config(path, asked, who)
    return _with_config(path, who)


def _with_config(path: Path, who: str) -> tuple[Source, list[Finding]]:
    config_file = path / "config.json" if path.is_dir() else path
    text, findings = read_text(config_file, who)
    if findings:
        return Source(), findings
    read = read_json(text)
    shown = str(config_file)
    if read.broken:
        return Source(), [Finding(Level.INPUT, "model", who, f"{shown!r} is no JSON: {read.broken}")]
    if not isinstance(read.value, dict) or not isinstance(read.value.get("model_type", ""), str):
        return Source(), [Finding(Level.INPUT, "model", who, f"{shown!r} is no model's configuration")]
    if "model_type" not in read.value:
        hint = "name the config.json of a model" + (
            "; what has zero_optimization is for --deepspeed" if "zero_optimization" in read.value else ""
        )
        return Source(), [Finding(Level.INPUT, "model", who, f"{shown!r} has no model_type", hint)]
    # What is beside a file that was named itself need not belong to it.
    files = [*_weights(path)] if path.is_dir() else []
    stored, findings = _headers(files, who)
    return Source(read.value, config_file.parent, stored), findings


def _nowhere(asked: str, path: Path, who: str) -> Finding:
    if asked.count("/") == 1 and not asked.startswith((".", "/", "~")):
        text = f"there is no folder {asked!r}, and no model of that name was downloaded before"
        return Finding(Level.INPUT, "model", who, text, "nothing is downloaded here; name a folder or a config.json")
    _, findings = read_text(path, who)
    return findings[0]


def _without_config(path: Path, asked: str, who: str) -> tuple[Source, list[Finding]]:
    if (path / "adapter_config.json").is_file():
        text = f"{asked!r} is an adapter, which has no model of its own"
        return Source(), [Finding(Level.INPUT, "model", who, text, "name the base model, and the adapter's settings")]
    files = [*_weights(path)]
    if not files:
        return Source(), [Finding(Level.INPUT, "model", who, f"{asked!r} has neither config.json nor safetensors")]
    stored, findings = _headers(files, who)
    return Source(None, path, stored), findings


def _cached(asked: str) -> Path | None:
    """The newest snapshot of a model in the cache of huggingface_hub."""
    if asked.count("/") > 1 or asked.startswith((".", "/", "~")):
        return None
    home = Path(os.environ.get("HF_HOME", Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "huggingface"))
    hub = Path(os.environ.get("HF_HUB_CACHE", home / "hub")).expanduser()
    found = sorted(
        (hub / f"models--{asked.replace('/', '--')}" / "snapshots").glob("*/config.json"),
        key=lambda one: one.stat().st_mtime,
    )
    return found[-1].parent if found else None


def _weights(folder: Path) -> Iterator[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        yield from _shards(index)
    else:
        yield from sorted(folder.glob("*.safetensors"))


def _shards(index: Path) -> list[Path]:
    """Those that are here; a folder may hold the index alone."""
    try:
        names = {*json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()}
        return [path for path in (index.parent / str(name) for name in sorted(names)) if path.is_file()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def _headers(files: list[Path], who: str) -> tuple[tuple[Parameter, ...], list[Finding]]:
    stored: list[Parameter] = []
    findings = []
    for path in files:
        try:
            stored += _header(path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error):
            text = f"{str(path)!r} has no header that can be read, so its names are not known"
            findings.append(Finding(Level.CAUTION, "safetensors", who, text))
    return tuple(stored), findings


def _header(path: Path) -> Iterator[Parameter]:
    with path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        if size > _HEADER:
            raise ValueError
        header = json.loads(file.read(size))
    for name, one in header.items():
        if name != "__metadata__":
            yield Parameter(name, tuple(map(int, one["shape"])), _DTYPES.get(one["dtype"], one["dtype"]))
