"""What Axolotl's ``unfrozen_parameters`` did before the first release that can be installed by itself.

Written anew after its behaviour, one function for each stretch of time; where they are called is as in
:mod:`harness.drivers.axolotl`: on the loaded model, before the Trainer exists. Patterns are Axolotl's: regular
expressions matched from the start of a name, every dot a literal one, and since March 2024 perhaps rows behind
it, as in ``^lm_head.weight$[32:64]``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import nn

__all__ = ["checked_ranges", "first_loop", "unchecked_ranges"]

#: From and to, as given; None where it was left out.
_Rows = tuple[int, int | None]


def first_loop(model: nn.Module, patterns: Sequence[str]) -> None:
    """2023-12-13 (#950) to 2024-03-15; of the releases, 0.4.0: everything off, then what matches on."""
    wanted = [_compiled(pattern) for pattern in patterns]
    for parameter in model.parameters():
        parameter.requires_grad = False
    for name, parameter in model.named_parameters():
        if any(one.match(name) for one in wanted):
            parameter.requires_grad = True


def unchecked_ranges(model: nn.Module, patterns: Sequence[str]) -> None:
    """2024-03-15 (#1390) to 2024-07-05; in no release: rows by a gradient hook, as if ``len`` were their number.

    A partitioned parameter has a length of 0, and then nothing is behind the last range.
    """
    _by_ranges(model, patterns, lambda rows, length: rows)  # noqa: ARG005  # nobody looked at the length


def checked_ranges(model: nn.Module, patterns: Sequence[str]) -> None:
    """2024-07-05 (#1686) on; 0.5.0 and, as far as was read, every release up to 0.19.0: the same, but ranges that
    end before they begin are refused."""

    def checked(rows: tuple[int, int], length: int) -> tuple[int, int]:
        start, end = rows
        if end > length > 0 or start >= end:
            raise ValueError(f"rows {start} to {end} of {length}")
        return rows

    _by_ranges(model, patterns, checked)


def _by_ranges(
    model: nn.Module,
    patterns: Sequence[str],
    check: Callable[[tuple[int, int], int], tuple[int, int]],
) -> None:
    wanted = [_with_rows(pattern) for pattern in patterns]
    for name, parameter in model.named_parameters():
        found = [rows for one, rows in wanted if one.match(name)]
        parameter.requires_grad = bool(found)
        length = len(parameter)
        given = [rows for rows in found if rows is not None]
        ranges = [check((start, length if end is None else end), length) for start, end in given]
        if ranges:
            parameter.register_hook(_zeroing(_outside(ranges, length)))  # type: ignore[no-untyped-call]


def _outside(ranges: Sequence[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """What lies before, between and behind."""
    gaps, reached = [], 0
    for start, end in sorted(ranges):
        if start > reached:
            gaps.append((reached, start))
        reached = max(reached, end)
    return [*gaps, (reached, length)] if reached < length else gaps


def _zeroing(rows: Sequence[tuple[int, int]]) -> Callable[[torch.Tensor], None]:
    def hook(gradient: torch.Tensor) -> None:
        for start, end in rows:
            gradient[start:end] = 0

    return hook


def _with_rows(pattern: str) -> tuple[re.Pattern[str], _Rows | None]:
    found = re.fullmatch(r"(?P<name>.+)\[(?P<start>\d*):(?P<end>\d*)\]", pattern)
    if found is None:
        return _compiled(pattern), None
    start, end = found["start"], found["end"]
    return _compiled(found["name"]), (int(start or 0), int(end) if end else None)


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.replace(".", r"\."))
