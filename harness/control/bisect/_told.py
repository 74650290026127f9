"""A bisection in words, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from harness.cell._case import Case
from harness.cell._options import Options
from harness.control.bisect._find import Found
from harness.control.bisect._grid import Grid
from harness.control.bisect._line import Line, Place
from harness.control.bisect._search import Boundary
from harness.control.boundaries import Did

__all__ = ["Bisection"]


@dataclass(frozen=True)
class Bisection:
    """What was asked, and what was found."""

    case: Case
    options: Options
    base: str
    line: Line
    found: Found
    #: of each boundary, the other package that matters; None where none does as far as is known
    grids: tuple[Grid | None, ...]
    #: the command that repeats it
    command: str
    environments: int

    def text(self) -> Iterator[str]:
        """Lines for a terminal."""
        places, found = self.line.places, self.found
        for number in sorted(found.refuted):
            yield f"{self._place(number)} does not do what was observed before; that was not used any further"
        for number in sorted(found.unusable):
            yield f"skipped {self._place(number)}: {found.unusable[number]}"
        if found.flips:
            yield "it does not do the same each time, so no release is to blame by this:"
            for number, counts in sorted(found.flips.items()):
                told = ", ".join(f"{count} times {did}" for did, count in counts.most_common())
                yield f"  {self._place(number)}: {told}"
            return
        for one, grid in zip(found.boundaries, self.grids, strict=True):
            yield ""
            yield f"up to {self._dated(one.last)}: {one.before}"
            yield f"from  {self._dated(one.first)}: {one.after}"
            if page := self.line.compare_page(places[one.last], places[one.first]):
                yield f"what changed: {page}"
            if grid is not None:
                yield from self._grid(grid, one)
        yield ""
        made = f"{self.environments} environment{'' if self.environments == 1 else 's'} made"
        yield f"{len(found.run)} of {len(places)} places run, {made}; again: {self.command}"

    def as_dict(self) -> dict[str, Any]:
        """For ``--json`` and for bug reports."""
        found = self.found
        return {
            "schema": 1,
            "case": self.case.name,
            "variant": self.options.id,
            "stack": self.base,
            "package": self.line.package,
            "places": [place.at for place in self.line.places],
            "boundaries": [
                {
                    "last": self._plain(one.last),
                    "first": self._plain(one.first),
                    "before": _did(one.before),
                    "after": _did(one.after),
                    "skipped": [self.line.places[number].at for number in one.skipped],
                    "compare": self.line.compare_page(self.line.places[one.last], self.line.places[one.first]),
                    "other_package": grid and {"package": grid.package, "rows": _rows(grid)},
                }
                for one, grid in zip(found.boundaries, self.grids, strict=True)
            ],
            "flips": {
                self.line.places[number].at: [{**_did(did), "times": count} for did, count in counts.most_common()]
                for number, counts in sorted(found.flips.items())
            },
            "unusable": {self.line.places[number].at: why for number, why in sorted(found.unusable.items())},
            "did": {self.line.places[number].at: _did(did) for number, did in sorted(found.did.items())},
            "run": [self.line.places[number].at for number in sorted(found.run)],
            "refuted": [self.line.places[number].at for number in sorted(found.refuted)],
            "environments": self.environments,
            "command": self.command,
        }

    def _grid(self, grid: Grid, boundary: Boundary[Did]) -> Iterator[str]:
        last, first = (self.line.places[number].short for number in (boundary.last, boundary.first))
        yield f"{grid.package} matters, too; observed so far beside {self.line.package} {last} and {first}:"
        cells = [(at, *(str(did) if did else "-" for did in sides)) for at, sides in grid.rows.items()]
        rows = [(grid.package, last, first), *cells]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        for row in rows:
            yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()

    def _place(self, number: int) -> str:
        return f"{self.line.package} {self.line.places[number].short}"

    def _dated(self, number: int) -> str:
        place = self.line.places[number]
        return f"{self._place(number)}{f' ({place.day})' if place.day else ''}{_subject(place)}"

    def _plain(self, number: int) -> dict[str, Any]:
        place = self.line.places[number]
        return {"at": place.at, "day": place.day and place.day.isoformat(), "subject": place.subject}


def _subject(place: Place) -> str:
    return f" {place.subject}" if place.subject else ""


def _did(did: Did) -> dict[str, str]:
    return {"verdict": str(did.verdict), "moment": did.moment, "error": did.error}


def _rows(grid: Grid) -> dict[str, list[dict[str, str] | None]]:
    return {at: [_did(did) if did else None for did in sides] for at, sides in grid.rows.items()}
