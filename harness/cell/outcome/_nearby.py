"""The observed stacks nearest to a difference: one that does what was expected, and one that does what was found.

What their versions have apart is where the cause is to be looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path

from packaging.version import InvalidVersion, Version

from harness.cell._options import Options
from harness.cell.outcome._expect import Expectation, differences
from harness.cell.outcome._observed import Observed, ObservedError, Outcome, read_observed
from harness.cell.outcome._record import CaseRecord
from harness.cell.outcome._verdict import Verdict

__all__ = ["Nearby", "apart", "default_observed", "nearness", "outcome_text", "versions_in_order"]

Versions = Mapping[str, str]


def default_observed() -> Path | None:
    """That of the checkout in which we stand, if we stand in one."""
    folder = Path("matrix/observed")
    return folder.resolve() if folder.is_dir() else None


class Nearby:
    """Reads the folder when it is first asked, and never raises: it only helps."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        #: by file, the first fault of those that cannot be read
        self._faults: dict[str, str] = {}

    def lines(self, record: CaseRecord, expected: Expectation) -> list[str]:
        """A line for either side; none where no folder was given."""
        if self._folder is None:
            return []
        if not self._index and not self._faults:
            return [f"no stack is observed in {self._folder}"]
        same = [
            (stack, stack.record(outcome, Options(**record.options)))
            for stack, outcome in self._index.get((record.case, record.id), ())
            if stack.device == record.device and outcome.world == record.world
        ]
        if record.verdict is expected.verdict:
            wanted = outcome_text(expected.verdict, expected.moment, expected.type, expected.parameters)
            found = _text_of(record)
            sides: dict[str, Callable[[CaseRecord], bool]] = {
                wanted: lambda one: not differences(one, expected),
                found: lambda one: _text_of(one) == found,
            }
        else:
            sides = {
                str(expected.verdict): lambda one: one.verdict is expected.verdict,
                str(record.verdict): lambda one: one.verdict is record.verdict,
            }
        lines = [
            self._line(record, what, [stack for stack, one in same if is_it(one)]) for what, is_it in sides.items()
        ]
        if self._faults:
            first = next(iter(self._faults.values()))
            lines.append(f"left out, since they cannot be read: {', '.join(self._faults)} ({first})")
        return lines

    def _line(self, record: CaseRecord, what: str, stacks: Iterable[Observed]) -> str:
        near = min(stacks, key=lambda one: nearness(record.versions, one.versions, self._order), default=None)
        if near is None:
            return f"no observed stack is {what}"
        return f"nearest stack that is {what}: {near.stack} ({_told_apart(near.versions, record.versions)})"

    @cached_property
    def _stacks(self) -> list[Observed]:
        found = []
        paths = sorted(self._folder.glob("*.jsonl")) if self._folder is not None else []
        for path in paths:
            try:
                found.append(read_observed(path))
            except ObservedError as error:
                self._faults[path.name] = error.faults[0]
        return found

    @cached_property
    def _index(self) -> dict[tuple[str, str], list[tuple[Observed, Outcome]]]:
        """By case and id of the record."""
        found: dict[tuple[str, str], list[tuple[Observed, Outcome]]] = {}
        for stack in self._stacks:
            for (case, variant), outcome in stack.key().items():
                found.setdefault((case, f"{case}[{variant}]"), []).append((stack, outcome))
        return found

    @cached_property
    def _order(self) -> dict[str, list[str]]:
        return versions_in_order(stack.versions for stack in self._stacks)


# -- how near --------------------------------------------------------------------------------


def apart(one: Versions, other: Versions) -> list[str]:
    """The packages in which two sets of versions differ.  Builds of one release are alike."""
    names = [*one, *(name for name in other if name not in one)]
    return [name for name in names if _plain(name, one.get(name)) != _plain(name, other.get(name))]


def versions_in_order(stacks: Iterable[Versions]) -> dict[str, list[str]]:
    """Of each package, every version that was observed, oldest first."""
    found: dict[str, set[str]] = {}
    for versions in stacks:
        for name, version in versions.items():
            found.setdefault(name, set()).add(_plain(name, version))
    return {name: sorted(versions, key=_sortable) for name, versions in found.items()}


def nearness(here: Versions, there: Versions, order: Mapping[str, list[str]]) -> tuple[int, int]:
    """A key to sort by: in how many packages they differ, and how many observed versions lie between."""
    differing = apart(here, there)
    return len(differing), sum(_steps(name, here.get(name), there.get(name), order.get(name, [])) for name in differing)


def _steps(name: str, here: str | None, there: str | None, order: list[str]) -> int:
    if here is None or there is None:
        return len(order)
    low, high = sorted((_sortable(_plain(name, here)), _sortable(_plain(name, there))))
    return sum(low <= _sortable(one) < high for one in order)


def _plain(name: str, version: str | None) -> str:
    """Without the part that says how it was built; of Python the minor version, since its patches change nothing."""
    plain = (version or "").partition("+")[0]
    return ".".join(plain.split(".")[:2]) if name == "python" else plain


def _sortable(version: str) -> Version:
    try:
        return Version(version)
    except InvalidVersion:
        return Version("0")


def _told_apart(there: Versions, here: Versions) -> str:
    parts = [f"{name} {there.get(name, 'absent')}, here {here.get(name, 'absent')}" for name in apart(there, here)]
    return "; ".join(parts) or "the same versions"


# -- what it did -----------------------------------------------------------------------------


def outcome_text(verdict: Verdict, moment: str | None, type_: str | None, parameters: Iterable[str] = ()) -> str:
    """A verdict with what tells it from others of the same name."""
    text = " ".join([str(verdict), *([type_] if type_ else []), *([f"at {moment}"] if moment else [])])
    names = ", ".join(parameters)
    return f"{text} of {names}" if names else text


def _text_of(record: CaseRecord) -> str:
    if record.failure is not None:
        return outcome_text(record.verdict, record.failure.moment, record.failure.type)
    return outcome_text(record.verdict, None, None, sorted(one.name for one in record.worst()))
