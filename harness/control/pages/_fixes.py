"""The page that holds what is documented upstream against what was measured."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from harness.cell._catalog import shipped
from harness.cell.outcome._observed import Observed
from harness.control.boundaries import Finding, check_fix
from harness.control.pages._kind import MADE, link, page_of
from harness.control.pages._measured import agreement_in_words
from harness.control.stacks import Stack

__all__ = ["FIXES", "fixes_page"]

FIXES = "fixes.md"

_WHAT = """\
What a project says of a release, and where verdicts change along the releases that were measured: `changes there` from
the release before it, with none between that was not measured; `changes around there` where some was not."""


def fixes_page(stacks: Collection[Stack], observed: Mapping[str, Observed]) -> str:
    """Markdown: a line for each documented fix of each case."""
    findings = [check_fix(case, fix, stacks, observed) for case in shipped() for fix in case.fixes]
    lines = [MADE, "", "# Documented fixes", "", _WHAT, ""]
    lines += ["| case | documented | measured | |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(_cells(one))} |" for one in findings]
    return "\n".join([*lines, ""])


def _cells(finding: Finding) -> Iterator[str]:
    case, fix = finding.case, finding.fix
    yield f"[`{case.name}`]({page_of(case.kind)}#{case.name})"
    yield f"{fix.package} {fix.release} ({link(fix.ref)})"
    yield agreement_in_words(finding)
    yield fix.because
