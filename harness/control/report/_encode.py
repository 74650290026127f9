"""What the pages' scripts read: one small file for the grid, and one for each case, loaded when somebody asks.

A page opened from disk may load scripts and nothing else, so the files are scripts that hand over JSON. Neighbouring
stacks mostly do alike: a case keeps each pattern of verdicts over its variants once, and for the stacks, in their
order, which pattern how often. Keys are never names from outside: those stand in lists.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from packaging.version import InvalidVersion, Version

from harness.cell.outcome._observed import Outcome
from harness.cell.outcome._results import as_line
from harness.cell.outcome._verdict import Verdict
from harness.control.report._atlas import Atlas
from harness.control.report._columns import Column
from harness.control.report._drivers import driver_title
from harness.control.report._look import LOOKS, SHOWN
from harness.control.report._rows import Row, kind_title

__all__ = ["detail_script", "grid_script"]

#: Of a variant that was not measured.
_NONE: Final = "."
_PLACE: Final[Mapping[Verdict, int]] = {verdict: place for place, verdict in enumerate(SHOWN)}


def grid_script(atlas: Atlas, about: str) -> str:
    """All that the grid, its filters, the comparison and the pages of stacks need."""
    packages = atlas.packages
    versions = {
        name: _in_order({one.versions[name] for one in atlas.columns if name in one.versions}) for name in packages
    }
    groups = list(dict.fromkeys(column.group for column in atlas.columns))
    variants = list(dict.fromkeys(options.id for row in atlas.rows for options in row.variants))
    models = {options.id: [options.id, options.model, options.stage] for row in atlas.rows for options in row.variants}
    number = {one: place for place, one in enumerate(variants)}
    drivers = sorted({one for row in atlas.rows for one in row.drivers})
    places = {row.name: place for place, row in enumerate(atlas.rows)}
    plain = {
        "about": about,
        "judged": atlas.judged,
        "verdicts": [[str(one), LOOKS[one].symbol, LOOKS[one].family, LOOKS[one].means] for one in SHOWN],
        "packages": [[name, versions[name]] for name in packages],
        "groups": groups,
        "stacks": [
            [
                column.key,
                column.label,
                groups.index(column.group),
                column.observed.device,
                column.observed.measured,
                [versions[name].index(column.versions[name]) if name in column.versions else -1 for name in packages],
                column.observed.stack,
                column.description,
                column.observed.unsolvable,
                int(column.known),
            ]
            for column in atlas.columns
        ],
        "variants": [models[one] for one in variants],
        "kinds": [[kind, kind_title(kind)] for kind in atlas.kinds],
        "drivers": [[one, driver_title(one)] for one in drivers],
        "cases": [
            [
                row.name,
                row.slug,
                atlas.kinds.index(row.kind),
                f"{row.recipe}, {row.moment}" if row.moment else row.recipe,
                row.happens,
                row.instead,
                places.get(row.cure, -1),
                [drivers.index(one) for one in row.drivers],
                [number[options.id] for options in row.variants],
                int(row.known),
                *_runs(_letters(atlas, row, column) for column in atlas.columns),
            ]
            for row in atlas.rows
        ],
    }
    return f"thaw.grid({as_line(plain)});\n"


def _letters(atlas: Atlas, row: Row, column: Column) -> str:
    """One for each variant, a small one where it is not as expected."""
    found = {options.id: _letter(outcome, surprise) for options, outcome, surprise in atlas.variants(row, column)}
    return "".join(found.get(options.id, _NONE) for options in row.variants)


def _letter(outcome: Outcome, surprise: str) -> str:
    return chr(ord("a" if surprise else "A") + _PLACE[outcome.verdict])


def detail_script(atlas: Atlas, row: Row) -> str:
    """All that is known of one case."""
    kept: dict[Hashable, int] = {}
    outcomes: list[dict[str, Any]] = []
    surprises, extras = [], []

    def place_of(outcome: Outcome) -> int:
        key = (outcome.verdict, outcome.world, tuple(outcome.parameters.items()), outcome.failure)
        if key not in kept:
            kept[key] = len(outcomes)
            outcomes.append(_plain(outcome))
        return kept[key]

    patterns = []
    for number, column in enumerate(atlas.columns):
        of: dict[str, int] = {}
        for options, outcome, surprise in atlas.variants(row, column):
            of[options.id] = place_of(outcome)
            if surprise:
                surprises.append([number, row.variants.index(options), surprise])
            if extra := column.extra.get((row.name, options.id)):
                told = {**extra, "stacks": [*extra.get("stacks", {}).items()]}
                extras.append([number, row.variants.index(options), told])
        patterns.append(tuple(of.get(options.id, -1) for options in row.variants))
    plain = {"outcomes": outcomes, "surprises": surprises, "extras": extras, "refs": row.refs}
    plain["patterns"], plain["runs"] = _runs(patterns)
    return f"thaw.detail({as_line({'slug': row.slug})},{as_line(plain)});\n"


def _plain(outcome: Outcome) -> dict[str, Any]:
    plain: dict[str, Any] = {"v": _PLACE[outcome.verdict], "w": outcome.world}
    if outcome.parameters:
        plain["p"] = [[str(verdict), names] for verdict, names in outcome.parameters.items()]
    if outcome.failure is not None:
        plain["f"] = [outcome.failure.moment, outcome.failure.type, outcome.failure.message]
    return plain


def _runs(patterns: Iterable[Hashable]) -> list[Any]:
    """Each pattern once, and which comes how often one after another, as ``0*3,1,0``."""
    known: dict[Hashable, int] = {}
    numbers = [known.setdefault(one, len(known)) for one in patterns]
    runs = [(number, len(list(some))) for number, some in groupby(numbers)]
    return [list(known), ",".join(f"{number}*{count}" if count > 1 else f"{number}" for number, count in runs)]


def _in_order(versions: Iterable[str]) -> Sequence[str]:
    def key(one: str) -> tuple[Version, str]:
        try:
            return Version(one), one
        except InvalidVersion:
            return Version("0"), one

    return sorted(versions, key=key)
