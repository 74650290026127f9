"""What was seen at each place, kept on disk as soon as it is known: a bisection that was killed goes on from there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.cell.outcome._record import CaseRecord
from harness.cell.outcome._results import as_line
from harness.cell.outcome._verdict import Verdict
from harness.control.boundaries import Did

__all__ = ["Memory", "Seen", "Sight"]


@dataclass(frozen=True)
class Seen:
    """What one variant did, once."""

    #: None where it did not run
    did: Did | None
    headline: str

    @classmethod
    def of(cls, record: CaseRecord) -> Seen:
        return cls(Did.of(record), record.headline)


@dataclass(frozen=True)
class Sight:
    """What was seen at one place: runs, each with every variant by its id, or why there was none."""

    at: str
    runs: tuple[Mapping[str, Seen], ...] = ()
    unusable: str = ""
    versions: Mapping[str, str] | None = None

    def of(self, variant: str) -> list[Seen]:
        return [run[variant] for run in self.runs if variant in run]

    def as_dict(self) -> dict[str, Any]:
        runs = [
            {
                variant: {"headline": one.headline} | ({"did": [*_plain(one.did)]} if one.did else {})
                for variant, one in run.items()
            }
            for run in self.runs
        ]
        return {"at": self.at, "runs": runs, "unusable": self.unusable, "versions": dict(self.versions or {})}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Sight:
        """Raises KeyError, TypeError or ValueError where it is none."""
        runs = tuple(
            {variant: Seen(_did(one.get("did")), one["headline"]) for variant, one in run.items()}
            for run in plain["runs"]
        )
        return cls(plain["at"], runs, plain["unusable"], plain["versions"])


def _plain(did: Did) -> Iterator[str]:
    yield str(did.verdict)
    yield did.moment
    yield did.error


def _did(plain: Sequence[str] | None) -> Did | None:
    if plain is None:
        return None
    verdict, moment, error = plain
    return Did(Verdict(verdict), moment, error)


class Memory:
    """A file of sights, one line each; a line that a killed process left half is dropped."""

    def __init__(self, path: Path) -> None:
        """Raises OSError where the file is there and cannot be read."""
        self._path = path
        self._sights: dict[str, list[Sight]] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    sight = Sight.from_dict(json.loads(line))
                except (ValueError, KeyError, TypeError, AttributeError):
                    continue
                self._sights.setdefault(sight.at, []).append(sight)

    def at(self, at: str) -> Sight | None:
        """All that was seen there, as one."""
        sights = self._sights.get(at)
        if not sights:
            return None
        runs = tuple(run for one in sights for run in one.runs)
        return Sight(at, runs, sights[-1].unusable if not runs else "", sights[-1].versions)

    def add(self, sight: Sight, *, lasting: bool = True) -> None:
        """:param lasting: also for whoever asks again.

        :raises OSError: where it cannot be written.
        """
        if lasting:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(as_line(sight.as_dict()) + "\n")
        self._sights.setdefault(sight.at, []).append(sight)
