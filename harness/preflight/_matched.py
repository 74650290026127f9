"""What each pattern matches, and what is wrong with what it matches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from harness.cell._patterns import nearest
from harness.drivers.axolotl_config import Pattern as AxolotlPattern
from harness.drivers.axolotl_config import pattern_faults
from harness.preflight._dialects import DIALECTS, Dialect, NoPattern
from harness.preflight._finding import Finding, Level
from harness.preflight._inventory import Inventory, Parameter

__all__ = ["Matched", "match"]

#: Prefixes that one release or wrapper puts before a name and another does not.
_PREFIXES: Final = (
    "model.",
    "language_model.",
    "model.language_model.",
    "language_model.model.",
    "model.visual.",
    "model.vision_tower.",
    "transformer.",
    "base_model.model.",
    "_orig_mod.",
    "module.",
)
#: Digits in a pattern that are a whole number to its author: a segment of a name, nothing about them that repeats.
_NUMBER: Final = re.compile(r"(?:^|\.)(\d+)(?![\d\[(?{|])(?!\\d)")


@dataclass(frozen=True)
class Matched:
    """:ivar names: what the pattern matches, in the model's order."""

    pattern: str
    names: tuple[str, ...]
    rows: str = ""


def match(
    patterns: Sequence[str],
    inventory: Inventory,
    *,
    dialect: str,
    key: str,
    stage: int,
    stored: Sequence[Parameter] = (),
) -> tuple[list[Matched], list[Finding]]:
    """:param key: what the user calls the patterns.
    :param stored: under the names in the model's files.
    """
    read = DIALECTS[dialect]
    matched, findings = [], []
    for pattern in dict.fromkeys(patterns):
        where = f"{key} '{pattern}'"  # as it was written: a repr doubles backslashes
        try:
            names = read.matching(pattern, inventory.names)
        except NoPattern as error:
            hint, _ = _as_another(pattern, inventory, read)
            findings.append(Finding(Level.INPUT, "pattern", where, str(error), hint, pattern=pattern))
            continue
        rows = AxolotlPattern(pattern).rows if dialect == "axolotl" else None
        matched.append(Matched(pattern, tuple(names), ":".join(rows) if rows else ""))
        # What its syntax means to Axolotl is why it matches nothing, where it does not.
        told = [*_axolotls(pattern, where, partitioned=stage == 3)] if dialect == "axolotl" else []
        findings += told
        if not names and not told:
            findings.append(_nothing(pattern, inventory, read, where, stored))
        findings += _more_than_meant(pattern, names, read, where)
        if rows:
            findings += _rows_outside(pattern, rows, inventory.of(names), where)
    return matched, findings


def _axolotls(pattern: str, where: str, *, partitioned: bool) -> Iterator[Finding]:
    for fault in pattern_faults([pattern], partitioned=partitioned):
        _, _, text = fault.partition(f"{pattern!r} ")
        # In two: what is found, and what to do.
        found, _, instead = text.partition("; ")
        evidence = ("axolotl_closed_row_range", "axolotl_open_row_range") if "rows of a parameter" in text else ()
        yield Finding(Level.WRONG, "pattern", where, found, instead, evidence)


def _nothing(pattern: str, inventory: Inventory, read: Dialect, where: str, stored: Sequence[Parameter]) -> Finding:
    """Why a pattern matches nothing: the first reason that holds, most telling first."""
    reasons = (_tied, _other_prefix, _other_dialect, _renamed, _fused)
    found = next((why for one in reasons if (why := one(pattern, inventory, read, stored))), None)
    if found is None:
        core = pattern.strip("*.^$")
        depth = core.count(".") + 1
        near = nearest(core, {".".join(name.split(".")[:depth]) for name in inventory.names})
        found = _Reason("nothing", "", near)
    text = f"matches none of the {len(inventory.names)} parameters" + (f": {found.text}" if found.text else "")
    return Finding(
        Level.WRONG, found.code, where, text, found.instead, found.evidence, pattern=pattern, rewrite=found.rewrite
    )


@dataclass(frozen=True)
class _Reason:
    code: str
    text: str
    instead: str
    evidence: tuple[str, ...] = ()
    rewrite: str = ""


def _tied(pattern: str, inventory: Inventory, read: Dialect, _: Sequence[Parameter]) -> _Reason | None:
    for one in inventory.parameters:
        if one.others and (found := read.matching(pattern, one.others)):
            text = f"{found[0]!r} is tied to {one.name!r}, and has no name of its own"
            evidence = ("tied_head_by_its_own_name",)
            return _Reason("tied", text, f"name {one.name!r}, or untie them", evidence)
    return None


def _other_prefix(pattern: str, inventory: Inventory, read: Dialect, _: Sequence[Parameter]) -> _Reason | None:
    core = pattern.removeprefix("^")
    for prefix in _PREFIXES:
        if found := read.tried(prefix + core, inventory.names):
            text = f"here names begin otherwise, such as {found[0]!r}"
            return _rewritten("prefix", text, prefix + core, "pattern_matches_nothing")
    for prefix in _PREFIXES:
        for other in ("", *_PREFIXES):
            changed = other + core.removeprefix(prefix)
            if core.startswith(prefix) and other != prefix and (found := read.tried(changed, inventory.names)):
                text = f"no name begins with {prefix!r} here, such as {found[0]!r}"
                return _rewritten("prefix", text, changed, "language_tower_by_its_old_name")
    return None


def _rewritten(code: str, text: str, rewrite: str, *evidence: str) -> _Reason:
    return _Reason(code, text, f"write '{rewrite}'", evidence, rewrite)


def _other_dialect(pattern: str, inventory: Inventory, read: Dialect, _: Sequence[Parameter]) -> _Reason | None:
    hint, rewrite = _as_another(pattern, inventory, read)
    if not hint:
        return None
    instead = f"{hint}; write '{rewrite}'" if rewrite else hint
    return _Reason("dialect", f"here a pattern is {read.told}", instead, (), rewrite)


def _renamed(pattern: str, inventory: Inventory, read: Dialect, stored: Sequence[Parameter]) -> _Reason | None:
    found = read.matching(pattern, [one.name for one in stored])
    if not found:
        return None
    text = f"{found[0]!r} is its name in the model's files alone, which the installed transformers renames"
    return _Reason("renamed", text, nearest(found[0], inventory.names, count=2))


def _fused(pattern: str, inventory: Inventory, _: Dialect, __: Sequence[Parameter]) -> _Reason | None:
    fused = [one.name for one in inventory.parameters if len(one.shape) == 3 and "expert" in one.name]
    if "expert" not in pattern or not fused:
        return None
    text = f"the experts of a layer are one parameter here, such as {fused[0]!r}"
    return _Reason("fused", text, "name that; single experts have no parameters of their own")


def _as_another(pattern: str, inventory: Inventory, read: Dialect) -> tuple[str, str]:
    """What it would be in another tool's dialect, and what to write here where that can be told."""
    for other in DIALECTS.values():
        if other.name == read.name:
            continue
        if found := other.tried(pattern, inventory.names):
            hint = f"as {other.told}, it would match {len(found)}, such as {found[0]!r}"
            return hint, _written(pattern, found, read, inventory)
    return "", ""


def _written(pattern: str, wanted: Sequence[str], read: Dialect, inventory: Inventory) -> str:
    """The same set in the dialect at hand: the first try that gives exactly it, else nothing."""
    plain = pattern.removeprefix("re:").strip("^$").replace("\\.", ".").replace(".*", "*").replace(".+", "*")
    bare = plain.strip("*.")
    tries = {
        "glob": (re.sub(r"(\d)\*", r"\1.*", plain), plain, f"{plain}*", f"*{plain}", f"*{plain}*", f"*{bare}*"),
        "axolotl": (f"{bare}.", f".+.{bare}", f".+{bare}", f".+{bare}.", plain.replace("*", ".+")),
        "match": (re.escape(bare), f".*{re.escape(bare)}", re.escape(bare) + r"\."),
    }
    for one in tries.get(read.name, (bare,)):
        if read.tried(one, inventory.names) == [*wanted]:
            return one
    return ""


def _more_than_meant(pattern: str, names: Sequence[str], read: Dialect, where: str) -> Iterator[Finding]:
    """A number that is the beginning of others; a dot that is any character."""
    if not read.exact and (bare := re.sub(r"(?<!\\)\.(?![*+?{])", r"\\.", pattern)) != pattern:
        exactly = read.tried(bare, names)
        if len(exactly) < len(names) and exactly:
            more = next(name for name in names if name not in exactly)
            text = f"a bare dot is any character, so it matches {more!r} as well"
            yield Finding(
                Level.WRONG,
                "bare-dot",
                where,
                text,
                f"write '{bare}'",
                ("regex_with_bare_dots",),
                pattern=pattern,
                rewrite=bare,
            )
            return
    plain = pattern.replace("\\.", ".")
    listed = {*_NUMBER.findall(plain)}
    for number in sorted(listed):
        layers = {part for name in names for part in name.split(".") if part.isdigit()}
        more_layers = sorted((one for one in layers if one.startswith(number) and one not in listed), key=int)
        if number in layers and more_layers:
            shown = ", ".join(more_layers[:4]) + (" and others" if len(more_layers) > 4 else "")
            text = f"it matches layer {number}, and {shown} as well"
            fixed = _with_dot(pattern, number)
            narrower = {*read.tried(fixed, names)} < {*names}
            yield Finding(
                Level.WRONG,
                "number",
                where,
                text,
                f"write '{fixed}'" if narrower else "end it with a dot",
                ("prefix_without_its_dot",),
                pattern=pattern,
                rewrite=fixed if narrower else "",
            )
            return


def _with_dot(pattern: str, number: str) -> str:
    dot = "\\." if "\\." in pattern else "."
    return re.sub(rf"((?:^|\.){number})(?!\d)", lambda found: found[1] + dot, pattern, count=1)


def _rows_outside(
    pattern: str, rows: tuple[str, str], parameters: Sequence[Parameter], where: str
) -> Iterator[Finding]:
    start = int(rows[0] or 0)
    single = ":" not in pattern.rpartition("[")[2]
    end = int(rows[1]) if rows[1] else start + 1 if single else None
    for one in parameters:
        there = one.shape[0] if one.shape else 0
        if start >= there or (end is not None and end > there):
            text = f"{one.name!r} has {there:,} rows, and rows {start} to {end or 'the last'} were asked for"
            yield Finding(Level.WRONG, "rows", where, text, f"stay within 0 to {there}", pattern=pattern)
            return
