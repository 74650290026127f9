"""The page that leads to the others."""

from __future__ import annotations

from collections.abc import Iterable

from harness.cell._catalog import shipped
from harness.cell._kinds import KINDS
from harness.control.pages._fixes import FIXES
from harness.control.pages._kind import MADE, page_of
from harness.control.pages._symptoms import SYMPTOMS

__all__ = ["overview"]


def overview(kinds: Iterable[str]) -> str:
    """Markdown: each kind with the number of its cases."""
    lines = [MADE, "", "# Kinds of faults", "", "| kind | what it is about | cases |", "|---|---|---|"]
    for kind in kinds:
        count = sum(case.kind == kind for case in shipped())
        lines.append(f"| [{kind}]({page_of(kind)}) | {KINDS[kind]} | {count} |")
    lines += ["", f"[From what you see to the case]({SYMPTOMS}): what a weight does, what an exception says."]
    lines += ["", f"[Documented fixes]({FIXES}), and where they were measured."]
    return "\n".join([*lines, ""])
