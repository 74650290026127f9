"""``thawcheck changes``: verdicts that are not what they were, and one issue for each case and package."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from small_matrix import make_matrix, observed, outcome

from harness.cell import Verdict
from harness.cell.outcome._observed import Observed, Outcome
from harness.cell.outcome._record import Failure
from harness.control._exit import Exit
from harness.control.changes import as_body, compare, title_of
from harness.control.cli import main

EXPECTED: Final = """\
[[expect]]
case = "late"
verdict = "NO_UPDATE"
where = {stage = [1, 2]}
versions = {deepspeed = "<0.19"}
note = "made up"
"""

#: Keeps issues in a file, and says which commands it was given.
GH: Final = """\
#!{python}
import json, sys
from pathlib import Path

here = Path(__file__).parent
issues = json.loads((here / "issues.json").read_text())
words = sys.argv[1:]
with (here / "calls").open("a") as file:
    print(json.dumps(words), file=file)
assert words.pop(0) == "issue"
if (here / "broken").exists() and words[0] in (here / "broken").read_text():
    print("HTTP 403: Resource not accessible", "by integration", sep="\\n", file=sys.stderr)
    sys.exit(4)
if words[0] == "list":
    assert words[words.index("--state") + 1] == "open"
    assert words[words.index("--json") + 1] == "number,title"
    wanted = words[words.index("--search") + 1].partition(" in:title")[0].strip('"')
    # The search of GitHub finds by words, in any order and among others.
    found = [one for one in issues if set(wanted.split()) & set(one["title"].split())]
    print(json.dumps([{{"number": one["number"], "title": one["title"]}} for one in found]))
    sys.exit(0)
body = Path(words[words.index("--body-file") + 1]).read_text()
if words[0] == "create":
    issues.append({{"number": len(issues) + 7, "title": words[words.index("--title") + 1], "body": body}})
elif words[0] == "edit":
    (one,) = (one for one in issues if one["number"] == int(words[1]))
    one["body"] = body
(here / "issues.json").write_text(json.dumps(issues))
"""


class Gh:
    """A made-up `gh`, first on the PATH."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        self.set([])
        (folder / "gh").write_text(GH.format(python=sys.executable), encoding="utf-8")
        (folder / "gh").chmod(0o755)

    def set(self, issues: list[dict[str, Any]]) -> None:
        (self._folder / "issues.json").write_text(json.dumps(issues), encoding="utf-8")

    def issues(self) -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = json.loads((self._folder / "issues.json").read_text(encoding="utf-8"))
        return told

    def calls(self) -> list[str]:
        """The kinds of commands since this was asked last."""
        path = self._folder / "calls"
        words = [json.loads(line)[1] for line in path.read_text(encoding="utf-8").splitlines()]
        path.unlink()
        return words

    def fails_to(self, what: str) -> None:
        (self._folder / "broken").write_text(what, encoding="utf-8")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of a checkout."""
    make_matrix(tmp_path)
    (tmp_path / "matrix" / "expected").mkdir()
    (tmp_path / "matrix" / "expected" / "all.toml").write_text(EXPECTED, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def gh(here: Path, monkeypatch: pytest.MonkeyPatch) -> Gh:
    made = Gh(here / "bin")
    monkeypatch.setenv("PATH", f"{here / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return made


def versions(**changed: str) -> dict[str, str]:
    return {"python": "3.11.7", "torch": "2.13.0+cpu", "deepspeed": "0.19.0", "pytest": "9.2.0", **changed}


def put(folder: str, *stacks: Observed) -> None:
    for one in stacks:
        one.write(Path(folder) / f"{one.stack}.jsonl")


def before(*stacks: Observed) -> None:
    put("matrix/observed", *stacks)


def changes(capsys: pytest.CaptureFixture[str], *arguments: str, status: Exit = Exit.DIFFERS) -> str:
    assert main(["changes", "new", *arguments]) == status
    out, err = capsys.readouterr()
    assert err == ""
    return out


def trains(*stages: int) -> Outcome:
    return outcome("late", Verdict.TRAINS, *stages)


def stuck(*stages: int) -> Outcome:
    return outcome("late", Verdict.NO_UPDATE, *stages, parameters=("layers.2.weight",))


# -- what changed ----------------------------------------------------------------------------


@pytest.mark.usefixtures("here")
def test_nothing_changed(capsys: pytest.CaptureFixture[str]) -> None:
    """Another day, another build, another message and the order of variants are no change."""

    def raises(message: str) -> Outcome:
        return outcome("early", Verdict.RAISES, 1, failure=Failure("engine", "IndexError", message))

    before(observed("latest", raises("list index"), trains(0, 1), versions=versions()))
    now = versions(torch="2.13.0+cu130", python="3.11.9")
    put("new", observed("latest", raises("index 3"), trains(1), trains(0), versions=now, day="2026-12-24"))
    assert changes(capsys, status=Exit.OK) == "1 stacks, nothing changed\n"
    assert changes(capsys, "--json", status=Exit.OK) == "[]\n"


@pytest.mark.usefixtures("here")
def test_a_change_goes_by_case_and_by_the_package_that_moved(capsys: pytest.CaptureFixture[str]) -> None:
    before(
        observed("latest", trains(0, 1, 2), outcome("early", Verdict.HANG, 1), versions=versions()),
        observed("ds-0.17.0", stuck(1, 2), versions=versions(deepspeed="0.17.0", python="3.10.1")),
    )
    put(
        "new",
        # The same stack on another torch; pytest moved as well, and decides nothing.
        observed("latest", trains(0), stuck(1, 2), versions=versions(torch="2.13.1", pytest="9.3.0")),
        # Never observed before: the nearest is latest.
        observed("ds-0.18.0", stuck(0, 1), versions=versions(deepspeed="0.18.0")),
        # Nothing moved but the harness.
        observed(
            "ds-0.17.0", trains(1), stuck(2), versions=versions(deepspeed="0.17.0", python="3.10.1"), harness="2.0"
        ),
    )
    assert changes(capsys) == (
        "late with deepspeed\n"
        "  ds-0.18.0 (deepspeed 0.19.0 -> 0.18.0), compared with latest\n"
        "    mlp-z0: TRAINS -> NO_UPDATE of layers.2.weight; expected TRAINS\n"
        "    mlp-z1: TRAINS -> NO_UPDATE of layers.2.weight\n"
        '    reproduce: tox run -e ds-0.18.0 -- -- -k "late"\n'
        "late with thawcheck\n"
        "  ds-0.17.0\n"
        "    mlp-z1: NO_UPDATE of layers.2.weight -> TRAINS; expected NO_UPDATE\n"
        '    reproduce: tox run -e ds-0.17.0 -- -- -k "late"\n'
        "late with torch\n"
        "  latest (pytest 9.2.0 -> 9.3.0, torch 2.13.0+cpu -> 2.13.1)\n"
        "    mlp-z1, mlp-z2: TRAINS -> NO_UPDATE of layers.2.weight; expected TRAINS\n"
        '    reproduce: tox run -e latest -- -- -k "late"\n'
    )
    told = json.loads(changes(capsys, "--json"))
    assert [one["title"] for one in told] == [
        "verdict changed: late with deepspeed",
        "verdict changed: late with thawcheck",
        "verdict changed: late with torch",
    ]
    assert told[2]["changes"] == [
        {
            "stack": "latest",
            "compared": "latest",
            "versions_before": {"torch": "2.13.0+cpu", "pytest": "9.2.0"},
            "versions_after": {"torch": "2.13.1", "pytest": "9.3.0"},
            "shifts": [
                {
                    "variants": ["mlp-z1", "mlp-z2"],
                    "before": "TRAINS",
                    "after": "NO_UPDATE of layers.2.weight",
                    "expected": "TRAINS",
                }
            ],
            "reproduce": 'tox run -e latest -- -- -k "late"',
        }
    ]


@pytest.mark.usefixtures("here")
def test_the_axis_of_a_sweep_stands_for_what_moved_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    before(observed("ds-0.17.0", trains(1), versions=versions(deepspeed="0.17.0", numpy="2.0")))
    moved = versions(deepspeed="0.19.0", numpy="2.5", torch="2.13.1")
    put("new", observed("ds-0.19.0", stuck(1), versions=moved), observed("mine", stuck(1), versions=moved))
    told = json.loads(changes(capsys, "--json"))
    assert [(one["package"], [change["stack"] for change in one["changes"]]) for one in told] == [
        ("deepspeed", ["ds-0.19.0"]),
        ("the stack mine", ["mine"]),
    ]
    # Of a stack that was observed before, all that moved may be the cause.
    before(observed("mine", trains(1), versions=versions(deepspeed="0.17.0")))
    told = json.loads(changes(capsys, "--json"))
    assert [(one["package"], [change["stack"] for change in one["changes"]]) for one in told] == [
        ("deepspeed", ["ds-0.19.0", "mine"]),
        ("numpy", ["mine"]),
        ("torch", ["mine"]),
    ]


@pytest.mark.usefixtures("here")
def test_what_was_never_observed_counts_where_it_is_unexpected(capsys: pytest.CaptureFixture[str]) -> None:
    put(
        "new",
        observed("ds-0.17.0", stuck(1, 3), trains(0), versions=versions(deepspeed="0.17.0")),
        observed("mine", outcome("early", Verdict.NO_GRAD, 1), versions=versions()),
    )
    assert changes(capsys) == (
        "early with the stack mine\n"
        "  mine, never observed before\n"
        "    mlp-z1: not observed -> NO_GRAD; expected TRAINS\n"
        '    reproduce: tox run -e mine -- -- -k "early"\n'
        "late with deepspeed\n"
        "  ds-0.17.0, never observed before\n"
        "    mlp-z3-plain-persist_zero: not observed -> NO_UPDATE of layers.2.weight; expected TRAINS\n"
        '    reproduce: tox run -e ds-0.17.0 -- -- -k "late"\n'
    )
    # A case that is new in the harness, on a stack that is not; and one that went away.
    before(observed("mine", outcome("gone", Verdict.HANG, 1), versions=versions()))
    (Path("new") / "ds-0.17.0.jsonl").unlink()
    assert changes(capsys).splitlines()[:3] == [
        "early with nothing that moved",
        "  mine",
        "    mlp-z1: not observed -> NO_GRAD; expected TRAINS",
    ]


@pytest.mark.usefixtures("here")
def test_a_stack_that_cannot_be_solved_any_more(capsys: pytest.CaptureFixture[str]) -> None:
    solved = [observed(stack, trains(1), versions=versions()) for stack in ("ds-0.19.0", "latest")]
    broken = [observed(stack, unsolvable="no wheel", versions={}) for stack in ("ds-0.19.0", "latest", "torch-2.13.0")]
    before(*solved)
    put("new", *broken)
    assert changes(capsys) == (
        "every case with deepspeed\n"
        "  ds-0.19.0\n"
        "    solved -> UNSOLVABLE: no wheel\n"
        "    reproduce: thawcheck lock ds-0.19.0 --again && tox run -e ds-0.19.0\n"
        "every case with the stack latest\n"
        "  latest\n"
        "    solved -> UNSOLVABLE: no wheel\n"
        "    reproduce: thawcheck lock latest --again && tox run -e latest\n"
        "every case with torch\n"
        "  torch-2.13.0, never observed before\n"
        "    not observed -> UNSOLVABLE: no wheel\n"
        "    reproduce: thawcheck lock torch-2.13.0 --again && tox run -e torch-2.13.0\n"
    )
    before(*broken)
    put("new", *broken, observed("latest", trains(1), versions=versions()))
    assert changes(capsys).splitlines()[2] == "    UNSOLVABLE: no wheel -> solved"


@pytest.mark.usefixtures("here")
def test_other_devices_are_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    before(observed("latest", trains(1), versions=versions(), device="cuda"))
    put("new", observed("latest", stuck(1), versions=versions()))
    assert "  latest, never observed before\n" in changes(capsys)


def test_bad_input(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    def refused(*arguments: str) -> list[str]:
        assert main(["changes", *arguments]) == Exit.USAGE
        return capsys.readouterr().err.splitlines()

    assert refused("nowhere", "--expected", "no") == ["thawcheck: there is no folder nowhere; there is no folder no"]
    (here / "new").mkdir()
    assert refused("new") == ["thawcheck: there is no observed stack in new"]
    (here / "new" / "a.jsonl").write_text("{", encoding="utf-8")
    (here / "matrix" / "observed").mkdir()
    (here / "matrix" / "observed" / "b.jsonl").write_text("7\n", encoding="utf-8")
    said = refused("new")
    assert [line.partition(": ")[0] for line in said] == [
        "thawcheck",
        "new/a.jsonl:1",
        "new/a.jsonl:1",
        f"{here}/matrix/observed/b.jsonl:1",
        f"{here}/matrix/observed/b.jsonl:1",
    ]


# -- issues ----------------------------------------------------------------------------------


def issues(capsys: pytest.CaptureFixture[str], status: Exit = Exit.DIFFERS) -> list[str]:
    assert main(["changes", "new", "--issues"]) == status
    return capsys.readouterr().err.splitlines()


@pytest.mark.usefixtures("here")
def test_an_issue_is_opened_once_and_then_updated(capsys: pytest.CaptureFixture[str], gh: Gh) -> None:
    before(observed("latest", trains(1), outcome("early", Verdict.HANG, 1), versions=versions()))
    early = outcome("early", Verdict.CRASH, 1)
    put("new", observed("latest", stuck(1), early, versions=versions(torch="2.13.1")))
    # Of near titles none is taken for it.
    others = [
        {"number": 3, "title": "verdict changed: late with torch and more", "body": "mine"},
        {"number": 4, "title": "verdict changed: late with torchvision", "body": "mine"},
    ]
    gh.set(others)
    assert issues(capsys) == [
        "opened an issue: verdict changed: early with torch",
        "opened an issue: verdict changed: late with torch",
    ]
    assert gh.calls() == ["list", "create", "list", "create"]
    late = gh.issues()[3]
    assert (late["number"], late["title"]) == (10, "verdict changed: late with torch")
    assert late["body"] == (
        "What `late` does changed where `torch` moved.\n"
        "\n"
        "### latest\n"
        "\n"
        "`latest` (torch 2.13.0+cpu -> 2.13.1)\n"
        "\n"
        "```diff\n"
        "- mlp-z1: TRAINS\n"
        "+ mlp-z1: NO_UPDATE of layers.2.weight\n"
        "```\n"
        "\n"
        "Expected was:\n"
        "\n"
        "- mlp-z1: TRAINS\n"
        "\n"
        "```sh\n"
        'tox run -e latest -- -- -k "late"\n'
        "```\n"
        "\n"
        "Written by `thawcheck changes`, which replaces this text whenever it sees the change again.\n"
    )

    put("new", observed("latest", outcome("late", Verdict.NO_GRAD, 1), early, versions=versions(torch="2.13.2")))
    assert issues(capsys) == [
        "updated issue 9: verdict changed: early with torch",
        "updated issue 10: verdict changed: late with torch",
    ]
    assert gh.calls() == ["list", "edit", "list", "edit"]
    assert gh.issues()[:2] == others
    assert len(gh.issues()) == 4
    assert "+ mlp-z1: NO_GRAD\n" in gh.issues()[3]["body"]
    assert "2.13.1" not in gh.issues()[3]["body"]


@pytest.mark.usefixtures("here")
def test_what_gh_cannot_do_is_said_and_the_others_are_done(capsys: pytest.CaptureFixture[str], gh: Gh) -> None:
    before(observed("latest", trains(1), outcome("early", Verdict.HANG, 1), versions=versions()))
    gh.set([{"number": 1, "title": "verdict changed: late with torch", "body": ""}])
    put("new", observed("latest", stuck(1), outcome("early", Verdict.CRASH, 1), versions=versions(torch="2.13.1")))
    gh.fails_to("create")
    assert issues(capsys, Exit.FAILED) == [
        (
            "thawcheck: 'verdict changed: early with torch': "
            "gh issue create left with 4: HTTP 403: Resource not accessible by integration"
        ),
        "updated issue 1: verdict changed: late with torch",
    ]


@pytest.mark.usefixtures("here")
def test_without_gh_there_are_no_issues(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    put("new", observed("latest", stuck(1), versions=versions()))
    monkeypatch.setenv("PATH", "/nonexistent")
    assert issues(capsys, Exit.USAGE) == [
        "thawcheck: there is no gh on the PATH: install the command line of GitHub, or leave --issues out"
    ]


def test_a_body_fits_into_an_issue(here: Path) -> None:
    from harness.cell.outcome._expect import Expectations  # noqa: PLC0415  (this test's alone)

    new = {
        f"s{number}": observed(f"s{number}", stuck(1, 2), versions=versions(torch=f"2.{number}"))
        for number in range(900)
    }
    old = {"latest": observed("latest", trains(1), versions=versions())}
    (item,) = (one for one in compare(new, old, {}, Expectations()) if one.package == "torch")
    body = as_body(item)
    assert title_of(item) == "verdict changed: late with torch"
    assert 50_000 < len(body) < 65_536
    assert body.count("```") % 2 == 0
    assert "\nThe rest is left out.\n" in body
    del here
