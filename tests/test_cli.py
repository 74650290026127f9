"""The command ``thawcheck``: what each sub-command prints, and the status it ends with."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import pytest
from rank_world import PATIENCE, World, wait_for

from harness import __version__
from harness.cell._catalog import shipped
from harness.cell.outcome._results import read_results
from harness.control._exit import EXITS, Exit
from harness.control.cli import main

OBSERVED: Final = Path(__file__).parents[1] / "matrix" / "observed" / "latest.jsonl"

#: On stand-ins, which can do all but train.
QUICK: Final = """\
import time
from pathlib import Path
from harness.cell import Options, case

STAGES = [Options(model="mlp", stage=stage) for stage in (0, 1)]


class Answer(Exception):
    pass


@case(kind="CONTROL", variants=STAGES, recipe="ask", moment="at once", happens="It answers.")
def answers(run):
    print(f"rank {run.rank} answers")
    raise Answer(f"at stage {run.options.stage}")


@case(kind="L", variants=STAGES[:1])
def sleeps(run):
    Path("asleep").touch()
    while True:
        time.sleep(0.1)
        run.reach("asleep")
"""

EXPECTED: Final = """\
[[expect]]
case = "answers"
verdict = "RAISES"
moment = "start"
type = "Answer"
note = "made up"
"""

BROKEN: Final = """\
from harness.cell import case

@case(kind="Z", world=0, stages=())
def broken(run):
    pass
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of files of cases, to stand in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(QUICK, encoding="utf-8")
    (tmp_path / "broken.py").write_text(BROKEN, encoding="utf-8")
    (tmp_path / "expected").mkdir()
    (tmp_path / "expected" / "mine.toml").write_text(EXPECTED, encoding="utf-8")
    return tmp_path


def command() -> list[str]:
    return [sys.executable, "-m", "harness.control.cli"]


def thawcheck(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    return subprocess.run([*command(), *arguments], capture_output=True, text=True, check=False, timeout=120)


def status_of(arguments: Sequence[str]) -> int:
    """That of the command in this process, also where argparse ends it."""
    try:
        return main(arguments)
    except SystemExit as left:
        return int(left.code or 0)


# -- help ------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [[], ["run"], ["suite"], ["cases"]])
def test_help_is_there_and_says_what_the_status_means(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of([*words, "--help"]) == Exit.OK
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 80
    if words != ["cases"]:
        table = said.partition("exit status:\n")[2]
        assert dict(re.findall(r"^  (\d+) +(.*)$", table, re.MULTILINE)) == {
            str(code.value): meaning for code, meaning in EXITS.items()
        }


@pytest.mark.parametrize(
    ("command", "statuses"),
    [
        ("sweep", ["0", "2", "3", "130"]),
        ("discover", ["0", "2", "3", "130"]),
        ("table", ["0", "1", "2", "3", "130"]),
        ("report", ["0", "2", "3", "130"]),
        ("diff", ["0", "1", "2", "3", "130"]),
    ],
)
def test_help_of_what_judges_nothing_speaks_of_no_verdict(
    command: str, statuses: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of([command, "--help"]) == Exit.OK
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 80
    table = said.partition("exit status:\n")[2]
    assert re.findall(r"^  (\d+) +", table, re.MULTILINE) == statuses
    assert "verdict" not in table


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["--version"]) == Exit.OK
    assert capsys.readouterr().out == f"thawcheck {__version__}\n"


def test_no_command_or_an_unknown_one_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of([]) == Exit.USAGE
    assert status_of(["rum"]) == Exit.USAGE
    assert "invalid choice: 'rum'" in capsys.readouterr().err
    assert status_of(["cases", "--", "-k", "late"]) == Exit.USAGE
    assert "only `suite` passes arguments on to pytest, found '-k late' after `--`" in capsys.readouterr().err


# -- cases -----------------------------------------------------------------------------------


def test_cases_lists_every_case_on_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["cases"]) == Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [case.name for case in shipped()]
    late = next(case for case in shipped() if case.name == "unfreeze_more_after_engine")
    (line,) = (line for line in lines if line.startswith(f"{late.name} "))
    assert line.split(maxsplit=4)[1:] == ["C", str(len(late.variants)), "variants", late.summary]


def test_cases_of_one_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["cases", "--kind", "C"]) == Exit.OK
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names == [case.name for case in shipped() if case.kind == "C"]
    assert "unfreeze_more_after_engine" in names


def test_cases_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["cases", "--json", "--kind", "C"]) == Exit.OK
    told = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert list(told) == [case.name for case in shipped() if case.kind == "C"]
    late = told["unfreeze_more_after_engine"]
    assert late["refs"] == ["deepspeedai/DeepSpeed#5639", "deepspeedai/DeepSpeed#1767"]
    assert "mlp-z3-plain-persist_zero" in late["variants"]
    assert late["recipe"] == "freeze part, engine, unfreeze more"
    assert {"why", "instead", "cure"} <= late.keys()


def test_an_unknown_kind_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["cases", "--kind", "c"]) == Exit.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    kinds = "A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P, Q, CONTROL"
    assert err == f"thawcheck: --kind: no kind is called 'c'; there is: {kinds}\n"


@pytest.mark.parametrize("words", [["cases"], ["report", str(OBSERVED)]])
def test_a_reader_that_has_seen_enough_is_no_error(words: list[str]) -> None:
    """``thawcheck cases | head -0``"""
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    pipe = subprocess.PIPE
    with subprocess.Popen([*command(), *words], stdout=pipe, stderr=pipe, env=environ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == Exit.OK


# -- run -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("warm")
def test_run_shows_every_parameter(capsys: pytest.CaptureFixture[str]) -> None:
    """Real ranks: one verdict as expected, one where two ranks make it."""
    assert status_of(["run", "freeze_except_before_engine", "--model", "mlp"]) == Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "freeze_except_before_engine[mlp-z3-plain-persist_zero], world 2, cpu: TRAINS"
    assert [line.split()[:3] for line in lines if line.startswith("layers.2.")] == [
        ["layers.2.weight", "TRAINS", "trains"],
        ["layers.2.bias", "TRAINS", "trains"],
    ]
    assert len([line for line in lines if " FROZEN " in line]) == 10
    assert lines[-1] == "as expected (default)"

    assert status_of(["run", "unfreeze_more_after_engine", "--model", "mlp", "--stage", "2", "--world", "1"]) == Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "unfreeze_more_after_engine[mlp-z2], world 1, cpu: NO_UPDATE"
    assert lines[-2].startswith("as expected (core.toml:")
    assert lines[-1].startswith("instead: unfreeze before the engine is created")


@pytest.mark.usefixtures("warm")
def test_run_gives_strict_json_a_line_per_variant(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--model", "mlp", "--init", "plain", "--persistence", "zero", "--all-variants", "--json"]
    assert status_of(["run", "freeze_except_before_engine", *arguments]) == Exit.OK
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["options"]["stage"], one["verdict"]) for one in records] == [(stage, "TRAINS") for stage in range(4)]


def test_run_ends_with_1_on_a_difference_and_shows_logs(here: Path, quick: World) -> None:
    del here
    ran = thawcheck("run", "mine.py::answers", "--show-logs")
    assert (ran.returncode, ran.stderr) == (Exit.DIFFERS, "")
    headline = "all 2 ranks raised on the way to 'start': Answer: at stage 1"
    lines = ran.stdout.splitlines()
    assert lines[:2] == ["answers[mlp-z1], world 2, cpu: RAISES", headline]
    for rank in (0, 1):
        start = lines.index(f"log of rank {rank}:")
        assert lines[start : start + 3] == [
            f"log of rank {rank}:",
            f"rank {rank} answers",
            "Traceback (most recent call last):",
        ]
    assert lines.count("mine.Answer: at stage 1") == 2
    assert lines[-3:] == [
        "",
        f"DIFFERS: expected TRAINS (default), found RAISES: {headline}",
        "  reproduce: thawcheck run mine.py::answers --model mlp --stage 1",
    ]
    assert quick.left() == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_interrupted_leaves_nothing(here: Path, quick: World, number: signal.Signals) -> None:
    arguments = ["run", "mine.py::sleeps"]
    with subprocess.Popen(
        [*command(), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert wait_for(lambda: [*quick.temporary.rglob("asleep")])
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (
        Exit.INTERRUPTED,
        "",
        "thawcheck: interrupted; nothing that it started is left running\n",
    )
    assert not (here / "asleep").exists()
    assert quick.left() == {}


@pytest.mark.parametrize("arguments", [("run", "mine.py::answers", "--json"), ("suite", "mine.py")])
def test_a_reader_that_goes_away_is_no_success(arguments: tuple[str, ...], here: Path, quick: World) -> None:
    """Verdicts were asked for; nobody may take their absence for good news."""
    del here
    pipe = subprocess.PIPE
    with subprocess.Popen([*command(), *arguments], stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read().decode()
    assert process.returncode not in (Exit.OK, None)
    assert "Traceback" not in said
    assert quick.left() == {}


def test_run_of_a_file_asks_for_a_case_in_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    del here
    assert main(["run", "mine.py"]) == Exit.USAGE
    assert capsys.readouterr().err == "thawcheck: 'mine.py' is a file; name a case in it, too: mine.py::CASE\n"


def test_run_says_when_the_harness_itself_failed(here: Path, quick: World) -> None:
    del here
    quick.plant("transformers/__init__.py", "import os\nprint('no good', flush=True)\nos._exit(7)\n")
    ran = thawcheck("run", "mine.py::answers")
    assert (ran.returncode, ran.stdout) == (Exit.FAILED, "")
    assert ran.stderr == ("thawcheck: the process that imports the libraries did not start: exit status 7; no good\n")
    ran = thawcheck("suite", "mine.py", "--", "-k", "answers")
    assert ran.returncode == Exit.FAILED
    assert "the process that imports the libraries did not start: exit status 7; no good" in ran.stdout
    assert "Traceback" not in ran.stdout + ran.stderr
    assert quick.left() == {}


# -- suite -----------------------------------------------------------------------------------


def test_suite_runs_files_of_cases_and_writes_all_it_is_asked_for(here: Path, quick: World) -> None:
    (here / "test_also.py").write_text("def test_also(): pass\n", encoding="utf-8")
    outputs = ["--results", "out/all.jsonl", "--markdown", "out/all.md", "--junitxml", "out/all.xml", "--stack", "mine"]
    ran = thawcheck(
        "suite", "mine.py", "--also", "test_also.py", "--expected", "expected", *outputs, "--", "-k", "answers or also"
    )
    assert (ran.returncode, ran.stderr) == (Exit.OK, "")
    assert "= freeze table: stack mine, cpu, 2 ranks =" in ran.stdout
    assert re.search(r"^ 1  ask, at once +RAISES +RAISES +- +-$", ran.stdout, re.MULTILINE)
    assert "1. answers: It answers." in ran.stdout.splitlines()
    assert "2 variants, 2 as expected, 0 differ (!)" in ran.stdout.splitlines()
    assert [(one["id"], one["stack"]) for one in read_results(here / "out" / "all.jsonl")] == [
        ("answers[mlp-z0]", "mine"),
        ("answers[mlp-z1]", "mine"),
    ]
    assert "| ask, at once | RAISES | RAISES | - | - |" in (here / "out" / "all.md").read_text("utf-8").splitlines()
    tests = ET.parse(here / "out" / "all.xml").iter("testcase")  # noqa: S314  # pytest wrote it
    assert [(one.get("classname"), one.get("name")) for one in tests] == [
        ("mine", "answers[mlp-z0]"),
        ("mine", "answers[mlp-z1]"),
        ("test_also", "test_also"),
    ]
    assert not (here / ".pytest_cache").exists()
    assert quick.left() == {}


def test_suite_ends_with_1_on_a_difference(here: Path, quick: World) -> None:
    del here
    ran = thawcheck("suite", "mine.py", "--world", "1", "--", "-k", "answers", "-x")
    assert ran.returncode == Exit.DIFFERS
    assert "1 variant, 0 as expected, 1 differ (!)" in ran.stdout.splitlines()
    assert "= freeze table: cpu, 1 rank =" in ran.stdout
    assert quick.left() == {}


def test_suite_takes_the_shipped_cases_where_none_are_named() -> None:
    ran = thawcheck("suite", "--", "--collect-only", "-q", "-n0", "-p", "no:random_order")
    assert ran.returncode == Exit.OK
    items = [line.rpartition("::")[2] for line in ran.stdout.splitlines() if "::" in line]
    assert items == [f"{case.name}[{options.id}]" for case in shipped() for options in case.variants]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.py"], "ERROR: file or directory not found: nowhere.py"),
        (["mine.py", "--", "-k", "nothing_of_that_name"], "3 deselected"),
        (["mine.py", "--world", "none"], "ERROR: --thaw-world: must be a whole number, 1 or more, found 'none'"),
        (["mine.py", "--expected", "nowhere"], "ERROR: --thaw-expected: there is no folder nowhere"),
        (["mine.py", "--", "--no-such-option"], "unrecognized arguments: --no-such-option"),
        (
            ["mine.py", "--markdown", "mine.py/x.md"],
            "ERROR: the table cannot be written to mine.py/x.md: mine.py is no folder",
        ),
        (["broken.py"], "case broken in broken: kind 'Z' is not one of "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_suite_ends_with_2_on_bad_input(arguments: list[str], said: str, here: Path) -> None:
    del here
    ran = thawcheck("suite", *arguments)
    assert ran.returncode == Exit.USAGE, ran.stdout
    assert said in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stdout + ran.stderr


def test_suite_interrupted_keeps_what_was_measured(here: Path, quick: World) -> None:
    arguments = ["suite", "mine.py", "--results", "out.jsonl"]
    with subprocess.Popen(
        [*command(), *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert wait_for(lambda: (here / "out.jsonl").exists() and len(read_results(here / "out.jsonl")) == 2)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == Exit.INTERRUPTED
    assert "2 variants, 0 as expected, 2 differ (!)" in said.splitlines()
    assert "Partial: 2 of 3 variants; the others were deselected or not reached." in said.splitlines()
    assert "2 results in out.jsonl" in said.splitlines()
    assert quick.left() == {}
