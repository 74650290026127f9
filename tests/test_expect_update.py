"""Expectations made from what was observed: they say all of it, no more, in few entries, and keep what people wrote."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from observed_world import make_matrix, observed, outcome, raises
from packaging.version import Version

from harness.cell import Options, Verdict, case, grid
from harness.cell._case import Case
from harness.cell._catalog import shipped
from harness.cell._patterns import select
from harness.cell.outcome._expect import Expectation, Expectations, differences, read_entries
from harness.cell.outcome._observed import Observed, Outcome
from harness.control._exit import Exit
from harness.control.cli import main
from harness.control.expect import Update, entry_faults, make_update
from harness.control.expect._message import pattern_of
from harness.control.expect._names import patterns_for
from harness.control.expect._points import PACKAGES
from harness.control.expect._shrink import shrink
from harness.control.expect._split import splits
from harness.control.expect._where import covers

if TYPE_CHECKING:
    from harness.cell._run import Run

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

STAGES: Final = tuple(Options(model=model, stage=stage) for model in ("tiny_llama", "mlp") for stage in (0, 1, 2, 3))
#: What has each name in one model and not in the other.
NAMES: Final = {
    "tiny_llama": ("lm_head.weight", "model.layers.1.mlp.weight", "model.layers.2.mlp.weight", "model.layers.2.norm"),
    "mlp": ("head.bias", "head.weight", "layers.2.bias", "layers.2.weight"),
}
BLOCK: Final = {"tiny_llama": NAMES["tiny_llama"][2:], "mlp": NAMES["mlp"][2:]}
HEAD: Final = {"tiny_llama": NAMES["tiny_llama"][:1], "mlp": NAMES["mlp"][:2]}


def declared(name: str, variants: Sequence[Options]) -> Case:
    """A case that is never run; not by its name in this module, where pytest would find it."""

    def function(run: Run) -> None:
        del run

    function.__name__ = name
    return case(kind="A", variants=variants)(function)


CASES: Final[Sequence[Case]] = (declared("late", STAGES), declared("other", STAGES[:4]))


def updated(folder: Path, stacks: Iterable[Observed], before: str = "", cases: Sequence[Case] = CASES) -> Update:
    """The update of a folder with one file, written; it must be stable."""
    folder.mkdir(exist_ok=True)
    if before:
        (folder / "mine.toml").write_text(before, encoding="utf-8")
    by_name = {one.stack: one for one in stacks}
    update = make_update(folder, by_name, _entries(folder), cases)
    update.write()
    again = make_update(folder, by_name, _entries(folder), cases)
    assert again.texts == {}
    assert again.entries == update.entries
    assert again.removed == []
    return update


def _entries(folder: Path) -> list[Expectation]:
    entries, faults = read_entries(folder)
    assert faults == []
    return entries


def tables(folder: Path) -> list[dict[str, Any]]:
    """The entries of all files as they are written, without note."""
    found: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.toml")):
        found += tomllib.loads(path.read_text(encoding="utf-8")).get("expect", [])
    return [{key: value for key, value in one.items() if key != "note"} for one in found]


def ds(version: str, *outcomes: Outcome, **more: str) -> Observed:
    """A stack that has this DeepSpeed, and whatever else is given."""
    versions = {"deepspeed": version, "torch": "2.0", **more}
    name = "-".join(f"{package}-{one}" for package, one in versions.items())
    return observed(name, versions, *outcomes)


def trains(name: str = "late", variants: Sequence[Options] = STAGES) -> Outcome:
    return outcome(name, Verdict.TRAINS, variants)


def no_update(variants: Sequence[Options], *, also: bool = False) -> list[Outcome]:
    """Of the block, model by model, as the names differ."""
    found: list[Outcome] = []
    for model in ("tiny_llama", "mlp"):
        some = [one for one in variants if one.model == model]
        parameters = {Verdict.NO_UPDATE: BLOCK[model], **({Verdict.FROZEN_DRIFT: HEAD[model]} if also else {})}
        if some:
            found.append(outcome("late", Verdict.NO_UPDATE, some, parameters))
    return found


# -- any world ---------------------------------------------------------------------------------------------------------

_VERSIONS: Final = {
    "deepspeed": ("0.9.1", "0.9.1.post1", "0.10.0", "0.14.4"),
    "torch": ("2.0.1+cpu", "2.1.0", "2.10.0"),
    "axolotl": (None, "0.6.0", "0.12.1"),
}


@st.composite
def _worlds(draw: st.DrawFn) -> list[Observed]:
    """Some stacks, and outcomes painted on boxes of versions and sets of variants, one over the other."""
    places = draw(st.lists(st.tuples(*map(st.sampled_from, _VERSIONS.values())), min_size=1, max_size=14, unique=True))
    painted: dict[tuple[int, Options], Any] = {}
    for _ in range(draw(st.integers(0, 4))):
        box = [draw(st.sets(st.sampled_from(some), min_size=1)) for some in _VERSIONS.values()]
        variants = draw(st.sets(st.sampled_from(STAGES), min_size=1))
        kind = draw(st.sampled_from(("block", "drift", "head", "raises", "hang", "crash", "not run")))
        message = draw(st.sampled_from(("", "short", "list index 1 out of range", "list index 12 out of range")))
        for number, place in enumerate(places):
            if all(one in some for one, some in zip(place, box, strict=True)):
                painted.update({(number, options): (kind, message) for options in variants})
    found = []
    for number, place in enumerate(places):
        versions = {package: one for package, one in zip(_VERSIONS, place, strict=True) if one}
        outcomes = [_painted(painted.get((number, options)), options) for options in STAGES]
        found.append(observed(f"stack-{number}", versions, *outcomes))
    return found


def _painted(paint: tuple[str, str] | None, options: Options) -> Outcome:
    some = [options]
    if paint is None:
        return trains(variants=some)
    kind, message = paint
    model = options.model
    made: dict[str, Callable[[], Outcome]] = {
        "block": lambda: no_update(some)[0],
        "drift": lambda: no_update(some, also=True)[0],
        "head": lambda: outcome("late", Verdict.NO_UPDATE, some, {Verdict.NO_UPDATE: NAMES[model][:2]}),
        "raises": lambda: raises("late", some, message),
        "hang": lambda: outcome("late", Verdict.HANG, some, failure=("backward", "hang", message)),
        "crash": lambda: outcome("late", Verdict.CRASH, some, failure=("step", "SIGSEGV", message)),
        "not run": lambda: outcome("late", Verdict.NOT_RUN, some, failure=("start", "NotRun", message)),
    }
    return made[kind]()


@settings(max_examples=60, deadline=None)
@given(world=_worlds())
def test_in_any_world_the_entries_say_what_was_observed_and_do_not_overlap(
    tmp_path_factory: pytest.TempPathFactory, world: list[Observed]
) -> None:
    folder = tmp_path_factory.mktemp("world") / "expected"
    update = updated(folder, world)
    assert update.conflicts == []
    entries = _entries(folder)
    releases = {
        package: [one.partition("+")[0] for one in sorted(filter(None, some), key=Version)]
        for package, some in _VERSIONS.items()
    }
    assert list(entry_faults(entries, CASES, releases)) == []
    known = {model: {*names} for model, names in NAMES.items()}
    for stack in world:
        for record in stack.records():
            applying = [one for one in entries if one.applies(record)]
            if record.verdict is Verdict.TRAINS:
                assert applying == []
                continue
            (entry,) = applying
            assert differences(record, entry) == []
            faulty = {one.name for one in record.parameters}
            patterns = [*entry.parameters, *(pattern for some in entry.also.values() for pattern in some)]
            seen = {name for one in world for it in one.records() for name in (p.name for p in it.parameters)}
            assert {*select(sorted(known[record.options["model"]] & seen), patterns)} == faulty


# -- ranges ------------------------------------------------------------------------------------------------------------


def test_a_range_begins_at_the_first_that_has_it_and_ends_before_the_first_that_has_not(tmp_path: Path) -> None:
    """Open where nothing was seen beyond; what was seen is kept beside it."""
    stage_3 = [one for one in STAGES if one.stage == 3]
    rest = [one for one in STAGES if one.stage != 3]
    world = [
        ds("0.9.1", raises("late", STAGES, "list index out of range")),
        ds("0.10.0", raises("late", STAGES, "list index out of range")),
        ds("0.12.6", *no_update(stage_3), trains(variants=rest)),
        ds("0.14.4", *no_update(stage_3), trains(variants=rest)),
        ds("0.16.0", trains()),
        ds("0.19.8", *no_update(stage_3), raises("late", rest, "list index out of range")),
    ]
    folder = tmp_path / "expected"
    updated(folder, world)
    assert (
        (folder / "test_expect_update.toml").read_text(encoding="utf-8")
        == """\
# What the cases of harness/cases/test_expect_update.py do, where it is not TRAINS, as it was observed.
# The keys are explained in harness/cell/outcome/_expect.py.

[[expect]]
case = "late"
verdict = "RAISES"
versions = {deepspeed = "<0.12.6"}
seen = {stacks = 2, deepspeed = "0.9.1 to 0.10.0"}
moment = "engine"
type = "IndexError"
message = "^list index out of range"
note = "measured on 2 gloo ranks"

[[expect]]
case = "late"
verdict = "RAISES"
where = {stage = [0, 1, 2]}
versions = {deepspeed = ">=0.19.8"}
seen = {stacks = 1, deepspeed = "0.19.8"}
moment = "engine"
type = "IndexError"
message = "^list index out of range"
note = "measured on 2 gloo ranks"

[[expect]]
case = "late"
verdict = "NO_UPDATE"
where = {stage = 3}
versions = {deepspeed = ">=0.12.6,<0.16.0"}
seen = {stacks = 2, deepspeed = "0.12.6 to 0.14.4"}
parameters = ["layers.2.*", "model.layers.2.*"]
note = "measured on 2 gloo ranks"

[[expect]]
case = "late"
verdict = "NO_UPDATE"
where = {stage = 3}
versions = {deepspeed = ">=0.19.8"}
seen = {stacks = 1, deepspeed = "0.19.8"}
parameters = ["layers.2.*", "model.layers.2.*"]
note = "measured on 2 gloo ranks"
"""
    )


@pytest.mark.parametrize(
    ("versions", "ranges"),
    [
        # Both explain it: the first in the order of packages.
        ([("0.9", "2.0"), ("0.10", "2.1")], {"deepspeed": ">=0.10"}),
        # One explains it alone.
        ([("0.9", "2.0"), ("0.10", "2.0"), ("0.9", "2.1"), ("0.10", "2.1")], {"torch": ">=2.1"}),
        # One explains more than the other, and is split first.
        (
            [("0.9", "2.0"), ("0.10", "2.0"), ("0.11", "2.0"), ("0.11", "2.1"), ("0.12", "2.1")],
            {"torch": ">=2.1"},
        ),
    ],
)
def test_the_package_that_tells_most_is_named(
    tmp_path: Path, versions: list[tuple[str, str]], ranges: dict[str, str]
) -> None:
    raising = {"2.1"}
    world = [
        ds(deepspeed, raises("late", STAGES, "m") if torch in raising else trains(), torch=torch)
        for deepspeed, torch in versions
    ]
    updated(tmp_path / "expected", world)
    assert [one["versions"] for one in tables(tmp_path / "expected")] == [ranges]


def test_the_split_that_tells_most_comes_first() -> None:
    """Versions 0 to 3 of the first package, two outcomes each; the second package is the same everywhere."""
    rest = (0,) * (len(PACKAGES) - 1)
    outcomes = {0: (0, 0), 1: (0, 1), 2: (1, 1), 3: (1, 0)}
    found = splits([((version, *rest), label) for version, labels in outcomes.items() for label in labels])
    # What is left unsaid, in bits: 2 * 0 + 6 * 0.92, 4 * 0.81 + 4 * 0.81, 6 * 1 + 2 * 1.
    assert [(one.package, one.at, round(-one.gain, 2)) for one in found] == [(0, 1, 5.51), (0, 2, 6.49), (0, 3, 8.0)]


def test_a_fault_of_two_packages_together_is_one_box(tmp_path: Path) -> None:
    world = [
        ds(deepspeed, raises("late", STAGES, "m") if (deepspeed, torch) == ("0.10", "2.1") else trains(), torch=torch)
        for deepspeed in ("0.9", "0.10")
        for torch in ("2.0", "2.1")
    ]
    updated(tmp_path / "expected", world)
    (entry,) = tables(tmp_path / "expected")
    assert entry["versions"] == {"deepspeed": ">=0.10", "torch": ">=2.1"}
    assert entry["seen"] == {"stacks": 1, "deepspeed": "0.10", "torch": "2.1"}


def test_a_fault_that_neither_package_hints_at_alone_is_found(tmp_path: Path) -> None:
    """Old with old and new with new raise: no first split tells anything."""
    world = [
        ds(
            deepspeed,
            raises("late", STAGES, "m") if (deepspeed == "0.9") is (torch == "2.0") else trains(),
            torch=torch,
        )
        for deepspeed in ("0.9", "0.10")
        for torch in ("2.0", "2.1")
    ]
    updated(tmp_path / "expected", world)
    assert [one["versions"] for one in tables(tmp_path / "expected")] == [
        {"deepspeed": "<0.10", "torch": "<2.1"},
        {"deepspeed": ">=0.10", "torch": ">=2.1"},
    ]


def test_the_fewest_entries_are_looked_for(tmp_path: Path) -> None:
    """Old with new and new with old raise: the split that tells most at first would take three entries."""
    faulty = [("0.1", "2.2"), ("0.3", "2.1"), ("0.4", "2.1")]
    world = [
        *(ds(one, raises("late", STAGES, "m"), torch=torch) for one, torch in faulty),
        *(ds(one, trains(), torch=torch) for one, torch in (("0.1", "2.1"), ("0.4", "2.3"), ("0.3", "2.2"))),
    ]
    updated(tmp_path / "expected", world)
    assert [one["versions"] for one in tables(tmp_path / "expected")] == [
        {"deepspeed": "<0.3", "torch": ">=2.2"},
        {"deepspeed": ">=0.3", "torch": "<2.2"},
    ]


@pytest.mark.parametrize(
    ("faulty", "ranges"),
    [
        # Of DeepSpeed and torch together.
        ({("0.2", "2.1")}, [{"deepspeed": ">=0.2", "torch": ">=2.1"}]),
        # That would take two entries.
        ({("0.1", "2.0"), ("0.2", "2.1")}, [{"accelerate": ">=1.0"}]),
    ],
)
def test_another_package_is_named_where_that_saves_an_entry(
    tmp_path: Path, faulty: set[tuple[str, str]], ranges: list[dict[str, str]]
) -> None:
    """accelerate is new wherever something raises."""
    world = [
        ds(one, raises("late", STAGES, "m"), torch=torch, accelerate="1.0")
        if (one, torch) in faulty
        else ds(one, trains(), torch=torch, accelerate="0.9")
        for one in ("0.1", "0.2")
        for torch in ("2.0", "2.1")
    ]
    updated(tmp_path / "expected", world)
    assert [one["versions"] for one in tables(tmp_path / "expected")] == ranges


def test_what_explains_other_variants_is_taken_where_two_packages_would_do(tmp_path: Path) -> None:
    """So they share an entry: stage 3 was measured on two stacks alone."""
    rest = [one for one in STAGES if one.stage != 3]
    world = [
        ds("0.1", raises("late", STAGES, "m"), torch="2.0"),
        ds("0.2", raises("late", rest, "m"), torch="2.0"),
        ds("0.1", trains(variants=rest), torch="2.1"),
        ds("0.2", trains(), torch="2.1"),
    ]
    updated(tmp_path / "expected", world)
    (entry,) = tables(tmp_path / "expected")
    assert (entry["versions"], "where" in entry) == ({"torch": "<2.1"}, False)


def test_absence_is_told_from_any_version(tmp_path: Path) -> None:
    not_run = outcome(
        "late", Verdict.NOT_RUN, STAGES, failure=("start", "NotRun", "axolotl cannot be imported: not installed")
    )
    world = [
        ds("0.9", not_run),
        ds("0.10", not_run),
        ds("0.10", raises("late", STAGES, "m"), axolotl="0.6.0"),
        ds("0.9", raises("late", STAGES, "m"), axolotl="0.12.1"),
    ]
    updated(tmp_path / "expected", world)
    assert tables(tmp_path / "expected") == [
        {
            "case": "late",
            "verdict": "NOT_RUN",
            "versions": {"axolotl": "absent"},
            "seen": {"stacks": 2},
            "message": "^axolotl cannot be imported: not installed",
        },
        {
            "case": "late",
            "verdict": "RAISES",
            "versions": {"axolotl": ">=0"},
            "seen": {"stacks": 2, "axolotl": "0.6.0 to 0.12.1"},
            "moment": "engine",
            "type": "IndexError",
            "message": "^m",
        },
    ]


def test_whether_a_case_can_run_at_all_is_asked_first(tmp_path: Path) -> None:
    """Though torch would explain it as well."""
    needing = dataclasses.replace(CASES[0], needs=("axolotl",))
    lacking = outcome("late", Verdict.NOT_RUN, STAGES, failure=("start", "NotRun", "axolotl cannot be imported: not"))
    world = [
        ds("0.9", lacking, torch="2.0"),
        ds("0.9", trains(), torch="2.1", axolotl="0.6.0"),
        ds("0.9", raises("late", STAGES, "m"), torch="2.2", axolotl="0.6.0"),
    ]
    updated(tmp_path / "expected", world, cases=[needing])
    assert [one["versions"] for one in tables(tmp_path / "expected")] == [
        {"torch": ">=2.2", "axolotl": ">=0"},
        {"axolotl": "absent"},
    ]


def test_builds_of_torch_and_patches_of_python_decide_nothing(tmp_path: Path) -> None:
    """So what differs between them alone is a conflict."""
    world = [
        observed("here", {"torch": "2.0+cpu", "python": "3.11.7"}, trains()),
        observed("there", {"torch": "2.0+cu121", "python": "3.11.9"}, raises("late", STAGES, "m")),
        observed("newer", {"torch": "2.0", "python": "3.12.1"}, raises("other", STAGES[:4], "m"), trains()),
        observed("older", {"torch": "2.0", "python": "3.10.13"}, trains("other", STAGES[:4]), trains()),
    ]
    update = updated(tmp_path / "expected", world)
    assert {(one.case, tuple(one.found.values())) for one in update.conflicts} == {("late", (("here",), ("there",)))}
    (entry,) = tables(tmp_path / "expected")
    assert (entry["case"], entry["versions"], entry["seen"]["python"]) == ("other", {"python": ">=3.12"}, "3.12")


# -- settings ----------------------------------------------------------------------------------------------------------


def test_variants_that_are_no_product_take_several_entries(tmp_path: Path) -> None:
    some = [one for one in STAGES if one.stage == 3 or (one.model, one.stage) == ("mlp", 1)]
    updated(tmp_path / "expected", [ds("0.9", *no_update(some), trains(variants=[s for s in STAGES if s not in some]))])
    assert [(one["where"], one["parameters"]) for one in tables(tmp_path / "expected")] == [
        ({"model": "mlp", "stage": 1}, ["layers.2.*"]),
        ({"stage": 3}, ["layers.2.*", "model.layers.2.*"]),
    ]


def test_settings_hold_for_no_variant_that_was_not_measured(tmp_path: Path) -> None:
    """Stage 3 of one model came into the catalogue since."""
    measured = [one for one in STAGES if one.stage < 3 or one.model == "mlp"]
    updated(tmp_path / "expected", [ds("0.9", raises("late", measured, "m"))])
    assert [one["where"] for one in tables(tmp_path / "expected")] == [
        {"stage": [0, 1, 2]},
        {"model": "mlp", "stage": 3},
    ]


@given(st.sets(st.sampled_from(STAGES)))
def test_settings_cover_each_chosen_variant_once_and_no_other(chosen: set[Options]) -> None:
    found = covers(chosen, STAGES)
    covered = [
        one
        for where, _ in found
        for one in STAGES
        if all(getattr(one, axis) in values for axis, values in where.items())
    ]
    assert sorted(covered, key=lambda one: one.id) == sorted(chosen, key=lambda one: one.id)


def test_settings_say_no_more_than_they_must() -> None:
    """Below stage 3 there is no zero.Init, so a stage says it all."""
    every = list(grid(["tiny_llama", "mlp"], [0, 1, 2, 3]))
    low = [one for one in every if one.stage < 2]
    assert covers(low, every) == [({"stage": (0, 1)}, low)]
    # Rather one setting with three values than two with one each.
    high = [Options(stage=stage, accumulation=2, clipping=1.0) for stage in (1, 2, 3)]
    low = [Options(stage=0), Options(stage=0, accumulation=2), Options(stage=0, clipping=1.0)]
    assert covers(high, [*low, *high]) == [({"stage": (1, 2, 3)}, high)]
    zero_init = [one for one in every if one.init == "zero_init"]
    assert covers(zero_init, every) == [({"init": ("zero_init",)}, zero_init)]


def test_variants_of_one_model_that_differ_in_parameters_take_an_entry_each(tmp_path: Path) -> None:
    def of(stage: int, names: Sequence[str]) -> Outcome:
        return outcome("late", Verdict.NO_UPDATE, [STAGES[stage]], {Verdict.NO_UPDATE: names})

    rest = [*STAGES[:1], *STAGES[3:]]
    updated(
        tmp_path / "expected",
        [ds("0.9", of(1, BLOCK["tiny_llama"]), of(2, HEAD["tiny_llama"]), trains(variants=rest))],
    )
    assert [(one["where"], one["parameters"]) for one in tables(tmp_path / "expected")] == [
        ({"model": "tiny_llama", "stage": 1}, ["model.layers.2.*"]),
        ({"model": "tiny_llama", "stage": 2}, ["lm_head.weight"]),
    ]


def test_cases_that_do_the_same_share_an_entry(tmp_path: Path) -> None:
    world = [
        ds("0.9", raises("late", STAGES, "mess"), raises("other", STAGES[:4], "mess")),
        ds("0.10", trains(), raises("other", STAGES[:4], "mess", "KeyError")),
    ]
    updated(tmp_path / "expected", world)
    assert [(one["case"], one["type"]) for one in tables(tmp_path / "expected")] == [
        (["late", "other"], "IndexError"),
        ("other", "KeyError"),
    ]


# -- failures and parameters -------------------------------------------------------------------------------------------


def test_each_verdict_says_what_is_compared(tmp_path: Path) -> None:
    kinds = {
        0: outcome("late", Verdict.HANG, STAGES[:1], failure=("backward", "hang", "rank 0 at 'backward'")),
        1: outcome("late", Verdict.CRASH, STAGES[1:2], failure=("step", "SIGSEGV", "rank 1 died")),
        2: raises("late", STAGES[2:3], ""),
        3: outcome(
            "late",
            Verdict.NO_UPDATE,
            STAGES[3:4],
            {Verdict.NO_UPDATE: BLOCK["tiny_llama"], Verdict.FROZEN_DRIFT: HEAD["tiny_llama"]},
        ),
    }
    updated(tmp_path / "expected", [ds("0.9", *kinds.values(), trains(variants=STAGES[4:]))])
    told = {one["where"]["stage"]: one for one in tables(tmp_path / "expected")}
    kept = ("moment", "type", "message", "parameters", "also")
    assert {stage: {key: one[key] for key in kept if key in one} for stage, one in told.items()} == {
        0: {"moment": "backward"},
        1: {"moment": "step"},
        2: {"moment": "engine", "type": "IndexError", "message": "^$"},
        3: {"parameters": ["model.layers.2.*"], "also": {"FROZEN_DRIFT": ["lm_head.weight"]}},
    }


def test_a_message_that_carries_a_number_splits_no_range(tmp_path: Path) -> None:
    world = [
        ds("0.9", raises("late", STAGES, "The size of tensor a (480) must match")),
        ds("0.10", raises("late", STAGES, "The size of tensor a (512) must match")),
        ds("0.11", raises("late", STAGES, "The shape of tensor a (512) must match")),
    ]
    updated(tmp_path / "expected", [*world[:2]])
    assert [(one.get("versions"), one["message"]) for one in tables(tmp_path / "expected")] == [
        (None, r"^The size of tensor a \(")
    ]
    updated(tmp_path / "expected", world)
    assert [one.get("versions") for one in tables(tmp_path / "expected")] == [
        {"deepspeed": "<0.11"},
        {"deepspeed": ">=0.11"},
    ]


@pytest.mark.parametrize(
    ("messages", "pattern"),
    [
        (["torch.cat(): expected [a] {b}"], r"^torch\.cat\(\): expected \[a\] \{b\}"),
        ([""], "^$"),
        (["same", "same"], "^same"),
        (["no module named 'a'", "no module named 'b'"], "^no module named '"),
        # At the end of a word, where there is one.
        (["word " * 30], "^" + "word " * 15 + "word"),
        (["x" * 200], "^" + "x" * 80),
    ],
)
def test_a_pattern_is_the_beginning_that_messages_share(messages: list[str], pattern: str) -> None:
    assert pattern_of(messages) == pattern


LLAMA: Final = [
    "lm_head.weight",
    "model.embed_tokens.weight",
    *(f"model.layers.{n}.{part}" for n in range(4) for part in ("attn.k.weight", "attn.q.weight", "norm.weight")),
    "model.norm.weight",
]


@pytest.mark.parametrize(
    ("wanted", "patterns"),
    [
        (["lm_head.weight"], ["lm_head.weight"]),
        ([one for one in LLAMA if ".2." in one], ["model.layers.2.*"]),
        ([one for one in LLAMA if ".2." in one or ".0." in one], ["model.layers.[02].*"]),
        ([one for one in LLAMA if "layers" in one], ["model.layers.*"]),
        ([one for one in LLAMA if "layers" in one and ".3." not in one], ["model.layers.[0-2].*"]),
        ([one for one in LLAMA if "attn" in one], ["model.layers.[0-3].attn.*"]),
        (
            [one for one in LLAMA if ".2." not in one],
            ["lm_head.weight", "model.embed_tokens.weight", "model.layers.[013].*", "model.norm.weight"],
        ),
        ([one for one in LLAMA if one.endswith("q.weight")], ["model.layers.[0-3].attn.q.weight"]),
        ([one for one in LLAMA if one.startswith("model")], ["model.*"]),
    ],
)
def test_few_patterns_select_the_faulty_parameters_alone(wanted: list[str], patterns: list[str]) -> None:
    assert list(patterns_for(wanted, LLAMA)) == patterns
    assert select(LLAMA, patterns) == wanted


def test_names_that_look_like_patterns_are_told_in_full() -> None:
    assert patterns_for(["a[0]"], ["a[0]", "a0"]) == ("a[0]",)


@given(st.sets(st.sampled_from(LLAMA), min_size=1), st.sets(st.sampled_from(LLAMA)))
def test_patterns_select_what_they_are_made_from(wanted: set[str], more: set[str]) -> None:
    known = sorted(wanted | more)
    assert {*select(known, patterns_for(wanted, known))} == wanted


def test_a_name_that_is_faulty_in_one_model_alone_keeps_models_apart(tmp_path: Path) -> None:
    """Models that share names: one entry's patterns would select them in both."""
    tied, llama = Options(model="tied_llama"), Options(model="tiny_llama")

    shared = declared("shared", [tied, llama])

    def of(*tied_names: str) -> Observed:
        return ds(
            "0.9",
            outcome("shared", Verdict.NO_GRAD, [tied], {Verdict.NO_GRAD: tied_names}),
            outcome("shared", Verdict.NO_GRAD, [llama], {Verdict.NO_GRAD: ["a.w", "b.w"]}),
        )

    wrong = outcome("shared", Verdict.WRONG_GRAD, [tied], {Verdict.WRONG_GRAD: ["b.w"]})
    later = ds("0.10", raises("shared", [llama], "m"), wrong)
    updated(tmp_path / "apart", [of("a.w"), later], cases=[shared])
    no_grad = [one for one in tables(tmp_path / "apart") if one["verdict"] == "NO_GRAD"]
    assert [(one["where"], one["parameters"]) for one in no_grad] == [
        ({"model": "tied_llama"}, ["a.w"]),
        ({"model": "tiny_llama"}, ["a.w", "b.w"]),
    ]
    updated(tmp_path / "together", [of("a.w", "b.w"), later], cases=[shared])
    assert ["where" in one for one in tables(tmp_path / "together") if one["verdict"] == "NO_GRAD"] == [False]


# -- what people wrote -------------------------------------------------------------------------------------------------

BEFORE: Final = """\
# My header,
# of two lines.

[[expect]]
case = "late"
verdict = "NO_UPDATE"
where = {stage = [2, 3]}
versions = {deepspeed = "==0.10"}
parameters = ["model.layers.2.*", "layers.2.*"]
note = "measured on the stack latest, 2 gloo ranks; it is the 'hook' of \\"stage3.py\\""
refs = ["owner/repo#1"]

[[expect]]
case = "late"
verdict = "NO_UPDATE"
where = {stage = 1}
note = "of another variant"
refs = ["owner/repo#2"]

[[expect]]
case = "late"
verdict = "RAISES"
moment = "engine"
type = "KeyError"
note = "of another exception"
"""


def test_notes_references_and_header_are_kept(tmp_path: Path) -> None:
    stage_3 = [one for one in STAGES if one.stage == 3]
    rest = [one for one in STAGES if one.stage != 3]
    world = [
        ds("0.9", *no_update(stage_3, also=True), raises("late", rest, "m")),
        ds("0.10", *no_update(stage_3), raises("late", rest, "m")),
    ]
    updated(tmp_path / "expected", world, BEFORE)
    text = (tmp_path / "expected" / "mine.toml").read_text(encoding="utf-8")
    assert text.startswith("# My header,\n# of two lines.\n\n[[expect]]\n")
    assert {*(one.name for one in (tmp_path / "expected").iterdir())} == {"mine.toml"}
    hook = "measured on 2 gloo ranks; it is the 'hook' of \"stage3.py\""
    assert [(str(one.verdict), dict(one.versions), one.note, one.refs) for one in _entries(tmp_path / "expected")] == [
        ("RAISES", {}, "measured on 2 gloo ranks", ()),
        # Nothing was written of its versions, so what was written of its stage counts.
        ("NO_UPDATE", {"deepspeed": "<0.10"}, hook, ("owner/repo#1",)),
        ("NO_UPDATE", {"deepspeed": ">=0.10"}, hook, ("owner/repo#1",)),
    ]


def test_a_note_stays_with_the_versions_that_it_is_about(tmp_path: Path) -> None:
    before = "\n".join(
        f'[[expect]]\ncase = "late"\nverdict = "NO_UPDATE"\nversions = {{deepspeed = "{one}"}}\nnote = "of {one}"\n'
        for one in ("==0.9", "==0.10")
    )
    world = [ds("0.9", *no_update(STAGES, also=True)), ds("0.10", *no_update(STAGES))]
    updated(tmp_path / "expected", world, before)
    assert [one.note.partition("; ")[2] for one in _entries(tmp_path / "expected")] == ["of ==0.9", "of ==0.10"]


def test_what_was_not_observed_is_left_as_it_is(tmp_path: Path) -> None:
    """Other devices, other numbers of ranks, cases without a measurement, cases that are kept elsewhere."""
    kept = """\
[[expect]]
case = "late"
verdict = "NO_GRAD"
device = "cuda"
note = "on a GPU"

[[expect]]
case = "late"
verdict = "NO_UPDATE"
device = "cpu"
world = 4
note = "on four"

[[expect]]
case = "other"
verdict = "CRASH"
note = "not measured here"

[[expect]]
case = "of_somebody_else"
verdict = "HANG"
note = "elsewhere"
"""
    update = updated(tmp_path / "expected", [ds("0.9", raises("late", STAGES, "m"))], kept)
    found = {one.note: one for one in _entries(tmp_path / "expected")}
    assert [*found] == ["on a GPU", "on four", "measured on 2 gloo ranks", "not measured here", "elsewhere"]
    assert update.entries == 5
    made = found["measured on 2 gloo ranks"]
    assert (made.verdict, made.device, made.world) == (Verdict.RAISES, "cpu", 2)


def test_what_people_wrote_of_what_is_not_observed_so_is_named(tmp_path: Path) -> None:
    """Of an entry that no other takes the place of, of one whose range holds nothing beside one that does."""
    before = "\n".join(
        f'[[expect]]\ncase = ["late", "other"]\nverdict = "{verdict}"\n{more}'
        for verdict, more in [
            ("NO_UPDATE", 'versions = {deepspeed = "<1"}\nnote = "goes over"\n'),
            ("NO_UPDATE", 'versions = {deepspeed = ">2,<1"}\nnote = "of an empty range"\n'),
            ("HANG", 'note = "measured on 2 gloo ranks"\n'),
            ("CRASH", 'note = "measured on 2 gloo ranks"\nrefs = ["owner/repo#1"]\n'),
            ("NO_GRAD", 'note = "measured on 1 gloo rank; it is the hook"\n'),
            ("SAVE_LOSS", 'note = "measured on my desk"\n'),
        ]
    )
    update = updated(tmp_path / "expected", [ds("0.9", *no_update(STAGES))], before)
    assert [(one.source, one.case, one.verdict) for one in update.removed] == [
        ("mine.toml:7", "late", Verdict.NO_UPDATE),
        ("mine.toml:18", "late", Verdict.CRASH),
        ("mine.toml:24", "late", Verdict.NO_GRAD),
        ("mine.toml:29", "late", Verdict.SAVE_LOSS),
    ]
    notes = [one.note for one in _entries(tmp_path / "expected") if one.case == "late"]
    assert notes == ["measured on 2 gloo ranks; goes over"]


def test_a_note_of_people_that_begins_as_ours_is_kept(tmp_path: Path) -> None:
    before = '[[expect]]\ncase = "late"\nverdict = "NO_UPDATE"\nnote = "measured on my desk"\n'
    updated(tmp_path / "expected", [ds("0.9", *no_update(STAGES))], before)
    (entry,) = _entries(tmp_path / "expected")
    assert entry.note == "measured on 2 gloo ranks; measured on my desk"


def test_devices_are_told_apart_where_there_are_two(tmp_path: Path) -> None:
    versions = {"deepspeed": "0.9", "torch": "2.0"}
    world = [
        observed("on-cpu", versions, raises("late", STAGES, "m")),
        observed("on-cuda", versions, *no_update(STAGES), device="cuda"),
    ]
    updated(tmp_path / "expected", world)
    assert [(one.device, one.verdict, one.note) for one in _entries(tmp_path / "expected")] == [
        ("cpu", Verdict.RAISES, "measured on 2 gloo ranks"),
        ("cuda", Verdict.NO_UPDATE, "measured on 2 nccl ranks"),
    ]


# -- conflicts, and what is left out -----------------------------------------------------------------------------------


def test_stacks_of_the_same_versions_that_differ_are_told_and_decide_nothing(tmp_path: Path) -> None:
    """What no versions explain bends no range."""
    twin = observed("twin", {"deepspeed": "0.10", "torch": "2.0"}, raises("late", STAGES, "once"))
    world = [ds("0.9", *no_update(STAGES)), ds("0.10", *no_update(STAGES)), twin, ds("0.11", *no_update(STAGES))]
    update = updated(tmp_path / "expected", world)
    (entry,) = tables(tmp_path / "expected")
    assert (entry["verdict"], entry["seen"]) == ("NO_UPDATE", {"stacks": 2})
    assert {one.options for one in update.conflicts} == {*STAGES}
    assert update.conflicts[0].found == {
        "NO_UPDATE of model.layers.2.mlp.weight, model.layers.2.norm": ("deepspeed-0.10-torch-2.0",),
        "RAISES at 'engine': IndexError: once": ("twin",),
    }


def test_the_same_verdict_with_other_parameters_is_a_conflict_too(tmp_path: Path) -> None:
    twin = observed("twin", {"deepspeed": "0.10", "torch": "2.0"}, *no_update(STAGES, also=True))
    assert len(updated(tmp_path / "expected", [ds("0.10", *no_update(STAGES)), twin]).conflicts) == len(STAGES)


# -- the command -------------------------------------------------------------------------------------------------------


REAL: Final = next(one for one in shipped() if one.name == "tied_head_by_its_own_name")


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    """Of two stacks, of which one raises."""
    folder = tmp_path / "matrix"
    locks = make_matrix(folder)
    write(folder, "older", locks["older"], raises(REAL.name, REAL.variants, "list index out of range"))
    write(folder, "newer", locks["newer"], outcome(REAL.name, Verdict.TRAINS, REAL.variants))
    return folder


def write(folder: Path, stack: str, lock: str, *outcomes: Any, **more: Any) -> None:
    versions: Mapping[str, str] = {"deepspeed": "0.1" if stack == "older" else "0.2", "torch": "2.0"}
    observed(stack, versions, *outcomes, lock=lock, **more).write(folder / "observed" / f"{stack}.jsonl")


def said(capsys: pytest.CaptureFixture[str], status: Exit, *arguments: str | Path) -> list[str]:
    """What the command says, which must leave with this status; on standard error where it refuses."""
    assert main([str(one) for one in arguments]) == status
    out, err = capsys.readouterr()
    if status is Exit.USAGE:
        assert out == ""
        return err.removeprefix("thawcheck: ").splitlines()
    assert err == ""
    return out.splitlines()


def test_differences_are_told_by_case_setting_and_stack(capsys: pytest.CaptureFixture[str], matrix: Path) -> None:
    assert said(capsys, Exit.DIFFERS, "expect", "--matrix", matrix) == [
        f"{REAL.name}: expected TRAINS (default), found RAISES: list index out of range",
        "  all variants; on older",
        "14 verdicts on 2 stacks, 7 differ from what is expected",
    ]
    assert said(capsys, Exit.OK, "expect", "--matrix", matrix, "--update") == [
        f"wrote {matrix}/expected/core.toml",
        "entries that rest on one stack: older (1)",
        f"{matrix}/expected: 1 entry for 14 verdicts on 2 stacks",
    ]
    assert said(capsys, Exit.OK, "expect", "--matrix", matrix) == [
        "14 verdicts on 2 stacks, 0 differ from what is expected"
    ]
    some = [one for one in REAL.variants if one.stage in (1, 2)]
    rest = [one for one in REAL.variants if one.stage not in (1, 2)]
    kept = raises(REAL.name, rest, "list index out of range")
    write(matrix, "older", "", outcome(REAL.name, Verdict.TRAINS, some), kept)
    assert said(capsys, Exit.DIFFERS, "expect", "--matrix", matrix)[:2] == [
        f"{REAL.name}: expected RAISES (core.toml:4), found TRAINS",
        "  stage 1 or 2; on older",
    ]


def test_an_update_can_be_seen_before_it_is_made_and_changes_nothing_twice(
    capsys: pytest.CaptureFixture[str], matrix: Path
) -> None:
    lines = said(capsys, Exit.OK, "expect", "--matrix", matrix, "--update", "--dry-run")
    assert lines[:3] == [
        f"--- {matrix}/expected/core.toml",
        f"+++ {matrix}/expected/core.toml (new)",
        "@@ -0,0 +1,12 @@",
    ]
    assert '+versions = {deepspeed = "<0.2"}' in lines
    assert list((matrix / "expected").iterdir()) == []
    said(capsys, Exit.OK, "expect", "--matrix", matrix, "--update")
    path = matrix / "expected" / "core.toml"
    assert [line.removeprefix("+") for line in lines[3:-2]] == path.read_text(encoding="utf-8").splitlines()
    assert list((matrix / "expected").iterdir()) == [path]
    assert said(capsys, Exit.OK, "expect", "--matrix", matrix, "--update")[-1] == (
        f"{matrix}/expected: 1 entry for 14 verdicts on 2 stacks; no file changes"
    )


def test_comments_between_entries_are_told_before_they_go(capsys: pytest.CaptureFixture[str], matrix: Path) -> None:
    mine = matrix / "expected" / "mine.toml"
    entry = f'[[expect]]\ncase = "{REAL.name}"\nverdict = "HANG"\nnote = "n"\n'
    mine.write_text(f"# A header.\n\n# Of two parts.\n\n{entry}\n# Lost.\n{entry}", encoding="utf-8")
    lines = said(capsys, Exit.OK, "expect", "--matrix", matrix, "--update")
    assert f"{mine}:10: comments between entries are not kept; what is said in a note is" in lines
    assert len([one for one in lines if "are not kept" in one]) == 1
    assert mine.read_text(encoding="utf-8").startswith("# A header.\n\n# Of two parts.\n\n[[expect]]\n")
    lines = said(capsys, Exit.OK, "expect", "--matrix", matrix, "--update")
    assert not [one for one in lines if "are not kept" in one]


def test_a_conflict_is_told_with_the_way_to_measure_again(capsys: pytest.CaptureFixture[str], matrix: Path) -> None:
    one = REAL.variants[:1]
    versions = {"deepspeed": "0.1", "torch": "2.0"}
    observed("again", versions, outcome(REAL.name, Verdict.TRAINS, one)).write(matrix / "observed" / "again.jsonl")
    lines = said(capsys, Exit.DIFFERS, "expect", "--matrix", matrix, "--update")
    assert lines[1:5] == [
        f"{REAL.name}, stage 0: stacks of the same versions differ, no entry explains it:",
        "  again: TRAINS",
        "  older: RAISES at 'engine': IndexError: list index out of range",
        "  measure again: thawcheck sweep --again again older",
    ]
    assert said(capsys, Exit.DIFFERS, "expect", "--matrix", matrix)[-1].endswith(" 1 differ from what is expected")


def test_an_entry_of_people_that_goes_is_told_with_its_words(capsys: pytest.CaptureFixture[str], matrix: Path) -> None:
    mine = matrix / "expected" / "mine.toml"
    mine.write_text(
        f'\n[[expect]]\ncase = "{REAL.name}"\nverdict = "HANG"\nnote = "by hand"\nrefs = ["owner/repo#1"]\n',
        encoding="utf-8",
    )
    told = f"{mine}:2: {REAL.name}: HANG is not kept, nothing observed is so; it said: by hand owner/repo#1"
    for arguments in (["--dry-run"], []):
        assert told in said(capsys, Exit.OK, "expect", "--matrix", matrix, "--update", *arguments)
    assert told not in said(capsys, Exit.OK, "expect", "--matrix", matrix, "--update")


def test_what_says_nothing_is_told(capsys: pytest.CaptureFixture[str], matrix: Path) -> None:
    write(matrix, "none", "", unsolvable="torch==9 is not there")
    write(matrix, "renamed", "", raises("of_old", REAL.variants, "m"))
    assert said(capsys, Exit.DIFFERS, "expect", "--matrix", matrix)[2:] == [
        "without a solution, so without verdicts: none",
        "left out, since no case or variant is called so: of_old on renamed",
        "14 verdicts on 3 stacks, 7 differ from what is expected",
    ]


def test_faults_of_all_files_are_told_at_once_and_nothing_is_written(
    capsys: pytest.CaptureFixture[str], matrix: Path
) -> None:
    older, newer = matrix / "observed" / "older.jsonl", matrix / "observed" / "newer.jsonl"
    whole = older.read_text(encoding="utf-8")
    older.write_text(whole[:-30], encoding="utf-8")
    newer.write_text(newer.read_text(encoding="utf-8").replace('"observed":1', '"observed":7'), encoding="utf-8")
    mine = matrix / "expected" / "mine.toml"
    text = f'[[expect]]\ncase = "{REAL.name}"\nverdict = "RAISE"\nversions = {{deepseed = ">=0"}}\nnote = "n"\n'
    mine.write_text(text, encoding="utf-8")
    for arguments in (["--update"], []):
        lines = said(capsys, Exit.USAGE, "expect", "--matrix", matrix, *arguments)
        assert lines[0] == "nothing was compared or written:"
        assert [line.partition(": ")[0] for line in lines[1:]] == [f"{mine}:3", f"{mine}:4", f"{newer}:1", f"{older}:2"]
    assert mine.read_text(encoding="utf-8") == text


def test_entries_that_both_apply_are_a_fault_of_the_check(capsys: pytest.CaptureFixture[str], matrix: Path) -> None:
    twice = f'[[expect]]\ncase = "{REAL.name}"\nverdict = "HANG"\nwhere = {{stage = 0}}\nnote = "n"\n' * 2
    (matrix / "expected" / "mine.toml").write_text(twice, encoding="utf-8")
    both = "mine.toml:1 and mine.toml:6 both apply; where and versions must tell them apart"
    assert said(capsys, Exit.USAGE, "expect", "--matrix", matrix) == [f"{REAL.name}[tied_llama-z0]: {both}"]


def test_nothing_observed_and_no_matrix_are_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    make_matrix(tmp_path / "matrix")
    assert said(capsys, Exit.USAGE, "expect", "--matrix", tmp_path / "matrix") == [
        f"nothing was observed yet: {tmp_path}/matrix/observed holds no .jsonl file; thawcheck sweep makes them"
    ]
    assert said(capsys, Exit.USAGE, "expect", "--matrix", tmp_path) == [
        f"there is no {tmp_path}/stacks.toml; run at the root of a checkout, or give --matrix DIR"
    ]
    assert said(capsys, Exit.USAGE, "expect", "--dry-run") == ["--dry-run shows what --update would change; give both"]


def test_entries_that_do_not_say_what_was_observed_are_not_written(
    capsys: pytest.CaptureFixture[str], matrix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guard against a fault of ours."""
    monkeypatch.setattr("harness.control.expect._update.shrink", lambda *given: ([], shrink(*given)[1]))
    assert main(["expect", "--matrix", str(matrix), "--update"]) == Exit.FAILED
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[:2] == [
        "thawcheck: nothing is written: a fault of ours, the entries made do not say what was observed:",
        f"older: {REAL.name}[tied_llama-z0]: expected TRAINS (default), found RAISES: list index out of range",
    ]
    assert list((matrix / "expected").iterdir()) == []


def test_every_expectation_of_this_repository_reads(tmp_path: Path) -> None:
    """And is written as it reads."""
    folder = Path(__file__).parents[1] / "matrix" / "expected"
    entries = _entries(folder)
    copy = tmp_path / "expected"
    copy.mkdir()
    for path in folder.glob("*.toml"):
        (copy / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    update = make_update(copy, {}, entries, shipped())
    update.write()
    bare = [{**vars(one), "source": ""} for one in Expectations(entries).entries]
    found = [{**vars(one), "source": ""} for one in _entries(copy)]
    assert sorted(map(repr, found)) == sorted(map(repr, bare))
