"""What can be wrong with an entry of an expectations file."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from harness.cell._options import Options
from harness.cell._patterns import nearest
from harness.cell.outcome._verdict import Verdict
from harness.cell.ranks._device import DEVICES
from harness.cell.ranks._stack import PACKAGES

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

__all__ = ["ABSENT", "faults_of", "listed"]

#: In the place of a range: where the package is not installed.
ABSENT: Final = "absent"

_PACKAGES = ("python", *PACKAGES)
_AXES = tuple(one.name for one in dataclasses.fields(Options))
_KEYS = (
    "case",
    "verdict",
    "where",
    "versions",
    "seen",
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


#: A key of the entry, and what is wrong there.
Fault = tuple[str, str]


def faults_of(entry: Any) -> list[Fault]:
    """All that is wrong with one entry, each with the key where it stands, or should."""
    if not isinstance(entry, dict):
        return [("", f"must be a table, found {entry!r}")]
    found = [(key, f"unknown key {key!r}; {nearest(key, _KEYS)}") for key in sorted({*entry} - {*_KEYS})]
    cases = entry.get("case")
    if not _are_texts(listed(cases)) or not all(listed(cases)) or not cases:
        found.append(("case", f"needs the name of a case, or of several, found {cases!r}"))
    elif len({*listed(cases)}) < len(listed(cases)):
        found.append(("case", f"a case stands there twice: {', '.join(listed(cases))}"))
    known = [str(one) for one in Verdict if one is not Verdict.FROZEN]
    verdict = entry.get("verdict")
    if verdict not in known:
        found.append(("verdict", f"verdict {verdict!r} is not one of {', '.join(known)}"))
    else:
        found += _verdict_faults(Verdict(verdict), entry)
    if not entry.get("note") and not entry.get("refs"):
        found.append(("note", "needs a note or refs: where was this measured or reported?"))
    if entry.get("device") not in (None, *DEVICES):
        found.append(("device", f"no device is called {entry['device']!r}; there is: {', '.join(DEVICES)}"))
    if "world" in entry and not (isinstance(entry["world"], int) and entry["world"] > 0):
        found.append(("world", f"world must be a positive number of ranks, found {entry['world']!r}"))
    found += [
        (key, f"{key} must be a list of texts, found {entry[key]!r}")
        for key in ("parameters", "refs")
        if key in entry and not _are_texts(entry[key])
    ]
    versions = entry.get("versions", {})
    found += [("where", fault) for fault in _where_faults(entry.get("where", {}))]
    found += [("versions", fault) for fault in _version_faults(versions)]
    return found + [("seen", fault) for fault in _seen_faults(entry.get("seen", {}), versions)]


def _verdict_faults(verdict: Verdict, entry: Mapping[str, Any]) -> list[Fault]:
    """What does not go with the verdict: it would never be compared, and so say nothing."""
    found = [("also", fault) for fault in _also_faults(entry.get("also", {}))]
    if verdict is Verdict.RAISES:
        found += [(key, f"RAISES needs the {key}") for key in ("moment", "type") if not entry.get(key)]
    if verdict in _FAILURES and "also" in entry:
        found.append(("also", f"{verdict} is a verdict of no parameter, but also names some"))
    if verdict in _FAILURES and "parameters" in entry:
        found.append(("parameters", f"{verdict} is a verdict of no parameter, but parameters are given"))
    for key in _OF_FAILURES:
        if key not in entry:
            continue
        if verdict not in _FAILURES:
            found.append((key, f"{verdict} comes with no {key}; only {', '.join(sorted(_FAILURES))} do"))
        elif not isinstance(entry[key], str):
            found.append((key, f"{key} must be a text, found {entry[key]!r}"))
        elif key == "message":
            try:
                re.compile(entry[key])
            except re.error as error:
                found.append((key, f"message is no regular expression: {error}"))
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
    if not isinstance(versions, dict):
        return [f"versions must be a table of packages, found {versions!r}"]
    found = [
        f"versions of {one!r} are not recorded; {nearest(one, _PACKAGES)}" for one in sorted({*versions} - {*_PACKAGES})
    ]
    for package, wanted in versions.items():
        if package == "python" and wanted == ABSENT:
            found.append("python is never absent")
        elif wanted != ABSENT and _range(wanted) is None:
            found.append(f"{package} = {wanted!r} is no version range, such as '>=0.16,<0.19.3', and not {ABSENT!r}")
    return found


def _seen_faults(seen: Any, versions: Any) -> list[str]:
    """``seen`` must be what it looks like, and within the ranges that were inferred from it."""
    if not isinstance(seen, dict):
        return [f"seen must be a table of packages, found {seen!r}"]
    unknown = sorted({*seen} - {"stacks", *_PACKAGES})
    found = [f"seen: versions of {one!r} are not recorded; {nearest(one, _PACKAGES)}" for one in unknown]
    for key, given in seen.items():
        if key == "stacks":
            if type(given) is not int or given < 1:
                found.append(f"seen stacks must be the number of stacks, found {given!r}")
        elif (ends := _ends(given)) is None:
            found.append(f"seen {key} must be one version or two, as in '0.10.3 to 0.14.3', found {given!r}")
        elif isinstance(versions, dict) and key in versions:
            wanted = _range(versions[key])
            outside = [one for one in ends if wanted is None or not wanted.contains(one, prereleases=True)]
            found += [f"seen {key}: {one} is not within versions, {versions[key]!r}" for one in outside]
    return found


def _range(text: Any) -> SpecifierSet | None:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return SpecifierSet(text) if isinstance(text, str) else None
    except InvalidSpecifier:
        return None


def _ends(text: Any) -> list[Version] | None:
    """The versions of ``"A"`` or ``"A to B"``, A being the older."""
    from packaging.version import InvalidVersion, Version

    if not isinstance(text, str):
        return None
    try:
        found = [Version(one) for one in text.split(" to ")]
    except InvalidVersion:
        return None
    return found if len(found) == 1 or (len(found) == 2 and found[0] < found[1]) else None


def _are_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)


def listed(value: Any) -> tuple[Any, ...]:
    """A setting of ``where`` that may be one value or a list of them."""
    return tuple(value) if isinstance(value, list) else (value,)
