"""A badge for a README: whether all is as expected, in words and a colour."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup

from harness.cell.outcome._verdict import Verdict
from harness.control.report._atlas import Atlas
from harness.control.report._tally import total

__all__ = ["badge", "badge_text"]

#: Each has white text on it at 4.5 to 1 or better.
_GOOD, _BAD, _UNKNOWN = "#1b6e3c", "#b3380a", "#545b64"
_NAME: Final = "thawcheck"
#: Of the 11 pixel type that badges have; the text is stretched to just this, whatever font there is.
_LETTER: Final = 6.6


def badge_text(atlas: Atlas) -> tuple[str, str]:
    """What it says, and the colour behind that."""
    found = total(atlas)
    count = sum(found.counts.values())
    if not count:
        return "nothing measured", _UNKNOWN
    if found.surprises:
        return f"{found.surprises:,} of {count:,} not as expected", _BAD
    if atlas.judged:
        return f"{count:,} verdicts as expected", _GOOD
    trains = found.counts.get(Verdict.TRAINS, 0)
    return f"{trains:,} of {count:,} train", _UNKNOWN


def badge(atlas: Atlas) -> str:
    """SVG, by itself."""
    text, colour = badge_text(atlas)
    left, right = (round(len(one) * _LETTER) + 12 for one in (_NAME, text))
    made = Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{name}: {text}">'
        "<title>{name}: {text}</title>"
        '<clipPath id="r"><rect width="{width}" height="20" rx="3"/></clipPath>'
        '<g clip-path="url(#r)"><rect width="{left}" height="20" fill="#24292e"/>'
        '<rect x="{left}" width="{right}" height="20" fill="{colour}"/></g>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        '<text x="6" y="14" textLength="{left_text}">{name}</text>'
        '<text x="{right_at}" y="14" textLength="{right_text}">{text}</text></g></svg>'
    ).format(
        width=left + right,
        left=left,
        right=right,
        left_text=left - 12,
        right_text=right - 12,
        right_at=left + 6,
        name=_NAME,
        text=text,
        colour=colour,
    )
    return f"{made}\n"
