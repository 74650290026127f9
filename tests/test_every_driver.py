"""The core recipes do the same by every driver, on two real ranks; and what does not is said here, with its cause."""

from __future__ import annotations

import dataclasses
from importlib.util import find_spec

import pytest

from harness.cases import drivers
from harness.cell import Case, CaseRecord, Options, Verdict
from harness.cell.models import find_model
from harness.cell.ranks._launch import Request, ZygoteLauncher
from harness.drivers.dress import beside, part

CASES = (
    drivers.frozen_before_any_driver,
    drivers.literal_loop_before_any_driver,
    drivers.unfreeze_more_after_any_driver,
    drivers.frozen_after_any_driver,
    drivers.nothing_trains_by_any_driver,
)


def _record(launcher: ZygoteLauncher, case: Case, options: Options) -> CaseRecord:
    return launcher.result(launcher.submit(Request(case, options, world=2))).record


def _pairs() -> list[tuple[Case, Options]]:
    """Every variant that has one by the plain engine to be held against."""
    return [
        (case, options)
        for case in CASES
        for options in case.variants
        if options.driver != "engine" and dataclasses.replace(options, driver="engine") in case.variants
    ]


@pytest.fixture(scope="module")
def by_the_engine(launcher: ZygoteLauncher) -> dict[tuple[str, Options], CaseRecord]:
    """What a plain loop does."""
    return {
        (case.name, options): _record(launcher, case, options)
        for case in CASES
        for options in case.variants
        if options.driver == "engine"
    }


@pytest.mark.parametrize(("case", "options"), [pytest.param(*one, id=f"{one[0].name}-{one[1].id}") for one in _pairs()])
def test_a_recipe_does_the_same_by_every_driver(
    launcher: ZygoteLauncher,
    by_the_engine: dict[tuple[str, Options], CaseRecord],
    case: Case,
    options: Options,
) -> None:
    expected = by_the_engine[case.name, dataclasses.replace(options, driver="engine")]
    found = _record(launcher, case, options)

    if any(find_spec(name) is None for name in options.needs):
        assert found.verdict is Verdict.NOT_RUN
        return
    assert found.verdict is expected.verdict, found.headline
    assert {one.name: one.verdict for one in found.parameters} == {
        one.name: _as_by(options, one.name, one.verdict) for one in expected.parameters
    }
    if expected.failure is not None:
        assert found.failure is not None
        assert (found.failure.moment, found.failure.ranks) == (expected.failure.moment, expected.failure.ranks)


def _as_by(options: Options, name: str, verdict: Verdict) -> Verdict:
    """What a driver makes of what the plain engine does: a Trainer has no norm decay, frozen too late or not."""
    spared = options.driver.endswith("trainer") and name.endswith("norm.weight")
    return Verdict.FROZEN if spared and verdict is Verdict.FROZEN_DRIFT else verdict


def test_the_core_recipes_do_what_they_are_known_for(by_the_engine: dict[tuple[str, Options], CaseRecord]) -> None:
    """Else all drivers might agree on nothing."""
    known = (Verdict.TRAINS, Verdict.TRAINS, Verdict.NO_UPDATE, Verdict.FROZEN_DRIFT, Verdict.RAISES)
    assert {(name, one.verdict) for (name, _), one in by_the_engine.items()} == {
        (case.name, verdict) for case, verdict in zip(CASES, known, strict=True)
    }


@pytest.mark.parametrize("name", ["block", "other block"])
def test_a_part_of_an_adapted_model_is_its_adapters(name: str) -> None:
    patterns = part(_Variant(Options(adapters="lora")), name)  # type: ignore[arg-type]
    number = {"block": 2, "other block": 1}[name]
    assert patterns == (f"base_model.model.model.layers.{number}.*lora_*",)


def test_what_trains_beside_lora_has_names_of_its_own() -> None:
    kinds = ("none", "lora", "lora_head", "lora_tokens")
    found = [beside(_Variant(Options(adapters=kind))) for kind in kinds]  # type: ignore[arg-type]
    assert found == [
        (),
        (),
        ("base_model.model.lm_head.*modules_to_save.*",),
        ("base_model.model.model.embed_tokens.*trainable_tokens_delta*",),
    ]


class _Variant:
    """As much of a run as has names."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def part(self, name: str) -> tuple[str, ...]:
        return find_model(self.options.model).parts[name]
