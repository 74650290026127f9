"""README says what is measured, and names only what there is."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Final

from harness.cell import Case, CaseRecord, Options, Verdict
from harness.cell._catalog import shipped
from harness.cell.outcome._expect import Expectations

ROOT: Final = Path(__file__).parents[1]
FIRST: Final = ("harness.cases.core", "harness.cases.roads")
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
LATEST: Final = dict(
    re.findall(r"^([\w-]+)==(\S+)", (ROOT / "matrix/locks/latest.txt").read_text(encoding="utf-8"), re.MULTILINE)
)


def expected_cells(case: Case, expectations: Expectations) -> list[str]:
    """What the expectations say of each stage on the stack ``latest``, as the table writes it."""
    cells = []
    for stage in range(4):
        verdicts = Counter(
            expectations.of(record_of(case, options)).verdict for options in case.variants if options.stage == stage
        )
        assert len(verdicts) == 1, f"{case.name} at stage {stage}: the table needs counts for {verdicts}"
        cells.append(str(next(iter(verdicts))))
    return cells


def record_of(case: Case, options: Options) -> CaseRecord:
    """A record of this variant on ``latest``, as far as expectations look at it."""
    return CaseRecord(
        case=case.name,
        kind=case.kind,
        options=options.as_dict(),
        id="",
        verdict=Verdict.NOT_RUN,
        headline="",
        world=case.world,
        device="cpu",
        launcher="zygote",
        versions=LATEST,
    )


def test_the_table_is_the_measured_one() -> None:
    """Each case of the first two files has its row, and each cell is the verdict that ``latest`` is held to."""
    block = README.partition("<!-- measured")[2].partition("<!-- end of measured")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines() if "|" in line]
    found = {row[0]: row[1:] for row in rows[2:]}

    expectations = Expectations.load(ROOT / "matrix/expected")
    first = [case for case in shipped() if case.module in FIRST]
    wanted = {f"{case.recipe}, {case.moment}": expected_cells(case, expectations) for case in first}
    assert found == wanted


def test_commands_name_cases_that_exist() -> None:
    named = set(re.findall(r"(?:thawcheck run|-m harness\.cell|thaw\.run\(\") ?(\w+)", README))

    assert named - {"my_cases"}
    assert named - {"my_cases"} <= {case.name for case in shipped()}


def test_every_verdict_is_explained() -> None:
    explained = set(re.findall(r"`([A-Z_]+)`", README.partition("## Verdicts")[2].partition("\n## ")[0]))

    assert explained == {str(verdict) for verdict in Verdict}
