"""The rows of an atlas: what a report says of a case, whether or not it is one that we ship."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from harness.cell._case import Case
from harness.cell._catalog import shipped
from harness.cell._kinds import KINDS
from harness.cell._options import Options
from harness.control.report._drivers import drivers_of

__all__ = ["OTHER", "Row", "kind_title", "rows_for"]

#: The kind of a case that is not in the catalogue, such as one of somebody's own.
OTHER: Final = "OWN"


@dataclass(frozen=True)
class Row:
    name: str
    #: of its files: letters, digits, ``_``, ``.`` and ``-``, and no other row's even where case does not count
    slug: str
    kind: str
    variants: tuple[Options, ...]
    recipe: str = ""
    moment: str = ""
    summary: str = ""
    happens: str = ""
    why: str = ""
    instead: str = ""
    cure: str = ""
    refs: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    code: str = ""
    known: bool = True


def kind_title(kind: str) -> str:
    return KINDS.get(kind, "Cases that are not in the catalogue")


def rows_for(names: Iterable[str], seen: dict[str, list[Options]]) -> list[Row]:
    """By kind and then as the catalogue has them; others last.

    :param seen: the variants of each that were measured: some may be gone from the catalogue.
    """
    wanted = set(names)
    order = {kind: place for place, kind in enumerate(KINDS)}
    cases = sorted((case for case in shipped() if case.name in wanted), key=lambda case: order[case.kind])
    rows = [_of(case, seen.get(case.name, [])) for case in cases]
    others = sorted(wanted - {row.name for row in rows})
    return [*rows, *(_other(name, seen.get(name, [])) for name in others)]


def _of(case: Case, seen: Sequence[Options]) -> Row:
    source = inspect.getsource(case.function)
    return Row(
        name=case.name,
        slug=_slug(case.name),
        kind=case.kind,
        variants=(*case.variants, *(one for one in seen if one not in case.variants)),
        recipe=case.recipe,
        moment=case.moment,
        summary=case.summary,
        happens=case.happens,
        why=case.why,
        instead=case.instead,
        cure=case.cure,
        refs=case.refs,
        drivers=drivers_of(case),
        code=source[source.index(f"def {case.name}(") :].rstrip(),
    )


def _other(name: str, seen: Sequence[Options]) -> Row:
    return Row(name=name, slug=_slug(name), kind=OTHER, variants=tuple(seen), recipe=name, known=False)


def _slug(name: str) -> str:
    """Short, and the same whatever else is in the report, so that links last."""
    if re.fullmatch(r"[a-z0-9_][a-z0-9_.-]{0,99}", name):
        return name
    plain = re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-")[:40]
    return f"{plain or 'case'}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
