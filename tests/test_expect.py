"""Expectations: read with every fault at once, looked up, and compared in both directions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import pytest

from harness.cell import CaseRecord, Failure, ParameterVerdict, Verdict
from harness.cell._catalog import shipped
from harness.cell.outcome._expect import (
    DEFAULT,
    Expectation,
    ExpectationError,
    Expectations,
    default_folder,
    differences,
)
from harness.cell.outcome._expect_faults import faults_of
from harness.control._exit import Exit
from harness.control.cli import main

ENTRY: Final = {"case": "late", "verdict": "NO_UPDATE", "note": "measured"}

CASES: Final = """\
from harness.cell import Options, case, freeze_except, unfreeze

STAGE_3 = Options(model="mlp", stage=3)


@case(kind="CONTROL", variants=[STAGE_3])
def trains(run):
    model = run.model()
    freeze_except(model, run.part("block"))
    run.train(run.engine(model), intent=run.part("block"))


@case(kind="C", variants=[STAGE_3])
def late(run):
    model = run.model()
    freeze_except(model, run.part("head"))
    engine = run.engine(model)
    unfreeze(model, run.part("block"))
    run.train(engine, intent=(*run.part("block"), *run.part("head")))


@case(kind="A", variants=[STAGE_3])
def raises(run):
    run.model()
    raise KeyError("no such layer")
"""


def record(verdict: Verdict = Verdict.TRAINS, *worst: str, **more: Any) -> CaseRecord:
    """Of the case ``late``, with three parameters, of which ``worst`` have the verdict."""
    fields: dict[str, Any] = {
        "case": "late",
        "kind": "C",
        "options": {"model": "mlp", "stage": 3, "init": "plain"},
        "id": "late[mlp-z3]",
        "verdict": verdict,
        "headline": "so it was",
        "world": 2,
        "device": "cpu",
        "launcher": "zygote",
        "versions": {"python": "3.11.7", "torch": "2.13.0+cpu", "deepspeed": "0.19.8"},
        "parameters": [parameter(name, verdict if name in worst else Verdict.FROZEN) for name in ("a.0", "a.1", "b.0")],
    }
    return CaseRecord(**{**fields, **more})


def parameter(name: str, verdict: Verdict) -> ParameterVerdict:
    return ParameterVerdict(name, verdict, intended=True, flag=True, local_shape=[0], full_shape=[1], group=None)


def raised(moment: str = "engine", kind: str = "IndexError", message: str = "list index out of range") -> CaseRecord:
    return record(Verdict.RAISES, failure=Failure(moment, kind, message, [0, 1]), parameters=[])


def expected(**entry: Any) -> Expectation:
    return Expectation(**{"verdict": Verdict.NO_UPDATE, "case": "late", "source": "a.toml entry 1", **entry})


def folder_of(path: Path, **files: str) -> Path:
    path.mkdir()
    for name, text in files.items():
        (path / f"{name}.toml").write_text(text, encoding="utf-8")
    return path


# -- as they are written ---------------------------------------------------------------------


def test_the_shipped_ones_are_without_fault_and_of_cases_that_exist() -> None:
    folder = default_folder()
    assert folder is not None
    entries = Expectations.load(folder).entries
    cases = {case.name: case for case in shipped()}
    assert entries
    assert {one.case for one in entries} <= set(cases)
    for one in entries:
        variants = [options.as_dict() for options in cases[one.case].variants]
        meant = [all(variant[axis] in values for axis, values in one.where.items()) for variant in variants]
        assert any(meant), f"{one.source} speaks of no variant of {one.case}"


def test_every_fault_of_every_file_is_told_at_once(tmp_path: Path) -> None:
    folder = folder_of(
        tmp_path / "expected",
        broken='[[expect]\ncase = "late"\n',
        loose='[expect]\ncase = "late"\n',
        misnamed='[[expct]]\ncase = "late"\n',
        several="""\
            [[expect]]
            case = "late"
            verdict = "NO_UPDATES"

            [[expect]]
            case = "late"
            verdict = "TRAINS"
            note = "measured"

            [[expect]]
            verdict = "RAISES"
            wher = {stage = 1}
            versions = {deepspeed = "0.19.8", deepseed = "==0.19.8"}
            note = "measured"
            """,
    )
    (folder / "bytes.toml").write_bytes(b"\xff\xfe")
    (folder / "unrelated.txt").write_text("not TOML [[", encoding="utf-8")
    with pytest.raises(ExpectationError) as error:
        Expectations.load(folder)
    faults = [fault.removeprefix(f"{folder}/") for fault in error.value.faults]
    assert faults[0].startswith("broken.toml: Expected ']]'")
    assert faults[1].startswith("bytes.toml: 'utf-8' codec can't decode byte 0xff")
    assert faults[2:] == [
        "loose.toml:1: entries are [[expect]], with two brackets each",
        "misnamed.toml:1: unknown table 'expct'; entries are [[expect]]",
        f"several.toml:3: verdict 'NO_UPDATES' is not one of {', '.join(v for v in Verdict if v != 'FROZEN')}",
        "several.toml:1: needs a note or refs: where was this measured or reported?",
        "several.toml:12: unknown key 'wher'; did you mean 'where'?",
        "several.toml:10: needs the name of a case, or of several, found None",
        "several.toml:10: RAISES needs the moment",
        "several.toml:10: RAISES needs the type",
        "several.toml:13: versions of 'deepseed' are not recorded; did you mean 'deepspeed'?",
        "several.toml:13: deepspeed = '0.19.8' is no version range, such as '>=0.16,<0.19.3', and not 'absent'",
    ]
    assert str(error.value).splitlines() == list(error.value.faults)


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({"device": "gpu"}, "no device is called 'gpu'; there is: cpu, cuda"),
        ({"world": "2"}, "world must be a positive number of ranks, found '2'"),
        ({"world": 0}, "world must be a positive number of ranks, found 0"),
        ({"where": 3}, "where must be a table of settings, found 3"),
        ({"where": {"stages": 3}}, "'stages' is no setting of a variant; did you mean 'stage'?"),
        ({"where": {"stage": []}}, "where stage: an empty list never applies"),
        ({"where": {"stage": [3, 4]}}, "where stage: ZeRO stages are 0 to 3, found 4"),
        ({"where": {"stage": "3"}}, "where stage: ZeRO stages are 0 to 3, found '3'"),
        ({"where": {"model": "tiny_lama"}}, "where model: no model is called 'tiny_lama'; did you mean 'tiny_llama'"),
        ({"where": {"init": "zero-init"}}, "where init: no init is called 'zero-init'; did you mean 'zero_init'?"),
        ({"case": []}, "needs the name of a case, or of several, found []"),
        ({"case": ["late", ""]}, "needs the name of a case, or of several, found ['late', '']"),
        ({"case": ["late", "late"]}, "a case stands there twice: late, late"),
        ({"versions": "==1"}, "versions must be a table of packages, found '==1'"),
        ({"versions": {"torch": []}}, "torch = [] is no version range"),
        ({"versions": {"python": "absent"}}, "python is never absent"),
        ({"seen": 34}, "seen must be a table of packages, found 34"),
        ({"seen": {"stacks": "34"}}, "seen stacks must be the number of stacks, found '34'"),
        ({"seen": {"stacks": 0}}, "seen stacks must be the number of stacks, found 0"),
        ({"seen": {"deepseed": "0.10.3"}}, "seen: versions of 'deepseed' are not recorded; did you mean 'deepspeed'?"),
        ({"seen": {"torch": ">=2"}}, "seen torch must be one version or two, as in '0.10.3 to 0.14.3', found '>=2'"),
        ({"seen": {"torch": "2.3 to 2.2"}}, "seen torch must be one version or two, as in '0.10.3 to 0.14.3'"),
        (
            {"versions": {"torch": "<2.3"}, "seen": {"torch": "2.2 to 2.3"}},
            "seen torch: 2.3 is not within versions, '<2.3'",
        ),
        ({"versions": {"torch": 2}}, "torch = 2 is no version range"),
        ({"parameters": "a.*"}, "parameters must be a list of texts, found 'a.*'"),
        ({"refs": "owner/repo#1"}, "refs must be a list of texts, found 'owner/repo#1'"),
        ({"moment": "engine"}, "NO_UPDATE comes with no moment; only CRASH, HANG, NOT_RUN, RAISES, UNSOLVABLE do"),
        ({"verdict": "HANG", "parameters": ["a"]}, "HANG is a verdict of no parameter, but parameters are given"),
        ({"verdict": "CRASH", "type": 9}, "type must be a text, found 9"),
        ({"verdict": "RAISES", "moment": "engine", "type": "E", "message": "(["}, "message is no regular expression: "),
        ({"verdict": "FROZEN"}, "verdict 'FROZEN' is not one of "),
        ({"note": ""}, "needs a note or refs"),
    ],
)
def test_what_would_never_apply_or_never_be_compared_is_a_fault(more: dict[str, Any], fault: str) -> None:
    assert faults_of(ENTRY) == []
    assert [one[: len(fault)] for _, one in faults_of({**ENTRY, **more})] == [fault]


def test_an_entry_that_is_no_table_is_a_fault() -> None:
    assert faults_of("late") == [("", "must be a table, found 'late'")]


# -- which one applies -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "applies"),
    [
        ({}, True),
        ({"case": "later"}, False),
        ({"where": {"stage": (2, 3), "model": ("mlp",)}}, True),
        ({"where": {"stage": (2, 3), "model": ("tiny_llama",)}}, False),
        ({"device": "cpu"}, True),
        ({"device": "cuda"}, False),
        ({"world": 2}, True),
        ({"world": 4}, False),
        # A local version, as CPU builds of torch have, is the release all the same.
        ({"versions": {"torch": "==2.13.0", "deepspeed": ">=0.16,<0.20"}}, True),
        ({"versions": {"torch": "==2.13.0", "deepspeed": "<0.19"}}, False),
        ({"versions": {"peft": ">=0"}}, False),
        ({"versions": {"peft": "absent"}}, True),
        ({"versions": {"torch": "absent"}}, False),
        ({"versions": {"python": ">=3.10"}}, True),
    ],
)
def test_an_entry_applies_where_all_it_says_holds(entry: dict[str, Any], *, applies: bool) -> None:
    one = expected(**entry)
    assert Expectations([one]).of(record()) is (one if applies else DEFAULT)


def test_a_pre_release_is_in_the_range_that_it_is_in() -> None:
    one = expected(versions={"deepspeed": ">=0.19"})
    assert Expectations([one]).of(record(versions={"deepspeed": "0.20.0.dev1"})) is one


def test_an_entry_may_be_of_several_cases(tmp_path: Path) -> None:
    """And says what was seen, which is compared with nothing."""
    text = """\
        [[expect]]
        case = ["sooner", "late"]
        verdict = "NO_UPDATE"
        versions = {deepspeed = ">=0.19,<0.20"}
        seen = {stacks = 3, deepspeed = "0.19.0 to 0.19.2"}
        note = "measured"
        """
    expectations = Expectations.load(folder_of(tmp_path / "expected", all=text))
    assert [(one.case, one.source) for one in expectations.entries] == [
        ("sooner", "all.toml:1"),
        ("late", "all.toml:1"),
    ]
    found = expectations.of(record(Verdict.NO_UPDATE, "a.0"))
    assert (found.case, found.seen["stacks"]) == ("late", 3)
    assert differences(record(Verdict.NO_UPDATE, "a.0"), found) == []


def test_two_that_apply_are_an_error() -> None:
    two = [
        expected(where={"stage": (2, 3)}, source="a.toml entry 1"),
        expected(where={"stage": (3,)}, source="b.toml entry 4"),
    ]
    with pytest.raises(ExpectationError) as error:
        Expectations(two).of(record())
    assert error.value.faults == (
        "late[mlp-z3]: a.toml entry 1 and b.toml entry 4 both apply; where and versions must tell them apart",
    )
    assert Expectations(two).of(record(options={"stage": 2})) is two[0]


# -- compared --------------------------------------------------------------------------------


def test_the_expected_verdict_is_no_difference() -> None:
    assert differences(record(), DEFAULT) == []
    assert differences(record(Verdict.NO_UPDATE, "a.0"), expected()) == []
    assert differences(raised(), expected(verdict=Verdict.RAISES, type="IndexError")) == []


@pytest.mark.parametrize(
    ("found", "wanted"),
    [(Verdict.TRAINS, Verdict.NO_UPDATE), (Verdict.NO_UPDATE, Verdict.TRAINS), (Verdict.NOT_RUN, Verdict.TRAINS)],
)
def test_a_fault_that_went_away_differs_as_one_that_came(found: Verdict, wanted: Verdict) -> None:
    assert differences(record(found, "a.0"), expected(verdict=wanted)) == [
        f"expected {wanted} (a.toml entry 1), found {found}: so it was"
    ]


def test_another_exception_differs() -> None:
    def of(**wanted: str) -> list[str]:
        entry = expected(
            verdict=Verdict.RAISES, **{"type": "IndexError", "moment": "engine", "message": "index out"} | wanted
        )
        return differences(raised(), entry)

    assert of() == []
    assert of(type="KeyError") == ["expected type 'KeyError' (a.toml entry 1), found 'IndexError': so it was"]
    assert of(moment="backward") == ["expected moment 'backward' (a.toml entry 1), found 'engine': so it was"]
    assert of(message="^index") == [
        "expected a message like '^index' (a.toml entry 1), found 'list index out of range'"
    ]
    assert len(of(type="KeyError", moment="backward", message="^index")) == 3


@pytest.mark.parametrize("verdict", [Verdict.HANG, Verdict.CRASH])
def test_another_moment_of_a_hang_or_crash_differs(verdict: Verdict) -> None:
    found = record(verdict, failure=Failure("backward", "SIGSEGV", "died by SIGSEGV", [1]), parameters=[])
    assert differences(found, expected(verdict=verdict, moment="backward", type="SIGSEGV")) == []
    assert differences(found, expected(verdict=verdict, moment="step")) == [
        "expected moment 'step' (a.toml entry 1), found 'backward': so it was"
    ]


def test_other_parameters_differ_in_both_directions() -> None:
    def of(*worst: str) -> list[str]:
        return differences(record(Verdict.NO_UPDATE, *worst), expected(parameters=("a.*",)))

    assert of("a.0", "a.1") == []
    start = "expected NO_UPDATE of a.* (a.toml entry 1), found it"
    assert of("a.0") == [f"{start} but not of a.1"]
    assert of("a.0", "a.1", "b.0") == [f"{start} also of b.0"]
    assert of("b.0") == [f"{start} also of b.0 but not of a.0, a.1"]


# -- in a session ----------------------------------------------------------------------------


@pytest.mark.usefixtures("warm")
def test_verdicts_are_held_against_the_folder_that_is_given(pytester: pytest.Pytester) -> None:
    """Real verdicts: as expected, and different in every way that there is."""
    pytester.makepyfile(CASES)
    entries = """\
        [[expect]]
        case = "late"
        verdict = "NO_UPDATE"
        parameters = ["layers.2.*"]
        note = "measured"

        [[expect]]
        case = "raises"
        verdict = "RAISES"
        moment = "loaded"
        type = "KeyError"
        message = "no such"
        note = "measured"
        """
    right = folder_of(pytester.path / "right", all=entries)
    result = pytester.runpytest_inprocess(f"--thaw-expected={right}", "--thaw-table")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["3 variants, 3 as expected, 0 differ (!)"])

    wrong = entries.replace("layers.2.*", "layers.2.weight").replace("KeyError", "ValueError")
    wrong += '[[expect]]\ncase = "trains"\nverdict = "NO_GRAD"\nnote = "once"\n'.replace("\n", "\n        ")
    result = pytester.runpytest_inprocess(f"--thaw-expected={folder_of(pytester.path / 'wrong', all=wrong)}")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    trained = "2 parameters equal the twin's after every step, 10 others are bit-equal"
    raised = "all 2 ranks raised on the way to 'loaded': KeyError: 'no such layer'"
    assert [line for line in result.outlines if line.startswith("DIFFERS: ")] == [
        f"DIFFERS: expected NO_GRAD (all.toml:14), found TRAINS: {trained}",
        "DIFFERS: expected NO_UPDATE of layers.2.weight (all.toml:1), found it also of layers.2.bias",
        f"DIFFERS: expected type 'ValueError' (all.toml:7), found 'KeyError': {raised}",
    ]


def test_faults_end_a_run_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of all variants at once."""
    monkeypatch.setattr(sys, "path", sys.path.copy())
    cases = tmp_path / "expected_cases.py"
    cases.write_text(CASES.replace("variants=[STAGE_3]", "variants=[STAGE_3, Options(stage=0)]"), encoding="utf-8")
    twice = '[[expect]]\ncase = "late"\nverdict = "NO_UPDATE"\nnote = "measured"\n' * 2
    folder = folder_of(tmp_path / "twice", all=twice)
    assert main(["run", f"{cases}::late", "--all-variants", f"--expected={folder}"]) == Exit.USAGE
    both = "all.toml:1 and all.toml:5 both apply; where and versions must tell them apart"
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        f"thawcheck: late[mlp-z3-plain-persist_zero]: {both}",
        f"late[tiny_llama-z0]: {both}",
    ]


def test_faults_end_a_session_before_anything_runs(pytester: pytest.Pytester) -> None:
    """All of them, once, without a traceback; though no case they are about is selected."""
    pytester.makepyfile(CASES)
    twice = '[[expect]]\ncase = "late"\nverdict = "NO_UPDATE"\nnote = "measured"\n' * 2
    result = pytester.runpytest_subprocess(f"--thaw-expected={folder_of(pytester.path / 'twice', all=twice)}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    message = (
        "ERROR: late[mlp-z3-plain-persist_zero]: all.toml:1 and all.toml:5 both apply; "
        "where and versions must tell them apart"
    )
    assert [line for line in result.errlines if line] == [message]
    broken = folder_of(pytester.path / "broken", one="[[", two='[[expect]]\ncase = "late"\n')
    result = pytester.runpytest_subprocess(f"--thaw-expected={broken}", "-k", "trains")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert result.errlines[0].startswith(f"ERROR: {broken / 'one.toml'}: ")
    assert [line for line in result.errlines[1:] if line] == [
        f"{broken}/two.toml:1: verdict None is not one of {', '.join(v for v in Verdict if v != 'FROZEN')}",
        f"{broken}/two.toml:1: needs a note or refs: where was this measured or reported?",
    ]
    # Who runs no case is not concerned.
    result = pytester.runpytest_subprocess(f"--thaw-expected={broken}", "-k", "nothing")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED


# -- faults that hide behind an expected one -------------------------------------------------


def _drifting() -> CaseRecord:
    """What was expected does not train, and beside it a frozen weight drifts."""
    made = record()
    made.verdict = Verdict.NO_UPDATE
    made.parameters = [
        ParameterVerdict("late", Verdict.NO_UPDATE, True, True, [1], [1], None),
        ParameterVerdict("rest", Verdict.FROZEN_DRIFT, False, False, [1], [1], None),
        ParameterVerdict("head", Verdict.TRAINS, True, True, [1], [1], 0),
    ]
    return made


def test_a_lesser_fault_is_no_part_of_an_expected_headline() -> None:
    expected = Expectation(Verdict.NO_UPDATE, parameters=("late",), source="here")

    assert differences(_drifting(), expected) == ["expected FROZEN_DRIFT of no parameter (here), found it also of rest"]


def test_a_lesser_fault_is_expected_by_name() -> None:
    also = {Verdict.FROZEN_DRIFT: ("rest",)}
    expected = Expectation(Verdict.NO_UPDATE, parameters=("late",), also=also, source="here")

    assert differences(_drifting(), expected) == []
    gone = _drifting()
    gone.parameters[1] = ParameterVerdict("rest", Verdict.FROZEN, False, False, [1], [1], None)
    assert differences(gone, expected) == ["expected FROZEN_DRIFT of rest (here), found it but not of rest"]


def test_every_shipped_entry_is_about_something() -> None:
    """A case that exists, variants that it has, and parameters that these have."""
    cases = {case.name: case for case in shipped()}
    for entry in Expectations.load(Path(__file__).parents[1] / "matrix/expected").entries:
        case = cases[entry.case]
        for axis, values in entry.where.items():
            had = {getattr(options, axis) for options in case.variants}
            assert set(values) <= had, f"{entry.source}: {axis}"
