"""The static site: plain files that open from disk."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from harness.cell.outcome._verdict import PRECEDENCE, Verdict
from harness.control.report._atlas import Atlas
from harness.control.report._badge import badge
from harness.control.report._boundary import Axis, Band, axes_of, bands_of, strip_of, words
from harness.control.report._columns import Column
from harness.control.report._drivers import driver_title
from harness.control.report._encode import detail_script, grid_script
from harness.control.report._look import LOOKS
from harness.control.report._picture import picture, strip
from harness.control.report._rows import Row, kind_title
from harness.control.report._tally import number, summary

__all__ = ["SiteError", "write_site"]

_PAGES: Final = (
    ("index.html", "Atlas"),
    ("mine.html", "My versions"),
    ("stack.html", "Stacks"),
    ("compare.html", "Compare"),
    ("kinds.html", "Kinds"),
)
#: By which a folder is known to be a site that may be replaced.
_MARK: Final = Path("data") / "grid.js"
#: Shown of each case on the page of its kind, where they were measured.
_FEW: Final = ("latest", "oldest")
_STATIC: Final = Path(__file__).with_name("static")


class SiteError(Exception):
    """The site cannot be written; says why, and what is safe."""


def write_site(atlas: Atlas, folder: Path) -> tuple[int, int]:
    """Replace ``folder`` by a new site, all or nothing; the number of files and of bytes.

    :raises SiteError: where it cannot be written, or holds something else.
    """
    if folder.exists() and not folder.is_dir():
        raise SiteError(f"{folder} is a file; name a folder for the site")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / _MARK).is_file():
        raise SiteError(f"{folder} holds other things than a site, which would be lost; name a new folder, or empty it")
    files = dict(_files(atlas))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as room:
            fresh, old = Path(room) / "fresh", Path(room) / "old"
            for name, text in files.items():
                path = fresh / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8", errors="backslashreplace")
            shutil.copytree(_STATIC, fresh / "look")
            if folder.exists():
                folder.rename(old)
            fresh.rename(folder)
    except OSError as error:
        raise SiteError(
            f"the site cannot be written to {folder}: {error.strerror}; what was there is as it was"
        ) from None
    every = [path for path in folder.rglob("*") if path.is_file()]
    return len(every), sum(path.stat().st_size for path in every)


def _files(atlas: Atlas) -> Iterator[tuple[str, str]]:
    pages = _Pages(atlas)
    yield str(_MARK), grid_script(atlas, summary(atlas))
    yield "badge.svg", badge(atlas)
    for file, _ in _PAGES[:-1]:
        yield file, pages.plain(file)
    yield "kinds.html", pages.kinds()
    for kind in atlas.kinds:
        yield f"kind/{_kind_file(kind)}", pages.kind(kind)
    for row in atlas.rows:
        yield f"case/{row.slug}.html", pages.case(row)
        yield f"data/case/{row.slug}.js", detail_script(atlas, row)


def _kind_file(kind: str) -> str:
    return f"{kind.lower()}.html"


def _kind_head(kind: str) -> str:
    return f"{kind}. {kind_title(kind)}" if len(kind) == 1 else kind_title(kind)


def _row_text(row: Row) -> str:
    return f"{row.recipe}, {row.moment}" if row.moment else row.recipe


class _Pages:
    def __init__(self, atlas: Atlas) -> None:
        self._atlas = atlas
        self._axes = axes_of(atlas)
        self._rows = {row.name: row for row in atlas.rows}
        self._about = summary(atlas)
        self._env = Environment(
            loader=PackageLoader("harness.control.report"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._env.filters["rich"] = _rich

    def plain(self, file: str) -> str:
        return self._made(file, current=file, root="")

    def kinds(self) -> str:
        counts = Counter(row.kind for row in self._atlas.rows)
        kinds = [
            {"file": _kind_file(kind), "title": _kind_head(kind), "count": number(counts[kind], "case")}
            for kind in self._atlas.kinds
        ]
        return self._made("kinds.html", current="kinds.html", root="", kinds=kinds)

    def kind(self, kind: str) -> str:
        few = [column for column in self._atlas.columns if column.key in _FEW]
        axis = max(self._axes, key=lambda one: len(one.columns), default=None)
        rows = [
            {
                "slug": row.slug,
                "name": row.name,
                "text": _row_text(row),
                "happens": row.happens,
                "chips": [self._chips(row, column) for column in few],
                "strip": self._strip(row, axis),
            }
            for row in self._atlas.rows
            if row.kind == kind
        ]
        return self._made(
            "kind.html",
            current="kinds.html",
            root="../",
            title=_kind_head(kind),
            query=urlencode({"kind": kind}),
            stacks=[column.key for column in few],
            axis=axis.title if axis else "",
            rows=rows,
        )

    def _strip(self, row: Row, axis: Axis | None) -> Markup | str:
        band = strip_of(self._atlas, row, axis) if axis else None
        measured = band is not None and any(span.verdict not in (None, Verdict.UNSOLVABLE) for span in band.spans)
        return strip(axis, band) if axis and band and measured else "not measured there yet"

    def _chips(self, row: Row, column: Column) -> list[Markup | str]:
        counts = Counter(outcome.verdict for _, outcome, _ in self._atlas.variants(row, column))
        if column.observed.unsolvable:
            counts[Verdict.UNSOLVABLE] = 1
        total = counts.total()
        return [_chip(one, counts[one], total) for one in PRECEDENCE if counts[one]] or ["not measured"]

    def case(self, row: Row) -> str:
        figures, steady = [], []
        for place, axis in enumerate(self._axes):
            bands = bands_of(self._atlas, row, axis)
            if _changes(bands):
                figures.append({"title": axis.title, "svg": picture(axis, bands, f"axis{place}")})
            elif bands:
                steady.append((axis.title, _steady(bands[0], axis)))
        cells = self._atlas.by_case[row.name]
        verdicts = [outcome.verdict for cell in cells for outcome in cell.outcomes.values()]
        trains = sum(one is Verdict.TRAINS for one in verdicts)
        measured = (
            f"{number(len(row.variants), 'variant')}, measured on {number(len(cells), 'stack')}: "
            f"{trains:,} of {len(verdicts):,} verdicts are TRAINS"
        )
        return self._made(
            "case.html",
            current="",
            root="../",
            row=row,
            kind={"file": _kind_file(row.kind), "title": _kind_head(row.kind)},
            text=_row_text(row),
            why=[part for part in row.why.split("\n\n") if part.strip()],
            cure=self._rows.get(row.cure),
            reports=[(one, _link(one)) for one in row.refs],
            drivers=" and ".join(map(driver_title, row.drivers)),
            measured=measured,
            query=urlencode({"q": row.name}),
            figures=figures,
            steady=steady,
        )

    def _made(self, template: str, **values: Any) -> str:
        return self._env.get_template(template).render(pages=_PAGES, about=self._about, **values)


def _changes(bands: list[Band]) -> bool:
    """Whether there is anything to see: a verdict that differs between versions or variants."""
    verdicts = {span.verdict for band in bands for span in band.spans}
    return len(verdicts - {None, Verdict.UNSOLVABLE}) > 1


def _steady(band: Band, axis: Axis) -> str:
    measured = [span for span in band.spans if span.verdict not in (None, Verdict.UNSOLVABLE)]
    few = Band(band.label, tuple(measured))
    return f"{band.label}: {words(few, axis)}"


def _chip(verdict: Verdict, count: int, total: int) -> Markup:
    look = LOOKS[verdict]
    counted = Markup(' <span class="n">{} of {}</span>').format(count, total) if count != total else ""
    return Markup('<span class="chip f-{}">{} {}{}</span>').format(look.family, look.symbol, verdict, counted)


def _rich(text: str) -> Markup:
    """Stories mark code by backticks, docstrings by two."""
    pieces = re.split(r"``?([^`]+)``?", text)
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if place % 2 else piece for place, piece in enumerate(pieces)
    )


def _link(reference: str) -> str:
    found = re.fullmatch(r"([\w.-]+/[\w.-]+)#(\d+)", reference)
    return f"https://github.com/{found[1]}/issues/{found[2]}" if found else ""
