"""``thawcheck diff``: what changed between two runs, stacks or days, and when that is a regression."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Final

import pytest
from small_matrix import make_matrix, observed, outcome

from harness.cell import Failure, Verdict
from harness.cell.outcome._observed import Observed, Outcome
from harness.control.cli import main
from harness.control.report._fit import LIMITS

Captured = pytest.CaptureFixture[str]

TRAINS: Final = Verdict.TRAINS
STUCK: Final = Verdict.NO_UPDATE


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of a checkout."""
    make_matrix(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(folder: str, *stacks: Observed) -> None:
    for one in stacks:
        one.write(Path(folder) / f"{one.stack}.jsonl")


def diff(capsys: Captured, *arguments: str, status: int) -> list[str]:
    capsys.readouterr()
    assert main(["diff", *arguments]) == status
    out, err = capsys.readouterr()
    assert (out if status == 2 else err) == ""
    return (err if status == 2 else out).splitlines()


def raises(kind: str, message: str = "") -> Outcome:
    return outcome("case", Verdict.RAISES, 1, failure=Failure("engine", kind, message))


def stuck(*names: str) -> Outcome:
    return outcome("case", STUCK, 1, parameters=names or ("w",))


TRAINING: Final = outcome("case", TRAINS, 1)


@pytest.mark.parametrize(
    ("before", "after", "way", "status"),
    [
        (TRAINING, stuck(), "worse", 1),
        (TRAINING, raises("IndexError"), "worse", 1),
        (stuck(), TRAINING, "better", 0),
        (stuck("w"), stuck("w", "v"), "another fault", 0),
        (raises("IndexError"), raises("ValueError"), "another fault", 0),
        # A silent fault is no better than a loud one.
        (raises("IndexError"), stuck(), "another fault", 0),
        (TRAINING, None, "lost", 1),
        (TRAINING, outcome("case", Verdict.NOT_RUN, 1, failure=Failure("start", "NotRun", "no axolotl")), "lost", 1),
        (None, stuck(), "new", 0),
    ],
)
@pytest.mark.usefixtures("here")
def test_which_way_a_verdict_went(
    capsys: Captured, before: Outcome | None, after: Outcome | None, way: str, status: int
) -> None:
    other = outcome("other", TRAINS, 0, 1)
    put("old", observed("latest", other, *([before] if before else [])))
    put("new", observed("latest", other, *([after] if after else [])))
    said = diff(capsys, "old", "new", status=status)
    assert said[0].endswith(f"({way})")
    assert said[1] == "  latest: mlp-z1"
    assert said[-1] == f"1 stack compared: 1 {way}, 2 the same"
    told = json.loads("\n".join(diff(capsys, "old", "new", "--json", status=status)))
    assert told["counts"][way] == 1
    assert bool(told["regressions"]) == (status == 1)
    (one,) = told["differences"]
    assert (one["case"], one["way"], one["where"]) == ("case", way, {"latest": ["mlp-z1"]})


@pytest.mark.parametrize(
    ("before", "after"), [(raises("E", "at 1"), raises("E", "at 2")), (stuck(), stuck()), (TRAINING, TRAINING)]
)
@pytest.mark.usefixtures("here")
def test_another_message_or_day_is_no_change(capsys: Captured, before: Outcome, after: Outcome) -> None:
    put("old", observed("latest", before))
    put("new", observed("latest", after, day="2026-12-24"))
    assert diff(capsys, "old", "new", status=0) == ["1 stack compared: 1 the same"]


@pytest.mark.usefixtures("here")
def test_only_what_both_have(capsys: Captured) -> None:
    put("old", observed("latest", TRAINING, outcome("gone", TRAINS, 1)))
    put("new", observed("latest", TRAINING))
    assert diff(capsys, "old", "new", status=1)[-1] == "1 stack compared: 1 lost, 1 the same"
    assert diff(capsys, "old", "new", "--common", status=0) == ["1 stack compared: 1 the same"]


@pytest.mark.usefixtures("here")
def test_a_stack_that_cannot_be_installed_any_more(capsys: Captured) -> None:
    put("old", observed("latest", TRAINING))
    put("new", observed("latest", versions={}, unsolvable="no wheel"))
    assert diff(capsys, "old", "new", status=1)[-1] == "1 stack compared: 1 lost, 0 the same"


@pytest.mark.usefixtures("here")
def test_two_stacks(capsys: Captured) -> None:
    """What only one was measured for says nothing of the other."""
    older = {"torch": "2.2.1", "deepspeed": "0.19.0", "python": "3.11.7"}
    put("matrix/observed", observed("torch-2.2.1", TRAINING, outcome("only here", TRAINS, 1), versions=older))
    put("matrix/observed", observed("latest", stuck()))
    assert diff(capsys, "torch-2.2.1", "latest", status=1) == [
        "▼ case: TRAINS -> NO_UPDATE of w (worse)",
        "  torch-2.2.1 -> latest: mlp-z1",
        "torch-2.2.1 -> latest: torch 2.2.1 -> 2.13.0+cpu",
        "1 stack compared: 1 worse, 1 lost, 0 the same",
    ]
    assert diff(capsys, "latest", "torch-2.2.1", status=0)[0] == "▲ case: NO_UPDATE of w -> TRAINS (better)"
    put("matrix/observed", observed("latest", TRAINING))
    assert diff(capsys, "torch-2.2.1", "latest", status=0)[-1] == "1 stack compared: 1 lost, 1 the same"


@pytest.mark.usefixtures("here")
def test_folders_stack_by_stack(capsys: Captured) -> None:
    names = [f"s-{number}" for number in range(6)]
    put("old", *(observed(name, TRAINING) for name in names), observed("gone", TRAINING))
    put("new", *(observed(name, stuck()) for name in names), observed("came", TRAINING))
    assert diff(capsys, "old", "new", status=1) == [
        "▼ case: TRAINS -> NO_UPDATE of w (worse)",
        *(f"  s-{number}: mlp-z1" for number in range(4)),
        "  and on 2 more stacks",
        "only before: gone",
        "only after: came",
        "6 stacks compared: 6 worse, 0 the same",
    ]
    assert diff(capsys, "old", "new/s-1.jsonl", status=1)[-1] == "1 stack compared: 1 worse, 0 the same"


@pytest.mark.usefixtures("here")
def test_another_device_is_another_stack(capsys: Captured) -> None:
    put("old", observed("latest", TRAINING), observed("other", TRAINING))
    put("new", observed("latest", TRAINING, device="cuda"), observed("third", TRAINING))
    assert diff(capsys, "old", "new", status=2) == [
        "thawcheck: old and new have no stack in common, and are not one stack each"
    ]


def test_a_day_is_what_git_has_at_its_end(here: Path, capsys: Captured) -> None:
    who = {f"GIT_{one}_{what}": "a@b" for one in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    subprocess.run(["git", "init", "-q"], check=True)
    for day, one in (("2026-11-01", TRAINING), ("2026-11-02", stuck())):
        put("matrix/observed", observed("latest", one, day=day))
        when = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), f"{day}T23:00:00Z")
        for words in (["add", "matrix"], ["commit", "-qm", day]):
            subprocess.run(["git", *words], check=True, env={**os.environ, **who, **when})
    assert diff(capsys, "2026-11-01", "2026-11-02", status=1)[0] == "▼ case: TRAINS -> NO_UPDATE of w (worse)"
    assert diff(capsys, "2026-11-02", "latest", status=0) == ["1 stack compared: 1 the same"]
    assert diff(capsys, "2026-10-31", "2026-13-01", status=2) == [
        "thawcheck: nothing is compared:",
        f"2026-10-31: git has nothing of {here / 'matrix' / 'observed'} that is as old",
        "'2026-13-01' is no day",
    ]


def test_a_day_without_git(here: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    put("matrix/observed", observed("latest", TRAINING))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(here.parent))
    said = diff(capsys, "2026-11-01", "latest", status=2)
    assert said[1].startswith("2026-11-01: a day is looked up by git, which cannot say what ")
    monkeypatch.setenv("PATH", str(here))
    assert diff(capsys, "2026-11-01", "latest", status=2)[1] == (
        "2026-11-01: a day is looked up by git, and there is no git on the PATH"
    )


def test_all_faults_of_both_sides(here: Path, capsys: Captured) -> None:
    put("matrix/observed", observed("latest", TRAINING))
    (here / "bad.jsonl").write_text("[]\n")
    (here / "empty").mkdir()
    assert diff(capsys, "latst", "bad.jsonl", status=2) == [
        "thawcheck: nothing is compared:",
        (
            "'latst' is no file or folder, no day as YYYY-MM-DD, and no stack that is observed in "
            f"{here / 'matrix' / 'observed'}; did you mean 'latest'?"
        ),
        "bad.jsonl:1: is no result: it must be a JSON object, found []; run the suite again, or remove the line",
    ]
    assert diff(capsys, "empty", "latest", status=2)[1] == (
        "empty: there is no *.jsonl in it, so nothing was observed there"
    )


@pytest.mark.usefixtures("here")
def test_markdown(capsys: Captured) -> None:
    put("old", observed("latest", TRAINING, outcome("a|b<i>", TRAINS, 1)))
    put("new", observed("latest", stuck(), outcome("a|b<i>", STUCK, 1, parameters=("@me",))))
    text = "\n".join(diff(capsys, "old", "new", "--markdown", "comment", status=1))
    assert "| ▼ worse | `case` | TRAINS | NO\\_UPDATE of w | latest: mlp-z1 |" in text
    assert "| ▼ worse | `a\\|b<i>` | TRAINS | NO\\_UPDATE of &#64;me | latest: mlp-z1 |" in text


@pytest.mark.usefixtures("here")
def test_markdown_fits(capsys: Captured) -> None:
    some = [outcome(f"case {number}", TRAINS, 1) for number in range(2000)]
    put("old", observed("latest", *some))
    put("new", observed("latest", *(outcome(one.case, STUCK, 1, parameters=("w",)) for one in some)))
    text = "\n".join(diff(capsys, "old", "new", "--markdown", "comment", status=1))
    assert len(text) < LIMITS["comment"]
    assert "more lines are left out, since GitHub takes no more: `thawcheck diff old new` has all of it." in text


@pytest.mark.usefixtures("here")
def test_a_hostile_name_moves_no_cursor(capsys: Captured) -> None:
    put("old", observed("latest", outcome("\x1b[2Jcase", TRAINS, 1)))
    put("new", observed("latest", outcome("\x1b[2Jcase", STUCK, 1, parameters=("\x1b[31mw",))))
    assert diff(capsys, "old", "new", status=1)[0] == "▼ \\x1b[2Jcase: TRAINS -> NO_UPDATE of \\x1b[31mw (worse)"
