"""The pytest plugin, in test suites of another project: real ranks, or stand-ins where only processes matter."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import pytest
from rank_world import PATIENCE, World, wait_for

from harness.cell.outcome._results import read_results
from harness.cell.ranks._scratch import sweep
from harness.cell.ranks._stack import installed_versions

#: A case that trains, one whose block never moves, and one that raises; on the MLP.
CASES: Final = """\
from harness.cell import Options, case, freeze_except, unfreeze

STAGE_0 = Options(model="mlp", stage=0)
STAGE_3 = Options(model="mlp", stage=3)


@case(kind="CONTROL", variants=[STAGE_0, STAGE_3])
def freezes_first(run):
    model = run.model()
    freeze_except(model, run.part("block"))
    engine = run.engine(model)
    run.train(engine, intent=run.part("block"))


@case(kind="C", variants=[STAGE_3], recipe="unfreeze", moment="late", happens="Silent.", instead="be early.")
def unfreezes_late(run):
    model = run.model()
    freeze_except(model, run.part("head"))
    engine = run.engine(model)
    unfreeze(model, run.part("block"))
    print(f"rank {run.rank} was here")
    run.train(engine, intent=run.part("block"))


@case(kind="A", variants=[STAGE_0])
def raises(run):
    model = run.model()
    raise KeyError("no such layer")


def test_plain():
    pass
"""

#: On stand-ins: cases that answer at once, and one that nobody sees the end of.
QUICK: Final = """\
import json, os, time
from harness.cell import Options, case

STAGES = [Options(model="mlp", stage=stage) for stage in (0, 1, 2)]


class Answer(Exception):
    pass


@case(kind="CONTROL", variants=STAGES, recipe="ask", moment="at once")
def answers(run):
    raise Answer(json.dumps({"port": os.environ["MASTER_PORT"], "zygote": os.getppid()}))


@case(kind="L", variants=STAGES[:1])
def sleeps(run):
    while True:
        time.sleep(0.1)
        run.reach("asleep")


@case(kind="CONTROL", variants=STAGES[:1])
def answers_after(run):
    raise Answer("{}")


def test_plain():
    pass
"""

#: What plain suites must not be made to load.
HEAVY: Final = ("torch", "deepspeed", "transformers", "accelerate", "numpy", "packaging.tags")

#: For a conftest: say at the end which of HEAVY are loaded.
TELL_LOADED: Final = f"""\
import sys

def pytest_unconfigure(config):
    print("LOADED", sorted({{name.partition(".")[0] for name in sys.modules}} & {set(HEAVY)!r}))
"""


def verdicts(result: pytest.RunResult) -> dict[str, str]:
    """What ``-v`` says of each item, by its name."""
    words = (line.split() for line in result.outlines if "::" in line and line.endswith("%]"))
    return {first.rpartition("::")[2]: verdict for first, verdict, *_ in words}


def properties(report: Path, name: str) -> dict[str, str]:
    """Of one test in a JUnit file."""
    tests = ET.parse(report).iter("testcase")  # noqa: S314  # pytest wrote it
    cases = [one for one in tests if one.get("name") == name]
    assert len(cases) == 1
    return {one.get("name", ""): one.get("value", "") for one in cases[0].iter("property")}


def expect_answers(folder: Path) -> Path:
    """An expectations folder in which the quick cases do as they should."""
    folder.mkdir()
    entries = (
        f'[[expect]]\ncase = "{case}"\nverdict = "RAISES"\nmoment = "start"\ntype = "Answer"\nnote = "made up"\n'
        for case in ("answers", "answers_after")
    )
    (folder / "quick.toml").write_text("\n".join(entries), encoding="utf-8")
    return folder


def start(pytester: pytest.Pytester, *options: str, start_new_session: bool = False) -> subprocess.Popen[str]:
    """pytest as a process to do things to, which would take some minutes if left alone."""
    command = [sys.executable, "-m", "pytest", *options]
    return subprocess.Popen(
        command,
        cwd=pytester.path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=start_new_session,
    )


def interrupted(process: subprocess.Popen[str]) -> str:
    """Ctrl-C, and what it says to that."""
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=PATIENCE)
    return said


# -- inert until used ------------------------------------------------------------------------


def test_a_plain_suite_is_left_alone(pytester: pytest.Pytester, quick: World) -> None:
    """Nothing of what cases need is imported, nothing is started, and nothing is said."""
    pytester.makepyfile("def test_plain(): pass")
    pytester.makeconftest(TELL_LOADED)
    result = pytester.runpytest_subprocess("-s", "--results-are-no-option-of-ours=1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result = pytester.runpytest_subprocess("-s")
    result.assert_outcomes(passed=1)
    assert "LOADED []" in result.outlines
    assert not [line for line in result.outlines if "thaw" in line and not line.startswith("plugins:")]
    assert quick.told("zygote") == []
    assert quick.left() == {}


def test_collecting_cases_imports_nothing_of_what_they_need(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_mine=CASES)
    pytester.makeconftest(TELL_LOADED)
    result = pytester.runpytest_subprocess("-s", "-q", "--collect-only", "--thaw-table")
    assert [line for line in result.outlines if "::" in line] == [
        "test_mine.py::freezes_first[mlp-z0]",
        "test_mine.py::freezes_first[mlp-z3-plain-persist_zero]",
        "test_mine.py::unfreezes_late[mlp-z3-plain-persist_zero]",
        "test_mine.py::raises[mlp-z0]",
        "test_mine.py::test_plain",
    ]
    assert "LOADED []" in result.outlines


def test_it_can_be_switched_off(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(CASES)
    result = pytester.runpytest_subprocess("-p", "no:thawcheck", "--strict-markers")
    result.assert_outcomes(passed=1)


def test_versions_are_told_once_there_is_a_case(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(CASES)
    told = f"thawcheck: cpu; python {installed_versions()['python']}, torch {installed_versions()['torch']}, *"
    pytester.runpytest_inprocess("--co").stdout.fnmatch_lines([told])
    pytester.runpytest_inprocess("--co", "-k", "test_plain").stdout.no_fnmatch_line("thawcheck: *")


# -- what pytest can do with cases -----------------------------------------------------------


@pytest.mark.usefixtures("warm")
def test_cases_run_and_report_under_strict_markers_in_random_order(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_mine=CASES)
    options = [
        "--strict-markers",
        "--random-order",
        "--thaw-stack=mine",
        "--junitxml=out.xml",
        "--thaw-results=out.jsonl",
    ]
    result = pytester.runpytest_inprocess("-v", "-rA", "--thaw-table", *options)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert verdicts(result) == {
        "freezes_first[mlp-z0]": "TRAINS",
        "freezes_first[mlp-z3-plain-persist_zero]": "TRAINS",
        "unfreezes_late[mlp-z3-plain-persist_zero]": "NO_UPDATE",
        "raises[mlp-z0]": "RAISES",
        "test_plain": "PASSED",
    }
    result.stdout.fnmatch_lines(
        [
            "DIFFERS: expected TRAINS (default), found NO_UPDATE: 2 of 2 meant to train, layers.2.weight and 1 more: *",
            "layers.2.weight *NO_UPDATE *trains *on *-  *",
            "layers.2.weight: at step 1 expected moved by *; found bit-equal to the start; in no optimizer group*",
        ],
    )
    raised = "all 2 ranks raised on the way to 'loaded': KeyError: 'no such layer'"
    result.stdout.fnmatch_lines(
        [
            f"DIFFERS: expected TRAINS (default), found RAISES: {raised}",
            "*Captured rank 0 call*",
            "Traceback (most recent call last):",
            f'  File "{pytester.path / "test_mine.py"}", line *, in raises',
        ],
    )
    result.stdout.no_fnmatch_line("*_item.py*")
    result.stdout.fnmatch_lines(
        [
            "*= freeze table: stack mine, cpu, 2 ranks =*",
            "    recipe, moment  *  stage 0  *  stage 1  *  stage 2  *  stage 3",
            " 1  freezes first   *  TRAINS   *  -        *  -        *  TRAINS",
            " 2  unfreeze, late  *  -        *  -        *  -        *  NO_UPDATE !",
            " 3  raises          *  RAISES ! *  -        *  -        *  -",
            "2. *: Silent. Instead: be early.",
            "4 variants, 2 as expected, 2 differ (!)",
            "4 results in out.jsonl",
        ],
        consecutive=False,
    )
    records = {one["id"]: one for one in read_results(pytester.path / "out.jsonl")}
    assert len(records) == 4
    late = records["unfreezes_late[mlp-z3-plain-persist_zero]"]
    assert (late["verdict"], late["as_expected"], late["stack"]) == ("NO_UPDATE", False, "mine")
    assert {one["name"] for one in late["parameters"] if one["verdict"] == "NO_UPDATE"} == {
        "layers.2.weight",
        "layers.2.bias",
    }
    told = properties(pytester.path / "out.xml", "unfreezes_late[mlp-z3-plain-persist_zero]")
    assert told["verdict"] == "NO_UPDATE"
    assert told["headline"] == late["headline"]
    assert told.items() >= installed_versions().items()
    assert (told["model"], told["stage"], told["init"]) == ("mlp", "3", "plain")
    assert properties(pytester.path / "out.xml", "freezes_first[mlp-z0]")["verdict"] == "TRAINS"
    assert properties(pytester.path / "out.xml", "test_plain") == {}


@pytest.mark.usefixtures("warm")
def test_items_are_chosen_as_tests_are(pytester: pytest.Pytester) -> None:
    mine = str(pytester.makepyfile(CASES))
    late = "unfreezes_late[mlp-z3-plain-persist_zero]"
    assert list(verdicts(pytester.runpytest_inprocess("-v", f"{mine}::{late}"))) == [late]
    assert list(verdicts(pytester.runpytest_inprocess("-v", f"{mine}::unfreezes_late", "--co"))) == []
    assert list(verdicts(pytester.runpytest_inprocess("-v", "-m", "kind_C"))) == [late]
    assert list(verdicts(pytester.runpytest_inprocess("-v", "-k", "late or test_plain"))) == [late, "test_plain"]
    assert list(verdicts(pytester.runpytest_inprocess("-v", "-m", "not thawcheck"))) == ["test_plain"]
    # Up to the first that differs, though those after it were started ahead.
    assert list(verdicts(pytester.runpytest_inprocess("-v", "-x"))) == [
        "freezes_first[mlp-z0]",
        "freezes_first[mlp-z3-plain-persist_zero]",
        late,
    ]
    assert list(verdicts(pytester.runpytest_inprocess("-v", "--lf"))) == [late]


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("mode", ["prepend", "importlib"])
def test_cases_of_a_package_that_only_pytest_can_import(pytester: pytest.Pytester, mode: str) -> None:
    """Its own folder is not on the path of any rank, nor is it the first that is called ``tests``."""
    folder = pytester.mkpydir("tests")
    (folder / "parts.py").write_text('WHICH = "block"\n', encoding="utf-8")
    text = CASES.replace('run.part("block")', "run.part(WHICH)")
    (folder / "test_mine.py").write_text(f"from .parts import WHICH\n{text}", encoding="utf-8")
    (folder / "test_theirs.py").write_text("from .test_mine import raises\n", encoding="utf-8")
    result = pytester.runpytest_inprocess("-v", f"--import-mode={mode}", "-k", "freezes_first or raises")
    assert verdicts(result) == {
        "freezes_first[mlp-z0]": "TRAINS",
        "freezes_first[mlp-z3-plain-persist_zero]": "TRAINS",
        "raises[mlp-z0]": "RAISES",
    }
    # A case that is imported elsewhere is one of the file that defines it, only.
    result.assert_outcomes(passed=2, failed=1, deselected=2)


def test_two_cases_of_one_name_are_refused(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_one=CASES, test_two=CASES)
    result = pytester.runpytest_inprocess("-q")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    one, two = pytester.path / "test_one.py", pytester.path / "test_two.py"
    advice = "results and expectations know a case by its name, so rename one"
    result.stdout.fnmatch_lines([f"two cases are called freezes_first: in {one} and in {two}; {advice}"])


@pytest.mark.usefixtures("warm")
def test_logs_are_attached_where_they_tell_something(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(CASES)
    result = pytester.runpytest_inprocess("-rA", "-k", "late or (first and z0)")
    result.stdout.fnmatch_lines(
        ["*Captured rank 0 call*", "rank 0 was here", "*Captured rank 1 call*", "rank 1 was here"]
    )
    assert len([line for line in result.outlines if "Captured rank" in line]) == 2
    result = pytester.runpytest_inprocess("-rA", "-k", "first and z0", "--thaw-show-logs")
    assert len([line for line in result.outlines if "Captured rank" in line]) in {0, 2}


def test_that_ranks_are_spawned_is_said_once(pytester: pytest.Pytester, quick: World) -> None:
    """A library starts a thread when imported, after which nothing may be forked."""
    thread = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    quick.plant("transformers/__init__.py", thread)
    pytester.makepyfile(QUICK)
    result = pytester.runpytest_subprocess("-k", "answers and z0", timeout=120)
    said = "ranks are spawned, not forked: the process that would fork has 2 threads"
    result.stdout.fnmatch_lines([f"*PytestWarning: thawcheck: {said}*"])
    result.assert_outcomes(failed=2, warnings=1, deselected=4)
    assert quick.left() == {}


# -- in a plain test -------------------------------------------------------------------------


@pytest.mark.usefixtures("warm")
def test_the_fixture_gives_records(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_mine=CASES,
        test_with_records="""\
        import pytest
        import test_mine
        from harness.cell import MalformedCase

        def test_own(thaw, request):
            record = thaw.run(test_mine.unfreezes_late)
            assert record.verdict == "NO_UPDATE"
            assert [one.name for one in record.worst()] == ["layers.2.weight", "layers.2.bias"]
            # It ran as an item of this session before: what that measured is what one gets.
            item = next(one for one in request.session.items if one.name.startswith("unfreezes_late"))
            assert item.record is record

        def test_shipped(thaw):
            record = thaw.run("freeze_except_before_engine", model="mlp", stage=0)
            assert (record.verdict, record.id) == ("TRAINS", "freeze_except_before_engine[mlp-z0]")
            assert thaw.run("freeze_except_before_engine", model="mlp", stage=0) is record

        def test_faults(thaw):
            with pytest.raises(LookupError, match="did you mean 'freeze_except_before_engine'"):
                thaw.run("freeze_except_before_engin")
            with pytest.raises(MalformedCase, match="no variant has stage=2; there is: mlp-z3-plain-persist_zero"):
                thaw.run(test_mine.unfreezes_late, stage=2)
        """,
    )
    result = pytester.runpytest_inprocess("-v", "-k", "unfreezes_late or own or shipped or faults")
    result.assert_outcomes(passed=3, failed=1, deselected=4)


# -- beside other plugins --------------------------------------------------------------------


def test_xdist_runs_cases_on_workers_and_writes_on_the_controller(pytester: pytest.Pytester, quick: World) -> None:
    pytester.makepyfile(QUICK)
    expected = expect_answers(pytester.path / "expected")
    options = ["--thaw-results=out.jsonl", "--junitxml=out.xml", "--thaw-table", f"--thaw-expected={expected}"]
    result = pytester.runpytest_subprocess("-n", "2", "-k", "answers or plain", *options, timeout=120)
    result.assert_outcomes(passed=5)
    records = read_results(pytester.path / "out.jsonl")
    assert sorted(one["id"] for one in records) == [
        "answers[mlp-z0]",
        "answers[mlp-z1]",
        "answers[mlp-z2]",
        "answers_after[mlp-z0]",
    ]
    told = [json.loads(one["failure"]["message"]) for one in records if one["case"] == "answers"]
    assert len({one["port"] for one in told}) == 3
    assert properties(pytester.path / "out.xml", "answers[mlp-z1]")["verdict"] == "RAISES"
    result.stdout.fnmatch_lines(
        [" 1  ask, at once *RAISES *RAISES *RAISES *-", "4 variants, 4 as expected, 0 differ (!)"]
    )
    assert quick.left() == {}


def test_xdist_workers_have_ranks_of_their_own_at_the_same_time(pytester: pytest.Pytester, quick: World) -> None:
    """Each waits for the other's, so they run at once or not at all."""
    pytester.makepyfile(
        f"""\
        import os, time
        from pathlib import Path
        from harness.cell import Options, case

        HERE = Path({str(pytester.path)!r})

        class Answer(Exception):
            pass

        def meet(run, mine, other):
            (HERE / mine).write_text(os.environ["MASTER_PORT"])
            while not (HERE / other).exists() or not (HERE / other).read_text():
                time.sleep(0.01)
            raise Answer(f"{{mine}} {{os.getppid()}}")

        @case(kind="CONTROL", world=1, variants=[Options(model="mlp", stage=0)])
        def here(run):
            meet(run, "here", "there")

        @case(kind="CONTROL", world=1, variants=[Options(model="mlp", stage=0)])
        def there(run):
            meet(run, "there", "here")
        """
    )
    pytester.runpytest_subprocess("-n", "2", "--thaw-results=out.jsonl", timeout=120)
    told = [one["failure"]["message"].split() for one in read_results(pytester.path / "out.jsonl")]
    assert sorted(name for name, _ in told) == ["here", "there"]
    assert len({zygote for _, zygote in told}) == 2
    assert (pytester.path / "here").read_text() != (pytester.path / "there").read_text()
    assert quick.left() == {}


def test_a_time_out_by_signal_ends_the_ranks_and_the_session_goes_on(pytester: pytest.Pytester, quick: World) -> None:
    pytester.makepyfile(QUICK)
    options = ["--timeout=2", "--timeout-method=signal", "--thaw-results=out.jsonl"]
    result = pytester.runpytest_subprocess("-k", "sleeps or after", *options, timeout=120)
    result.stdout.fnmatch_lines(["*Failed: Timeout (>2.0s) from pytest-timeout*"])
    assert [one["id"] for one in read_results(pytester.path / "out.jsonl")] == ["answers_after[mlp-z0]"]
    result.assert_outcomes(failed=2, deselected=4)
    assert quick.left() == {}


def test_a_time_out_by_thread_leaves_nothing(pytester: pytest.Pytester, quick: World) -> None:
    """It ends pytest on the spot; what was measured before is on disk."""
    pytester.makepyfile(QUICK)
    options = ["--timeout=2", "--timeout-method=thread", "--thaw-results=out.jsonl"]
    result = pytester.runpytest_subprocess("-k", "answers or sleeps", *options, timeout=120)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*+ Timeout +*"])
    assert {one["case"] for one in read_results(pytester.path / "out.jsonl")} == {"answers"}
    assert wait_for(lambda: not quick.strays())
    sweep()  # as the next start does
    assert quick.left() == {}


# -- interrupted, debugged -------------------------------------------------------------------


def test_ctrl_c_leaves_nothing(pytester: pytest.Pytester, quick: World) -> None:
    pytester.makepyfile(QUICK)
    lines = pytester.path / "out.jsonl"
    with start(pytester, "--thaw-results=out.jsonl") as process:
        assert wait_for(lambda: lines.exists() and len(read_results(lines)) == 3)
        said = interrupted(process)
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    assert "KeyboardInterrupt" in said
    assert "3 results in out.jsonl" in said
    assert quick.left() == {}


def test_ctrl_c_while_libraries_are_imported_leaves_nothing(pytester: pytest.Pytester, quick: World) -> None:
    slow = f"import pathlib, time\npathlib.Path({str(pytester.path)!r}, 'on').touch()\ntime.sleep(600)\n"
    quick.plant("transformers/__init__.py", slow)
    pytester.makepyfile(QUICK)
    with start(pytester) as process:
        assert wait_for((pytester.path / "on").exists)
        interrupted(process)
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    assert quick.left() == {}


def test_ctrl_c_reaches_xdist_workers(pytester: pytest.Pytester, quick: World) -> None:
    """As a terminal sends it: to all processes of the group."""
    pytester.makepyfile(QUICK)
    lines = pytester.path / "out.jsonl"
    with start(pytester, "-n", "2", "--thaw-results=out.jsonl", start_new_session=True) as process:
        assert wait_for(lambda: lines.exists() and len(read_results(lines)) >= 3)
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    assert quick.left() == {}


def test_a_debugger_enters_the_case(pytester: pytest.Pytester) -> None:
    """In process, in a world of one, one case after another; with the real libraries."""
    text = CASES.replace(
        '    raise KeyError("no such layer")', '    layer = "unheard of"\n    raise KeyError("no such layer")'
    )
    pytester.makepyfile(test_mine=text.replace("def test_plain():\n    pass", ""), test_plain=AFTER_DEBUGGING)
    options = ["--pdb", "-v", "--thaw-results=out.jsonl", "test_mine.py", "test_plain.py"]
    commands = "p 'in', layer\nc\nq\n"
    # unfreezes_late differs, raises nothing and is entered, too: hence the first c.
    result = pytester.run(sys.executable, "-m", "pytest", *options, stdin=f"c\n{commands}".encode(), timeout=120)
    result.stdout.fnmatch_lines(
        [
            "test_mine.py::freezes_first* TRAINS*",
            "test_mine.py::freezes_first* TRAINS*",
            "test_mine.py::unfreezes_late* NO_UPDATE*",
            "*entering PDB*",
            "test_mine.py::raises* RAISES*",
            "E *KeyError: 'no such layer'",
            "*test_mine.py(*raises()",
            "*('in', 'unheard of')",
            "test_plain.py::test_environment PASSED*",
        ]
    )
    result.stdout.no_fnmatch_line("*_inprocess.py*")
    assert [(one["case"], one["world"], one["launcher"]) for one in read_results(pytester.path / "out.jsonl")] == [
        ("freezes_first", 1, "in process"),
        ("freezes_first", 1, "in process"),
        ("unfreezes_late", 1, "in process"),
        ("raises", 1, "in process"),
    ]


AFTER_DEBUGGING: Final = """\
import os

def test_environment():
    assert not {"RANK", "WORLD_SIZE", "MASTER_PORT", "DS_ACCELERATOR"} & set(os.environ)
"""


def test_folders_of_ranks_are_kept_when_asked_for(pytester: pytest.Pytester, quick: World) -> None:
    """Each stays where the record says, whatever starts next."""
    pytester.makepyfile(QUICK)
    pytester.runpytest_subprocess("-k", "answers_after", "--thaw-keep", "--thaw-results=out.jsonl", timeout=120)
    (record,) = read_results(pytester.path / "out.jsonl")
    (note,) = (one for one in record["notes"] if "kept" in one)
    folder = Path(note.removeprefix("the folder of the ranks is kept: "))
    sweep()
    assert {one.name for one in folder.iterdir()} >= {"rank0.log", "rank1.log"}
    shutil.rmtree(folder)
    assert quick.left() == {}


# -- options ---------------------------------------------------------------------------------


def test_options_come_from_the_ini_file_relative_to_it(pytester: pytest.Pytester) -> None:
    """The command line outranks it, and is relative to where one stands."""
    pytester.makepyfile(CASES)
    expect_answers(pytester.path / "expected")
    pytester.makeini("[pytest]\nthaw_expected = expected\nthaw_jobs = 3\nthaw_world = 4\nthaw_table = true\n")
    pytester.makeconftest(
        """\
        from harness.cell.plug._item import SESSION
        from harness.cell.plug._settings import outputs_from

        def pytest_collection_finish(session):
            settings = session.config.stash[SESSION].settings
            print("GIVEN", settings.expected, settings.jobs, settings.world, outputs_from(session.config).table)
        """
    )
    below = pytester.mkdir("below")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(below)
        result = pytester.runpytest_inprocess("-s", "--co", "--thaw-world=1", str(pytester.path))
    assert f"GIVEN {pytester.path / 'expected'} 3 1 True" in result.outlines
