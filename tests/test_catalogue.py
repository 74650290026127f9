"""What the shipped cases say of themselves holds together, and what they promise was measured."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from harness.cell import Case, Verdict
from harness.cell._catalog import shipped
from harness.cell.outcome._observed import read_observed

OBSERVED: Final = Path(__file__).parents[1] / "matrix" / "observed"
LATEST: Final = read_observed(OBSERVED / "latest.jsonl")
#: Where what `latest` has not got is installed.
FULL: Final = read_observed(OBSERVED / "axolotl-full.jsonl")
BY_NAME: Final = {case.name: case for case in shipped()}


def verdicts(case: Case) -> set[Verdict]:
    """Of the variants that were measured, on the first stack that has what they need."""
    seen: set[Verdict] = set()
    for stack in (LATEST, FULL):
        found = stack.key()
        seen = {
            found[key].verdict
            for options in case.variants
            if (key := (case.name, options.id)) in found and {*options.needs} <= stack.versions.keys()
        }
        if seen - {Verdict.NOT_RUN}:
            break
    return seen


def each(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


@pytest.mark.parametrize("stack", ["latest", "oldest"])
def test_every_variant_is_measured_on_both_ends(stack: str) -> None:
    found = read_observed(OBSERVED / f"{stack}.jsonl").key()
    wanted = {(case.name, options.id) for case in shipped() for options in case.variants}
    assert sorted(wanted - found.keys()) == [], f"measure them: thawcheck sweep {stack}"


def test_no_two_cases_share_a_name_or_a_row() -> None:
    assert len(BY_NAME) == len(shipped())
    rows = [(case.recipe, case.moment) for case in shipped()]
    assert sorted({row for row in rows if rows.count(row) > 1}) == []


@each([*shipped()])
def test_a_case_tells_its_story(case: Case) -> None:
    assert case.summary.endswith(".")
    assert case.recipe
    assert case.moment
    assert case.happens.endswith(".")
    for reference in case.refs:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", reference), reference


@each([case for case in shipped() if verdicts(case) - {Verdict.TRAINS}])
def test_a_fault_leaves_nobody_with_a_failure_only(case: Case) -> None:
    """It says what to do instead, and the case that does so trains in every variant."""
    assert case.instead.endswith(".")
    assert case.cure in BY_NAME
    assert verdicts(BY_NAME[case.cure]) == {Verdict.TRAINS}


@each([case for case in shipped() if case.module.rpartition(".")[2].startswith("kind_") and case.instead])
def test_a_fault_of_the_catalogue_says_why(case: Case) -> None:
    """And where that was read, in which release."""
    assert re.search(r"\b\w+\.py\b", case.why), case.why
    assert re.search(r"\b\d+\.\d+", case.why), case.why


def test_there_are_controls_enough() -> None:
    """Things that reports call faults and that are none: they have reports, and train on ``latest``."""
    controls = [case for case in shipped() if case.refs and verdicts(case) == {Verdict.TRAINS}]
    assert len(controls) >= 5
