"""What was observed, held against what is expected; told in few lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.cell._case import Case
from harness.cell._options import Options
from harness.cell.outcome._expect import ExpectationError, Expectations, differences
from harness.cell.outcome._observed import Observed
from harness.control.expect._points import Measured, whole_records
from harness.control.expect._where import covers

__all__ = ["Difference", "compare", "few", "said", "told"]


@dataclass(frozen=True)
class Difference:
    case: str
    options: Options
    stack: str
    text: str


def compare(observed: Mapping[str, Observed], expectations: Expectations, measured: Measured) -> list[Difference]:
    """Every difference, in the order of the stacks.

    :raises ExpectationError: where two entries apply.
    """
    found: list[Difference] = []
    faults: dict[str, None] = {}
    for stack, one in observed.items():
        for record in whole_records(one, measured.names):
            options = Options(**record.options)
            if not measured.knows(record.case, options):
                continue
            try:
                texts = differences(record, expectations.of(record))
            except ExpectationError as error:
                faults.update(dict.fromkeys(error.faults))
                continue
            found += [Difference(record.case, options, stack, text.removesuffix(": ")) for text in texts]
    if faults:
        raise ExpectationError([*faults])
    return found


def told(found: Sequence[Difference], cases: Sequence[Case]) -> Iterator[str]:
    """Those of several variants and stacks together."""
    for case in cases:
        alike: dict[tuple[str, tuple[str, ...]], list[Options]] = {}
        for options in case.variants:
            texts: dict[str, list[str]] = {}
            for one in found:
                if (one.case, one.options) == (case.name, options):
                    texts.setdefault(one.text, []).append(one.stack)
            for text, where in texts.items():
                alike.setdefault((text, tuple(where)), []).append(options)
        for (text, stacks), some in alike.items():
            yield f"{case.name}: {text}"
            yield f"  {said(some, case)}; on {few(stacks)}"


def said(some: Sequence[Options], case: Case) -> str:
    """Variants by their settings."""
    if len(some) == len(case.variants):
        return "all variants"
    parts = []
    for where, _ in covers(some, case.variants):
        parts.append(", ".join(f"{axis} {' or '.join(map(str, values))}" for axis, values in where.items()))
    return "; ".join(parts)


def few(stacks: Sequence[str]) -> str:
    """The first of them, and how many more."""
    shown = ", ".join(stacks[:6])
    return f"{shown} and {len(stacks) - 6} more" if len(stacks) > 6 else shown
