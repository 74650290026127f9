"""Bands of verdicts along an axis as SVG: plain shapes whose colours the page's style sheet gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from markupsafe import Markup

from harness.control.report._boundary import Axis, Band, Span, words
from harness.control.report._look import LOOKS

__all__ = ["picture", "strip"]

_WIDTH: Final = 832
#: Of one stack: wide enough for its version, turned, and no wider than reads well.
_STEP: Final = (13.0, 72.0)
_BAR: Final = 20
_LABEL: Final = 18
_TICKS: Final = 58
_LETTER: Final = 7.4  # of the bars' 11 pixel type, widest


def picture(axis: Axis, bands: Sequence[Band], key: str) -> Markup:
    """A band for each way the variants behave, and versions under them where something begins or ends.

    :param key: unique in the page.
    """
    step = min(max(_WIDTH / len(axis.columns), _STEP[0]), _STEP[1])
    width, height = step * len(axis.columns), len(bands) * (_BAR + _LABEL + 6) + _TICKS
    said = ". ".join(f"{band.label}: {words(band, axis)}" for band in bands)
    lines = [
        Markup(
            '<svg class="bands" width="{0}" height="{1}" viewBox="0 0 {0} {1}" role="img" aria-labelledby="{2}">'
        ).format(_n(width), height, key),
        Markup('<title id="{}">{}: {}</title>').format(key, axis.title, said),
    ]
    top = 0
    for band in bands:
        lines.append(Markup('<text class="bl" x="0" y="{}">{}</text>').format(top + _LABEL - 5, band.label))
        lines += (_bar(span, step, top + _LABEL) for span in band.spans)
        top += _BAR + _LABEL + 6
    lines += _ticks(axis, bands, step, top)
    return Markup("").join([*lines, Markup("</svg>")])


def strip(axis: Axis, band: Band) -> Markup:
    """The band alone, small, for a row of a table."""
    step = 200 / max(1, len(axis.columns))
    bars = Markup("").join(_bar(span, step, 0, 16) for span in band.spans)
    title = f"{axis.title}: {words(band, axis)}"
    return Markup(
        '<svg class="bands" width="200" height="16" viewBox="0 0 200 16" role="img" aria-label="{}">{}</svg>'
    ).format(title, bars)


def _bar(span: Span, step: float, top: float, height: int = _BAR) -> Markup:
    x, width = span.start * step, (span.end - span.start) * step - 1
    if span.verdict is None:
        middle = _n(top + height / 2)
        return Markup('<path class="gap" d="M{} {}h{}"/>').format(_n(x), middle, _n(width))
    look = LOOKS[span.verdict]
    word = f"{look.symbol} {span.verdict}"
    if len(word) * _LETTER > width:
        word = look.symbol if width > 9 else ""
    text = (
        Markup('<text x="{}" y="{}">{}</text>').format(_n(x + width / 2), _n(top + height / 2 + 4), word)
        if word
        else ""
    )
    return Markup('<g class="f-{}"><rect x="{}" y="{}" width="{}" height="{}" rx="2"/>{}</g>').format(
        look.family, _n(x), _n(top), _n(width), height, text
    )


def _ticks(axis: Axis, bands: Sequence[Band], step: float, top: float) -> Iterator[Markup]:
    """At both ends, on both sides of each change, and where a new minor release begins."""
    last = len(axis.columns) - 1
    strong = {0, last}
    for band in bands:
        for span in band.spans:
            strong |= {span.start, span.end - 1}
    labels = [column.label for column in axis.columns]
    minors = [".".join(label.split(".")[:2]) for label in labels]
    starts = {place for place, minor in enumerate(minors) if not place or minor != minors[place - 1]}
    if len(axis.columns) * 12 > _WIDTH:
        starts = {place for place in starts if not strong & {place - 1, place + 1}}
    for place in sorted(strong | starts):
        x = _n((place + 0.5) * step + 3.5)
        weight = "tb" if place in strong else "tl"
        turned = Markup('<text x="{0}" y="{1}" class="{2}" transform="rotate(-90 {0} {1})">{3}</text>')
        yield turned.format(x, _n(top + 2), weight, labels[place])


def _n(value: float) -> str:
    """As few digits as say it to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")
