"""What can be wrong with an entry of an expectations file."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from harness.cell._options import Options
from harness.cell._patterns import nearest
from harness.cell.outcome._verdict import Verdict
from harness.cell.ranks._device import DEVICES
from harness.cell.ranks._stack import PACKAGES

__all__ = ["faults_of", "listed"]

_AXES = tuple(one.name for one in dataclasses.fields(Options))
_KEYS = (
    "case",
    "verdict",
    "where",
    "versions",
    "device",
    "world",
    "parameters",
    "moment",
    "type",
    "message",
    "also",
    "note",
    "refs",
)

#: Of a whole process: they come with a moment, a type and a message, and with no parameters.
_FAILURES = frozenset({Verdict.RAISES, Verdict.HANG, Verdict.CRASH, Verdict.NOT_RUN, Verdict.UNSOLVABLE})
_OF_FAILURES = ("moment", "type", "message")


def faults_of(entry: Any) -> list[str]:
    """All that is wrong with one entry."""
    if not isinstance(entry, dict):
        return [f"must be a table, found {entry!r}"]
    found = [f"unknown key {key!r}; {nearest(key, _KEYS)}" for key in sorted({*entry} - {*_KEYS})]
    if not isinstance(entry.get("case"), str) or not entry["case"]:
        found.append(f"needs the name of a case, found {entry.get('case')!r}")
    known = [str(one) for one in Verdict if one is not Verdict.FROZEN]
    verdict = entry.get("verdict")
    if verdict not in known:
        found.append(f"verdict {verdict!r} is not one of {', '.join(known)}")
    else:
        found += _verdict_faults(Verdict(verdict), entry)
    if not entry.get("note") and not entry.get("refs"):
        found.append("needs a note or refs: where was this measured or reported?")
    if entry.get("device") not in (None, *DEVICES):
        found.append(f"no device is called {entry['device']!r}; there is: {', '.join(DEVICES)}")
    if "world" in entry and not (isinstance(entry["world"], int) and entry["world"] > 0):
        found.append(f"world must be a positive number of ranks, found {entry['world']!r}")
    found += [
        f"{key} must be a list of texts, found {entry[key]!r}"
        for key in ("parameters", "refs")
        if key in entry and not _are_texts(entry[key])
    ]
    return found + _where_faults(entry.get("where", {})) + _version_faults(entry.get("versions", {}))


def _verdict_faults(verdict: Verdict, entry: Mapping[str, Any]) -> list[str]:
    """What does not go with the verdict: it would never be compared, and so say nothing."""
    found = _also_faults(entry.get("also", {}))
    if verdict is Verdict.RAISES:
        found += [f"RAISES needs the {key}" for key in ("moment", "type") if not entry.get(key)]
    if verdict in _FAILURES and "also" in entry:
        found.append(f"{verdict} is a verdict of no parameter, but also names some")
    if verdict in _FAILURES and "parameters" in entry:
        found.append(f"{verdict} is a verdict of no parameter, but parameters are given")
    for key in _OF_FAILURES:
        if key not in entry:
            continue
        if verdict not in _FAILURES:
            found.append(f"{verdict} comes with no {key}; only {', '.join(sorted(_FAILURES))} do")
        elif not isinstance(entry[key], str):
            found.append(f"{key} must be a text, found {entry[key]!r}")
        elif key == "message":
            try:
                re.compile(entry[key])
            except re.error as error:
                found.append(f"message is no regular expression: {error}")
    return found


def _also_faults(also: Any) -> list[str]:
    """``also`` maps further verdicts to the parameters that carry them."""
    if not isinstance(also, dict):
        return [f"also must be a table of verdicts, found {also!r}"]
    known = [str(one) for one in Verdict if one not in _FAILURES and one not in (Verdict.FROZEN, Verdict.TRAINS)]
    found = [f"also: {one!r} is not one of {', '.join(known)}" for one in sorted({*also} - {*known})]
    return found + [
        f"also {one}: must be a list of texts, found {given!r}" for one, given in also.items() if not _are_texts(given)
    ]


def _where_faults(where: Any) -> list[str]:
    if not isinstance(where, dict):
        return [f"where must be a table of settings, found {where!r}"]
    found = [f"{axis!r} is no setting of a variant; {nearest(axis, _AXES)}" for axis in sorted({*where} - {*_AXES})]
    for axis, given in where.items():
        values = listed(given)
        if not values:
            found.append(f"where {axis}: an empty list never applies")
        elif axis in _AXES:
            for value in values:
                found += [f"where {axis}: {fault}" for fault in Options(**{axis: value}).faults()]
    return found


def _version_faults(versions: Any) -> list[str]:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    if not isinstance(versions, dict):
        return [f"versions must be a table of packages, found {versions!r}"]
    known = ("python", *PACKAGES)
    found = [f"versions of {one!r} are not recorded; {nearest(one, known)}" for one in sorted({*versions} - {*known})]
    for package, wanted in versions.items():
        try:
            SpecifierSet(wanted)
        except (InvalidSpecifier, TypeError, AttributeError):
            found.append(f"{package} = {wanted!r} is no version range, such as '>=0.16,<0.19.3'")
    return found


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def listed(value: Any) -> tuple[Any, ...]:
    """A setting of ``where`` that may be one value or a list of them."""
    return tuple(value) if isinstance(value, list) else (value,)
