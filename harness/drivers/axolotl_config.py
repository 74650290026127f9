"""What is wrong with an Axolotl configuration, as far as its freezing under ZeRO goes, before anything starts.

Reads the mapping, the DeepSpeed JSON and the names in the model's files; imports neither torch nor Axolotl, and
nothing outside the standard library, so that both the ranks and the command line can ask.
"""

from __future__ import annotations

import fnmatch
import json
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.cell._patterns import nearest

__all__ = ["Pattern", "config_faults", "names_in", "pattern_faults"]

#: A range of rows, or one row, behind the pattern of a name.
_ROWS = re.compile(r"(?P<name>.+)\[(?P<start>[0-9]*)(?P<to>:(?P<end>[0-9]*))?\]")
#: Where a dot is no literal one to Axolotl.
_DOT = re.compile(r"\.(?!\+)")
#: The longest head of a safetensors file that is read; those of the largest models are some megabytes.
_HEAD = 64 << 20


class Pattern:
    """One entry of ``unfrozen_parameters`` as Axolotl 0.9.0 to 0.21.0 read it: matched from the start of a name, each
    dot a literal one unless a plus follows (to 0.6.0 every dot is), rows in brackets at the end.

    :ivar name: what is matched against names.
    :ivar rows: start and end as written, where there are any.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        found = _ROWS.fullmatch(text)
        self.name: str = found["name"] if found else text
        self.rows: tuple[str, str] | None = (found["start"], found["end"] or "") if found else None

    def matching(self, names: Iterable[str]) -> list[str]:
        """Raises re.error where Axolotl would."""
        expression = re.compile(_DOT.sub(r"\\.", self.name))
        return [name for name in names if expression.match(name)]


def config_faults(
    config: Mapping[str, Any],
    *,
    folder: Path,
    names: Sequence[str] = (),
    stage: int | None = None,
    offline: bool = False,
) -> list[str]:
    """Every fault, each with its key, what was found there and what to do; empty where there is none.

    :param config: the YAML, read.
    :param folder: where relative paths start.
    :param names: of the model's parameters; by default those in its files, where they are here.
    :param stage: the ZeRO stage, where something beside the DeepSpeed JSON decides it.
    :param offline: nothing may be downloaded.
    """
    model, found = _model(config.get("base_model"), folder, offline=offline)
    json_stage, faults = _deepspeed(config, folder, stage)
    found += faults
    patterns = config.get("unfrozen_parameters")
    if patterns is not None:
        names = names or (names_in(model) if model else ())
        under_zero_3 = (stage if json_stage is None else json_stage) == 3
        found += pattern_faults(patterns, names, partitioned=under_zero_3)
    return found


def pattern_faults(patterns: Any, names: Sequence[str] = (), *, partitioned: bool = False) -> list[str]:
    """What is wrong with ``unfrozen_parameters``.

    :param names: of the parameters; where there are none, whether a pattern matches is not asked.
    :param partitioned: the model is made under ``zero.Init``, as Axolotl does at ZeRO stage 3.
    """
    key = "unfrozen_parameters"
    if not isinstance(patterns, list) or not all(isinstance(one, str) for one in patterns):
        return [f"{key}: must be a list of patterns, found {patterns!r}"]
    if not patterns:
        return [f"{key}: is empty, which freezes nothing; leave it out, or name what is to train"]
    faults = [(one, _syntax(Pattern(one)) or _target(Pattern(one), names, partitioned=partitioned)) for one in patterns]
    return [f"{key}: {text!r} {fault}" for text, fault in faults if fault]


def names_in(folder: Path) -> list[str]:
    """The names of the weights in a model's folder, in the order of its files; none where they cannot be told."""
    index = folder / "model.safetensors.index.json"
    try:
        if index.is_file():
            return [*json.loads(index.read_text(encoding="utf-8"))["weight_map"]]
        with (folder / "model.safetensors").open("rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            head = json.loads(file.read(size)) if size <= _HEAD else {}
        return [name for name in head if name != "__metadata__"]
    except (OSError, ValueError, KeyError, TypeError, struct.error):
        return []


def _model(asked: Any, folder: Path, *, offline: bool) -> tuple[Path | None, list[str]]:
    """The model's folder, where it is one that is here, and what is wrong."""
    if not isinstance(asked, str) or not asked.strip():
        return None, [f"base_model: must name a model's folder, or its id on the Hub, found {asked!r}"]
    path = folder / Path(asked).expanduser()
    if path.is_dir():
        if (path / "config.json").is_file():
            return path, []
        return None, [f"base_model: {asked!r} has no config.json, so it is no model's folder"]
    if asked.startswith((".", "/", "~")) or asked.count("/") > 1:
        beside = [one.name for one in path.parent.iterdir() if one.is_dir()] if path.parent.is_dir() else []
        return None, [f"base_model: there is no folder {asked!r}; in {path.parent}, {nearest(path.name, beside)}"]
    if offline:
        where = "it would be looked for on the Hub, and nothing is downloaded here; name a folder"
        return None, [f"base_model: there is no folder {asked!r}, so {where}"]
    return None, []


def _deepspeed(config: Mapping[str, Any], folder: Path, stage: int | None) -> tuple[int | None, list[str]]:
    """The stage that the DeepSpeed JSON gives, and what is wrong."""
    given = config.get("deepspeed")
    faults = [
        f"deepspeed: {other} is given as well, and Axolotl goes by only one of the two; leave one out"
        for other in ("fsdp", "fsdp_config")
        if given and config.get(other)
    ]
    if given is None:
        return None, faults
    if isinstance(given, Mapping):
        block: Any = given
    elif isinstance(given, str):
        block, more = _read_json(folder / Path(given).expanduser(), given)
        faults += more
    else:
        return None, [*faults, f"deepspeed: must be a JSON file, or what would be in it, found {given!r}"]
    zero = block.get("zero_optimization", {}) if isinstance(block, Mapping) else {}
    found = zero.get("stage") if isinstance(zero, Mapping) else None
    if found is None:
        return None, faults
    if type(found) is not int or found not in range(4):
        return None, [*faults, f"deepspeed: ZeRO stages are 0 to 3, found zero_optimization.stage {found!r}"]
    if stage is not None and stage != found:
        faults.append(f"deepspeed: the ZeRO stage is given twice, {found} there and {stage} beside it; give it once")
    return found, faults


def _read_json(path: Path, asked: str) -> tuple[Any, list[str]]:
    """What is in the file, and what is wrong: in JSON the last of two equal keys counts, without a word."""
    twice: list[str] = []

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        for key in dict.fromkeys(name for name, _ in pairs):
            values = [value for name, value in pairs if name == key]
            if len(values) > 1:
                what = "the ZeRO stage is given twice" if key == "stage" else f"{key!r} is given twice"
                last = json.dumps(values[-1])
                twice.append(f"deepspeed: in {asked} {what}, and the last, {last}, counts; leave the other out")
        return dict(pairs)

    try:
        return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=once), twice
    except FileNotFoundError:
        return {}, [f"deepspeed: there is no file {asked!r}"]
    except (OSError, UnicodeDecodeError) as error:
        return {}, [f"deepspeed: {asked!r} cannot be read: {error}"]
    except ValueError as error:
        return {}, [f"deepspeed: {asked} is no JSON: {error}"]


def _ends_before_it_starts(pattern: Pattern) -> bool:
    start, end = pattern.rows or ("", "")
    return bool(end) and int(start or 0) >= int(end)


_DOT_ESCAPED = (
    "escapes a dot, which Axolotl does by itself; an escaped one is escaped again and wants a backslash in the name; "
    "write plain dots"
)
_MARKED = "begins with `re:`, as compressed-tensors marks regular expressions; here all are; leave it out"
_DOT_STAR = (
    "has `.*`, which is `anything` in shell patterns and regular expressions; a dot is literal here, so it means any "
    "number of dots; inside write `.+`, and at the end nothing but the dot"
)
_LAYERS_IN_BRACKETS = (
    "ends with digits in brackets, which are rows of a parameter; for several layers write alternatives, such as "
    "`(1|2).`"
)

#: What tells another syntax than Axolotl's, and what it means and what to write.
_FOREIGN: Sequence[tuple[Callable[[Pattern], bool], str]] = (
    (lambda one: "\\." in one.text, _DOT_ESCAPED),
    (lambda one: one.text.startswith("re:"), _MARKED),
    (lambda one: ".*" in one.name, _DOT_STAR),
    (lambda one: one.rows is not None and one.name.endswith("."), _LAYERS_IN_BRACKETS),
    (_ends_before_it_starts, "ends before it starts; write the first row, and the one behind the last"),
)


def _syntax(pattern: Pattern) -> str:
    """What is wrong with the pattern, whatever the model."""
    for is_so, text in _FOREIGN:
        if is_so(pattern):
            return text
    try:
        pattern.matching(())
    except re.error as error:
        return f"is no regular expression: {error}; shell patterns are none"
    return ""


def _target(pattern: Pattern, names: Sequence[str], *, partitioned: bool) -> str:
    """What the pattern does not do, to a model with these names."""
    if names and not pattern.matching(names):
        return f"matches none of the model's {len(names)} parameters; {_hint(pattern, names)}"
    if pattern.rows is not None and partitioned:
        return (
            "asks for rows of a parameter, and at ZeRO stage 3 Axolotl takes it for one without any: a closed range "
            "trains all rows behind it too, an open one is refused; use stage 2, or mask the rows by a hook"
        )
    return ""


def _hint(pattern: Pattern, names: Sequence[str]) -> str:
    core = pattern.name.strip("^$").strip(".")
    anywhere = f".+.{pattern.text.removeprefix('^')}"
    if inside := Pattern(anywhere).matching(names):
        return f"Axolotl matches from the start of a name, and it stands inside {inside[0]!r}; write {anywhere!r}"
    if globbed := next((name for name in names if fnmatch.fnmatchcase(name, pattern.name)), None):
        return f"as a shell pattern it would match {globbed!r}, and Axolotl's are regular expressions"
    depth = core.count(".") + 1
    return nearest(core, {".".join(name.split(".")[:depth]) for name in names})
