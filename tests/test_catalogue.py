"""What the shipped cases say of themselves holds together, and what they promise was measured."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from packaging.specifiers import SpecifierSet

from harness.cell import Case, Verdict
from harness.cell._catalog import shipped
from harness.cell.outcome._observed import Observed, Outcome, read_observed
from harness.cell.outcome._record import Failure
from harness.control._fresh import fresh
from harness.control.boundaries import Agreement, check_fix
from harness.control.stacks import load_matrix

OBSERVED: Final = Path(__file__).parents[1] / "matrix" / "observed"
LATEST: Final = fresh(read_observed(OBSERVED / "latest.jsonl"))
#: Where what `latest` has not got is installed.
FULL: Final = fresh(read_observed(OBSERVED / "axolotl-full.jsonl"))
BY_NAME: Final = {case.name: case for case in shipped()}

#: What is no fault, or was not measured.
NO_FAULT: Final = {Verdict.TRAINS, Verdict.NOT_RUN, Verdict.UNSOLVABLE}

#: Files whose cases go many ways with the same variants: what a way cannot do at all is no matter of freezing.
WAYS: Final = {"architectures", "drivers", "settings"}

#: Faults of a stage at which nothing helps, so that the cure is another stage, as ``instead`` has to say.
OTHER_STAGE: Final = {
    "freeze_except_in_bf16": 0,  # the bf16 optimizer of stage 0 takes a step of its own
    "unfreeze_more_in_bf16": 0,  # likewise
    "lower_stages_on_cpu": None,  # on these releases stages 1 and 2 step nothing on CPU
}


#: Case files that run the core recipes by other ways; why these fail is told in core.
REPEATED: Final = {"architectures", "drivers", "report", "settings"}


@dataclass(frozen=True)
class Limit:
    """Releases on which these cures do not work, as each of them has to say by naming ``told``."""

    cures: tuple[str, ...]
    versions: dict[str, str]
    told: str
    stage: int | None = None

    def covers(self, cure: Case, stage: int, stack: Observed) -> bool:
        if cure.name not in self.cures or self.stage not in (None, stage):
            return False
        return all(
            name in stack.versions and SpecifierSet(one).contains(stack.versions[name])
            for name, one in self.versions.items()
        )


LIMITS: Final = (
    # A second engine of the same model finds what the first one has gathered.
    Limit(("new_engine_after_unfreezing", "new_engine_per_block"), {"deepspeed": "<0.15.3"}, "0.15.3", stage=3),
    # The Trainer makes no engine.
    Limit(
        (
            "trainer_freeze_except_before",
            "trainer_saves_gathered",
            "pretrained_from_accelerate",
        ),
        {"transformers": "~=5.1.0"},
        "5.1.0",
    ),
    # Torch loads tensors alone unless told otherwise.
    Limit(
        (
            "exclude_frozen_loose_load",
            "flags_set_back_before_saving",
            "fp32_export_without_frozen",
            "frozen_copy_loose_load",
            "load_without_optimizer_states",
            "resume_frozen_alike",
            "universal_into_the_same_base",
        ),
        {"deepspeed": "<0.16.0", "torch": ">=2.6"},
        "0.16.0",
    ),
    Limit(("universal_into_the_same_base",), {"deepspeed": "<0.14.5"}, "0.14.5"),
    Limit(("bf16_without_frozen_copies",), {"deepspeed": "<=0.17.0", "torch": "<2.3"}, "2.2.2"),
    # Gradients are divided by a loss scale that the loss never had.
    Limit(("bf16_without_frozen_copies",), {"deepspeed": ">=0.17.6,<0.18.6"}, "0.18.5", stage=0),
    Limit(("autocast_one_dtype",), {"deepspeed": "<0.17.6"}, "0.17.6"),
    # The Trainer's scheduler has more groups than DeepSpeed keeps.
    Limit(("frozen_before_any_driver",), {"transformers": "<5.1", "torch": ">=2.10"}, "5.1"),
    # It imports what transformers has from 5.0 on.
    Limit(
        ("adapter_saved_from_gathered_state", "adapter_of_a_part_by_its_own_names"),
        {"peft": "~=0.19.0", "transformers": "<5"},
        "0.19.1",
    ),
    Limit(("unused_without_decay",), {"deepspeed": ">=0.17.6,<0.18.3"}, "0.17.6", stage=2),
)


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


@dataclass(frozen=True)
class Stages:
    """A stack, by what the variants that cases have today did on it at each stage."""

    stack: Observed
    verdicts: dict[tuple[str, int], set[Verdict]]
    outcomes: dict[tuple[str, str], Outcome]

    def of(self, case: Case, stage: int) -> set[Verdict]:
        """Without what is no fault."""
        return self.verdicts.get((case.name, stage), set()) - NO_FAULT


@cache
def by_stage(path: Path) -> Stages:
    wanted = {(case.name, options.id) for case in shipped() for options in case.variants}
    stack = fresh(read_observed(path))
    found: dict[tuple[str, int], set[Verdict]] = {}
    for outcome in stack.outcomes:
        for options in outcome.variants:
            if (outcome.case, options.id) in wanted:
                found.setdefault((outcome.case, options.stage), set()).add(outcome.verdict)
    return Stages(stack, found, stack.key())


def measured() -> list[Stages]:
    """Every stack."""
    return [by_stage(path) for path in sorted(OBSERVED.glob("*.jsonl"))]


def helped(case: Case, stage: int, seen: Stages) -> bool:
    """Whether the cure trains where the fault is seen, or cannot: because the stack trains nothing at this stage,
    or for a reason that is told."""
    cure = BY_NAME[case.cure]
    if case.name in OTHER_STAGE and OTHER_STAGE[case.name] in (None, stage):
        return True
    if seen.of(BY_NAME["freeze_except_before_engine"], stage):
        return True
    if any(limit.covers(cure, stage, seen.stack) for limit in LIMITS):
        return True
    if case.module.rpartition(".")[2] in WAYS:
        return fails_alike(case, cure, stage, seen)
    return not seen.of(cure, stage)


def fails_alike(case: Case, cure: Case, stage: int, seen: Stages) -> bool:
    """Whether no variant of the cure fails but in the way in which that of the fault does: one cannot be had at all."""
    for options in case.variants:
        mine, theirs = (seen.outcomes.get((one.name, options.id)) for one in (case, cure))
        if options.stage == stage and mine and theirs and theirs.verdict not in NO_FAULT and did(mine) != did(theirs):
            return False
    return True


def did(outcome: Outcome) -> tuple[object, ...]:
    failure = outcome.failure
    return outcome.verdict, failure and (failure.moment, failure.type)


def each(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


@pytest.mark.parametrize("stack", ["latest", "oldest"])
def test_every_variant_is_measured_on_both_ends(stack: str) -> None:
    found = fresh(read_observed(OBSERVED / f"{stack}.jsonl")).key()
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


@each([*shipped()])
def test_a_case_is_told_by_itself(case: Case) -> None:
    """On its page it stands apart from what it is the same as."""
    for text in (case.summary, case.recipe, case.happens):
        assert not re.match(r"(?i)(the same\b|as before\b|as with\b|as for\b|as any\b|as ``)", text), text
        assert not re.search(r"\b((older|newer) (releases|ones|versions|DeepSpeed|torch)|old releases)\b", text), text


@each([case for case in shipped() if verdicts(case) - {Verdict.TRAINS}])
def test_a_fault_leaves_nobody_with_a_failure_only(case: Case) -> None:
    """It says what to do instead, and the case that does so trains in every variant."""
    assert case.instead.endswith(".")
    assert case.cure in BY_NAME
    assert verdicts(BY_NAME[case.cure]) == {Verdict.TRAINS}


@each([case for case in shipped() if case.instead and case.kind != "CONTROL" and not case.cure])
def test_a_fault_without_a_cure_is_one_of_releases(case: Case) -> None:
    """It trains today, and ``instead`` names the release."""
    assert not verdicts(case) - NO_FAULT
    assert re.search(r"\b\d+\.\d+", case.instead), case.instead


@each([case for case in shipped() if case.cure])
def test_the_cure_is_for_the_stage_of_the_fault(case: Case) -> None:
    """It has a variant for each stage at which the fault is seen today, unless nothing helps there."""
    seen = by_stage(OBSERVED / "latest.jsonl")
    ill = {stage for stage in range(4) if seen.of(case, stage)}
    if case.name in OTHER_STAGE:
        ill -= {OTHER_STAGE[case.name]}
        assert re.search(r"\bstage \d", case.instead), case.instead
    assert ill <= {options.stage for options in BY_NAME[case.cure].variants}


@each([case for case in shipped() if case.cure])
def test_the_cure_trains_wherever_the_fault_is_seen(case: Case) -> None:
    """On every stack on which both were measured, at the same stage."""
    unhelped = [
        f"{seen.stack.stack}, stage {stage}"
        for seen in measured()
        for stage in range(4)
        if seen.of(case, stage) and not helped(case, stage, seen)
    ]
    assert not unhelped, f"{case.cure} fails, too: {'; '.join(unhelped)}"


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.told)
def test_a_limit_of_a_cure_is_told_and_needed(limit: Limit) -> None:
    """By the cure itself; and one that excuses nothing goes."""
    for name in limit.cures:
        assert limit.told in BY_NAME[name].happens, name
    assert any(
        seen.of(BY_NAME[name], stage)
        for name in limit.cures
        for seen in measured()
        for stage in range(4)
        if limit.covers(BY_NAME[name], stage, seen.stack)
    )


@each([case for case in shipped() if case.kind != "CONTROL" and case.module.rpartition(".")[2] not in REPEATED])
def test_a_fault_says_why(case: Case) -> None:
    """And where that was read, in which release."""
    assert re.search(r"\b\w+\.py\b", case.why), case.why
    assert re.search(r"\b\d+\.\d+", case.why), case.why


def test_there_are_controls_enough() -> None:
    """Things that reports call faults and that are none: they have reports, and train on ``latest``."""
    controls = [case for case in shipped() if case.refs and verdicts(case) == {Verdict.TRAINS}]
    assert len(controls) >= 5


@each([case for case in shipped() if case.fixes])
def test_a_fix_is_where_it_is_documented_or_says_why_not(case: Case) -> None:
    """As far as the releases on both sides of it were measured."""
    stacks = load_matrix(OBSERVED.parent).stacks.values()
    observed = {one.stack.stack: one.stack for one in measured()}
    for fix in case.fixes:
        found = check_fix(case, fix, stacks, observed)
        assert fix.because or found.agreement not in (Agreement.ELSEWHERE, Agreement.NOWHERE), (fix, found.changes)


@pytest.mark.parametrize(("error", "helps"), [("ValueError", True), ("KeyError", False), ("", True)])
def test_a_cure_that_fails_in_a_way_of_its_own_is_seen(*, error: str, helps: bool) -> None:
    """One that fails as the fault does shows a way that cannot be gone at all."""
    case, cure = BY_NAME["settings_unfreeze_more"], BY_NAME["settings_freeze_except"]
    options = next(one for one in case.variants if one in cure.variants)
    fault = Outcome(case.name, Verdict.RAISES, (options,), 2, failure=Failure("engine", "ValueError", ""))
    if error:
        other = Outcome(cure.name, Verdict.RAISES, (options,), 2, failure=Failure("engine", error, ""))
    else:
        other = Outcome(cure.name, Verdict.TRAINS, (options,), 2)
    seen = Stages(LATEST, {}, {(case.name, options.id): fault, (cure.name, options.id): other})

    assert fails_alike(case, cure, options.stage, seen) == helps
