"""With each difference: the nearest stacks that agree with either side, and the command that shows it again."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from rank_world import World
from small_matrix import observed, outcome

from harness.cell import CaseRecord, Options, Verdict, case
from harness.cell._catalog import find
from harness.cell.outcome import _nearby
from harness.cell.outcome._expect import DEFAULT, Expectation
from harness.cell.outcome._nearby import Nearby, apart
from harness.cell.outcome._observed import Observed, read_observed
from harness.cell.outcome._record import Failure, ParameterVerdict
from harness.cell.plug._reproduce import reproduce
from harness.cell.plug._session import Settings
from harness.control._exit import Exit
from harness.control.cli import main

if TYPE_CHECKING:
    from harness.cell._run import Run

HERE: Final = {
    "python": "3.11.9",
    "torch": "2.13.0+cu128",
    "deepspeed": "0.19.8",
    "transformers": "5.16.1",
    "axolotl": "0.19.0",
}


def there(stack: str, verdict: Verdict | None, *, case: str = "late", **versions: str | None) -> Observed:
    """A stack with other versions, and what ``late`` did there."""
    changed = {**HERE, "torch": "2.13.0+cpu", "python": "3.11.7", **versions}
    kept = {name: version for name, version in changed.items() if version is not None}
    return observed(stack, *([outcome(case, verdict, 1)] if verdict else []), versions=kept)


def record(verdict: Verdict = Verdict.TRAINS, *worst: str, failure: Failure | None = None) -> CaseRecord:
    options = Options(model="mlp", stage=1)
    return CaseRecord(
        case="late",
        kind="C",
        options=options.as_dict(),
        id=f"late[{options.id}]",
        verdict=verdict,
        headline="so it was",
        world=2,
        device="cpu",
        launcher="zygote",
        failure=failure,
        parameters=[ParameterVerdict(name, verdict, True, True, [0], [8]) for name in worst],
        versions=HERE,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "observed"


def lines(
    folder: Path, *stacks: Observed, found: CaseRecord | None = None, expected: Expectation = DEFAULT
) -> list[str]:
    for one in stacks:
        one.write(folder / f"{one.stack}.jsonl")
    return Nearby(folder).lines(found or record(Verdict.NO_UPDATE), expected)


# -- which is nearest ------------------------------------------------------------------------


def test_the_nearest_of_either_side_is_named_with_what_it_has_apart(folder: Path) -> None:
    assert lines(
        folder,
        there("ds-0.16.9", Verdict.TRAINS, deepspeed="0.16.9"),
        there("ds-0.19.7", Verdict.TRAINS, deepspeed="0.19.7"),
        there("old", Verdict.NO_UPDATE, deepspeed="0.16.9", transformers="4.57.6", axolotl=None),
        there("other", Verdict.NO_GRAD),
    ) == [
        "nearest stack that is TRAINS: ds-0.19.7 (deepspeed 0.19.7, here 0.19.8)",
        (
            "nearest stack that is NO_UPDATE: old (deepspeed 0.16.9, here 0.19.8; transformers 4.57.6, here 5.16.1; "
            "axolotl absent, here 0.19.0)"
        ),
    ]


def test_fewer_packages_count_before_nearer_versions(folder: Path) -> None:
    near = [
        there("far", Verdict.TRAINS, deepspeed="0.10.3"),
        there("two", Verdict.TRAINS, deepspeed="0.19.7", transformers="5.16.0"),
        *(there(f"ds-0.1{minor}", Verdict.HANG, deepspeed=f"0.1{minor}.0") for minor in range(1, 9)),
    ]
    assert lines(folder, *near)[0] == "nearest stack that is TRAINS: far (deepspeed 0.10.3, here 0.19.8)"
    # Steps are counted in versions that were observed: 0.9 to 0.10 is one, and not before it as text.
    more = [there("older", Verdict.TRAINS, deepspeed="0.9.5"), there("newer", Verdict.TRAINS, deepspeed="0.20.0")]
    assert lines(folder, *more)[0] == "nearest stack that is TRAINS: newer (deepspeed 0.20.0, here 0.19.8)"


def test_builds_and_patches_of_python_are_no_difference(folder: Path) -> None:
    assert lines(folder, there("latest", Verdict.TRAINS), there("later", Verdict.NO_UPDATE, python="3.12.1")) == [
        "nearest stack that is TRAINS: latest (the same versions)",
        "nearest stack that is NO_UPDATE: later (python 3.12.1, here 3.11.9)",
    ]
    assert apart({"torch": "2.13.0+cpu", "a": "1"}, {"torch": "2.13.1", "b": "1"}) == ["torch", "a", "b"]


def test_other_cases_variants_devices_and_worlds_say_nothing(folder: Path) -> None:
    on_gpu = observed("gpu", outcome("late", Verdict.TRAINS, 1), device="cuda")
    at_three = observed("stage-3", outcome("late", Verdict.TRAINS, 3))
    alone = observed("alone", outcome("late", Verdict.TRAINS, 1))
    plain = json.loads((list(alone.lines()))[1]) | {"world": 1}
    folder.mkdir()
    text = "\n".join([next(iter(alone.lines())), json.dumps(plain)])
    (folder / "alone.jsonl").write_text(text, encoding="utf-8")
    unsolvable = observed("none", unsolvable="no wheel")
    found = lines(folder, on_gpu, at_three, unsolvable, there("early", Verdict.TRAINS, case="early"))
    assert found == ["no observed stack is TRAINS", "no observed stack is NO_UPDATE"]


def test_the_same_verdict_is_told_apart_by_what_failed_where(folder: Path) -> None:
    def raises(stack: str, moment: str, kind: str, version: str) -> Observed:
        failure = Failure(moment, kind, "no such index")
        made = outcome("late", Verdict.RAISES, 1, failure=failure)
        return observed(stack, made, versions={**HERE, "deepspeed": version})

    stacks = [
        raises("a", "engine", "IndexError", "0.19.7"),
        raises("b", "engine", "KeyError", "0.19.5"),
        raises("c", "backward", "IndexError", "0.19.6"),
    ]
    found = record(Verdict.RAISES, failure=Failure("engine", "KeyError", "other"))
    expected = Expectation(Verdict.RAISES, case="late", moment="engine", type="IndexError", message="no such")
    assert lines(folder, *stacks, found=found, expected=expected) == [
        "nearest stack that is RAISES IndexError at engine: a (deepspeed 0.19.7, here 0.19.8)",
        "nearest stack that is RAISES KeyError at engine: b (deepspeed 0.19.5, here 0.19.8)",
    ]


def test_the_same_verdict_is_told_apart_by_its_parameters(folder: Path) -> None:
    def late(stack: str, *parameters: str) -> Observed:
        return observed(stack, outcome("late", Verdict.NO_UPDATE, 1, parameters=parameters), versions=HERE)

    expected = Expectation(Verdict.NO_UPDATE, case="late", parameters=("a.*",))
    found = record(Verdict.NO_UPDATE, "b.0", "a.0")
    assert lines(folder, late("one", "a.0"), late("two", "a.0", "b.0"), found=found, expected=expected) == [
        "nearest stack that is NO_UPDATE of a.*: one (the same versions)",
        "nearest stack that is NO_UPDATE of a.0, b.0: two (the same versions)",
    ]


# -- nothing is lost over it -----------------------------------------------------------------


def test_broken_files_become_one_line(folder: Path) -> None:
    folder.mkdir()
    (folder / "broken.jsonl").write_text("{", encoding="utf-8")
    (folder / "words.jsonl").write_text("words\n", encoding="utf-8")
    strange = record(Verdict.NO_UPDATE)
    strange.versions = {**HERE, "transformers": "of my own"}
    assert lines(folder, there("ds-0.19.7", Verdict.TRAINS, deepspeed="0.19.7"), found=strange) == [
        (
            "nearest stack that is TRAINS: ds-0.19.7 (deepspeed 0.19.7, here 0.19.8; "
            "transformers 5.16.1, here of my own)"
        ),
        "no observed stack is NO_UPDATE",
        (
            f"left out, since they cannot be read: broken.jsonl, words.jsonl ({folder}/broken.jsonl:1: is no JSON, "
            "perhaps cut off by a kill; measure the stack again: thawcheck sweep broken --again)"
        ),
    ]


def test_a_folder_without_stacks(folder: Path) -> None:
    assert lines(folder) == [f"no stack is observed in {folder}"]
    assert Nearby(None).lines(record(), DEFAULT) == []


def test_nothing_is_read_before_something_differs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there("latest", Verdict.TRAINS).write(folder / "latest.jsonl")
    read: list[Path] = []

    def reading(path: Path) -> Observed:
        read.append(path)
        return read_observed(path)

    monkeypatch.setattr(_nearby, "read_observed", reading)
    nearby = Nearby(folder)
    assert read == []
    for _ in range(3):
        nearby.lines(record(Verdict.NO_UPDATE), DEFAULT)
    assert read == [folder / "latest.jsonl"]


# -- the command -----------------------------------------------------------------------------


def test_the_command_runs_the_variant_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    late = find("unfreeze_more_after_engine")
    z3 = next(one for one in late.variants if one.init == "zero_init" and one.persistence == "default")
    z1 = Options(model="mlp", stage=1)
    assert reproduce(Settings(stack="ds-0.19.8"), late, z1) == (
        'tox run -e ds-0.19.8 -- -- -k "unfreeze_more_after_engine[mlp-z1]"'
    )
    assert reproduce(Settings(stack="ds-0.19.8", world=4, device="cuda"), late, z1) == (
        'tox run -e ds-0.19.8 -- --world 4 --device cuda -- -k "unfreeze_more_after_engine[mlp-z1]"'
    )
    assert reproduce(Settings(), late, z1) == "thawcheck run unfreeze_more_after_engine --model mlp --stage 1"
    assert reproduce(Settings(world=3), late, z3) == (
        "thawcheck run unfreeze_more_after_engine --model tiny_llama --stage 3 --init zero_init "
        "--persistence default --precision fp32 --world 3"
    )
    variants = [Options(model="mlp", stage=stage, accumulation=number) for number in (1, 2) for stage in (0, 1)]

    @case(kind="C", variants=variants)
    def mine(run: Run) -> None:
        """Of one's own."""

    # A case of one's own is in no environment of ours, and not all that a variant sets is an option.
    assert reproduce(Settings(stack="ds-0.19.8"), mine, mine.variants[0]) == (
        "thawcheck run test_nearby.py::mine --model mlp --stage 0"
    )
    assert reproduce(Settings(), mine, mine.variants[3]) == (
        'thawcheck suite test_nearby.py -- -k "mine[mlp-z1-accum2]"'
    )


def test_the_expression_selects_one_variant() -> None:
    """Also where another case, or another variant, has its name within its own."""
    command = [sys.executable, "-m", "harness.control.cli", "suite", "--", "--collect-only", "-q"]
    ran = subprocess.run(
        [*command, "-k", "unfreeze_more_after_engine[mlp-z1]"], capture_output=True, text=True, check=True
    )
    assert re.findall(r"^\S+::(\S+)$", ran.stdout, re.MULTILINE) == ["unfreeze_more_after_engine[mlp-z1]"]


# -- shown -----------------------------------------------------------------------------------

#: On stand-ins: it raises, and is expected to train.
CASES: Final = """\
from harness.cell import Options, case

@case(kind="C", variants=[Options(model="mlp", stage=1)])
def late(run):
    raise KeyError("no")
"""


def test_a_difference_is_shown_with_its_neighbours(
    pytester: pytest.Pytester, quick: World, capsys: pytest.CaptureFixture[str]
) -> None:
    # By the world's own patch: another would be undone after it, and bring back a path with its stand-ins.
    quick.patch.setattr(sys, "path", sys.path.copy())
    pytester.makepyfile(late_cases=CASES)
    folder = pytester.path / "seen"
    observed("ds-0.19.0", outcome("late", Verdict.TRAINS, 1)).write(folder / "ds-0.19.0.jsonl")
    result = pytester.runpytest_subprocess("late_cases.py", "--thaw-observed=seen", "--thaw-world=1", "--thaw-jobs=1")
    start = result.outlines.index(next(line for line in result.outlines if line.startswith("DIFFERS: ")))
    assert result.outlines[start + 1 : start + 4] == [
        "  no observed stack is TRAINS",
        "  no observed stack is RAISES",
        "  reproduce: thawcheck run late_cases.py::late --model mlp --stage 1 --world 1",
    ]
    # By the folder of a checkout, with the world that the stack was seen with.
    folder.parent.joinpath("matrix").mkdir()
    folder.rename(folder.parent / "matrix" / "observed")
    assert main(["run", "late_cases.py::late"]) == Exit.DIFFERS
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3].startswith("  nearest stack that is TRAINS: ds-0.19.0 (deepspeed 0.19.0, here ")
    assert lines[-2:] == [
        "  no observed stack is RAISES",
        "  reproduce: thawcheck run late_cases.py::late --model mlp --stage 1",
    ]
    assert main(["run", "late_cases.py::late", "--observed", "nowhere"]) == Exit.DIFFERS
    assert "  no stack is observed in nowhere" in capsys.readouterr().out.splitlines()
    assert main(["suite", "late_cases.py", "--observed", "nowhere", "--", "-p", "no:cacheprovider"]) == Exit.DIFFERS
    assert "  no stack is observed in nowhere" in capsys.readouterr().out.splitlines()
