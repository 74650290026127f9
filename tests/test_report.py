"""``thawcheck report``: what was measured, in every shape but the site's pages, which tests/browser looks at."""

from __future__ import annotations

import dataclasses
import json
import os
import pty
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
from small_matrix import make_matrix, observed, outcome

from harness.cell import CaseRecord, Failure, Options, Verdict
from harness.cell._catalog import find, shipped
from harness.cell.outcome._observed import Observed, Outcome
from harness.cell.outcome._record import ParameterVerdict
from harness.cell.outcome._results import as_line
from harness.cell.outcome._verdict import PRECEDENCE
from harness.control import cli
from harness.control.cli import main
from harness.control.report._boundary import where_text
from harness.control.report._columns import columns_of
from harness.control.report._drivers import drivers_of
from harness.control.report._encode import _runs
from harness.control.report._fit import LIMITS, fitted
from harness.control.report._json import VERSION, schema
from harness.control.report._look import LOOKS, SHOWN
from harness.control.report._plain import for_markdown, for_terminal, for_xml, in_code
from harness.control.stacks import load_matrix

ROOT: Final = Path(__file__).resolve().parents[1]
NAIVE: Final = "unfreeze_more_after_engine"
HOSTILE: Final = "\x1b[2J<b>|`@maintainer`|\r\u202e]]>\x00"

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of a checkout in which two stacks are measured, one cannot be, and one verdict is a surprise."""
    make_matrix(tmp_path)
    folder = tmp_path / "matrix"
    (folder / "expected").mkdir()
    (folder / "expected" / "all.toml").write_text(
        f'[[expect]]\ncase = "{NAIVE}"\nverdict = "NO_UPDATE"\nwhere = {{stage = [1]}}\n'
        'versions = {deepspeed = "<0.19"}\nnote = "made up"\n',
        encoding="utf-8",
    )
    stuck = outcome(NAIVE, Verdict.NO_UPDATE, 1, parameters=("layers.2.weight",))
    trains = outcome(NAIVE, Verdict.TRAINS, 0)
    put(folder / "observed", observed("ds-0.17.0", trains, stuck, versions=versions("0.17.0")))
    put(folder / "observed", observed("ds-0.19.0", trains, stuck, versions=versions("0.19.0")))
    put(folder / "observed", observed("torch-2.2.1", versions={}, unsolvable="no wheel"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def versions(deepspeed: str) -> dict[str, str]:
    return {"torch": "2.13.0+cpu", "deepspeed": deepspeed, "python": "3.11.7"}


def put(folder: Path, *stacks: Observed) -> None:
    for one in stacks:
        one.write(folder / f"{one.stack}.jsonl")


def report(capsys: Captured, *arguments: str, status: int = 0) -> str:
    capsys.readouterr()
    assert main(["report", *arguments]) == status
    out, err = capsys.readouterr()
    return err if status else out


def record(case: str = NAIVE, verdict: Verdict = Verdict.NO_UPDATE, **fields: Any) -> CaseRecord:
    options = Options(model="mlp", stage=1)
    made = CaseRecord(
        case=case,
        kind="C",
        options=options.as_dict(),
        id=f"{case}[{options.id}]",
        verdict=verdict,
        headline="never moved",
        world=2,
        device="cpu",
        launcher="zygote",
        versions=versions("0.19.0"),
        stack="mine",
        started="2026-11-30T10:00:00",
    )
    return dataclasses.replace(made, **fields)


def results(path: Path, *records: CaseRecord, more: str = "") -> Path:
    path.write_text("".join(f"{as_line(one.as_dict())}\n" for one in records) + more, encoding="utf-8")
    return path


# -- at the terminal ---------------------------------------------------------------------------


@pytest.mark.usefixtures("here")
def test_in_a_pipe_it_is_plain_lines(capsys: Captured) -> None:
    text = report(capsys)
    assert not re.search(r"[^\n -~]| $", text, re.MULTILINE)
    assert [" ".join(line.split()) for line in text.splitlines()] == [
        "3 stacks, 1 case, 4 verdicts, measured 2026-11-30",
        "2 NO_UPDATE, 2 TRAINS",
        "kind verdicts not as expected",
        "C Unfreezing, or switching parts, after the engine exists 2 NO_UPDATE, 2 TRAINS 1",
        "1 difference from what is expected:",
        f"{NAIVE} on ds-0.19.0 (1 variant): expected TRAINS (default), found NO_UPDATE:",
    ]


@pytest.mark.usefixtures("here")
def test_by_stack_and_by_case(capsys: Captured) -> None:
    text = report(capsys, "--by", "stack")
    assert re.search(r"^ds-0.17.0 +deepspeed 0.17.0, torch 2.13.0 +1 NO_UPDATE, 1 TRAINS +-$", text, re.MULTILINE)
    assert re.search(r"^torch-2.2.1 +UNSOLVABLE: no wheel +- +-$", text, re.MULTILINE)
    assert re.search(rf"^{NAIVE} +2 NO_UPDATE, 2 TRAINS +1$", report(capsys, "--by", "case"), re.MULTILINE)


def test_at_a_terminal_it_has_colours_and_symbols(here: Path) -> None:
    main_, other = pty.openpty()
    path = os.pathsep.join([str(ROOT), *sys.path])
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "PYTHONPATH": path}
    env.pop("NO_COLOR")
    command = [sys.executable, "-m", "harness.control.cli", "report"]
    done = subprocess.run(command, cwd=here, stdout=other, env=env, check=False, timeout=60)
    os.close(other)
    text = os.read(main_, 100_000).decode()
    os.close(main_)
    assert done.returncode == 0
    assert "\x1b[31m= 2 NO_UPDATE" in text
    assert "\x1b[32m✓ 2 TRAINS" in text
    assert "\x1b[31m=2\x1b" in text


# -- the other shapes --------------------------------------------------------------------------


@pytest.mark.usefixtures("here")
def test_json_is_what_its_schema_says(capsys: Captured) -> None:
    made = json.loads(report(capsys, "--json", "-"))
    jsonschema.Draft202012Validator.check_schema(json.loads(schema()))
    jsonschema.validate(made, json.loads(schema()))
    assert made["version"] == VERSION
    assert made["summary"] == {"stacks": 3, "cases": 1, "verdicts": {"NO_UPDATE": 2, "TRAINS": 2}, "surprises": 1}
    (surprise,) = (one for one in made["outcomes"] if "surprise" in one)
    assert (surprise["stack"], surprise["variants"], surprise["parameters"]) == (
        "ds-0.19.0",
        ["mlp-z1"],
        {"NO_UPDATE": ["layers.2.weight"]},
    )
    assert made["stacks"][-1]["unsolvable"] == "no wheel"
    assert report(capsys, "--schema") == schema()


def test_the_schema_knows_every_verdict() -> None:
    plain = json.loads(schema())
    assert plain["$defs"]["verdict"]["enum"] == [*map(str, SHOWN)]
    assert plain["properties"]["version"]["const"] == VERSION


@pytest.mark.parametrize("field", ["version", "outcomes"])
@pytest.mark.usefixtures("here")
def test_the_schema_refuses_what_is_not_so(capsys: Captured, field: str) -> None:
    made = json.loads(report(capsys, "--json", "-"))
    made[field] = 2 if field == "version" else [{**made["outcomes"][0], "verdict": "FINE"}]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(made, json.loads(schema()))


@pytest.mark.usefixtures("here")
def test_junit_fails_where_something_is_not_as_expected(capsys: Captured) -> None:
    root = ET.fromstring(report(capsys, "--junit", "-"))  # noqa: S314  # our own
    assert (root.get("tests"), root.get("failures")) == ("3", "1")
    failing = [(suite.get("name"), test.get("name")) for suite in root for test in suite.findall("testcase[failure]")]
    assert failing == [("ds-0.19.0", NAIVE)]
    (failure,) = root.iter("failure")
    assert (failure.text or "").startswith("mlp-z1: expected TRAINS (default), found NO_UPDATE")
    install = root.find("testsuite[@name='torch-2.2.1']/testcase/system-out")
    assert install is not None
    assert install.text == "UNSOLVABLE: no wheel"


@pytest.mark.usefixtures("here")
def test_a_badge_says_how_many_are_not_as_expected(capsys: Captured) -> None:
    made = ET.fromstring(report(capsys, "--badge", "-"))  # noqa: S314  # our own
    assert made.get("aria-label") == "thawcheck: 1 of 4 not as expected"
    made = ET.fromstring(report(capsys, "--badge", "-", "--stack", "ds-0.17.0"))  # noqa: S314
    assert made.get("aria-label") == "thawcheck: 2 verdicts as expected"


@pytest.mark.usefixtures("here")
def test_markdown_has_the_tables_and_what_is_not_as_expected(capsys: Captured) -> None:
    text = report(capsys, "--markdown", "-")
    assert f"- `{NAIVE}` on `ds-0.19.0`, 1 variant: expected TRAINS (default), found NO\\_UPDATE" in text
    assert "| `C` | Unfreezing, or switching parts, after the engine exists | = 2 NO\\_UPDATE, ✓ 2 TRAINS | 1 |" in text
    assert text.count("<details>") == text.count("</details>") == 3


@pytest.mark.parametrize("limit", LIMITS)
def test_markdown_fits_where_github_takes_it(limit: str) -> None:
    lines = ["<details>", *(f"| {number} | é |" for number in range(400_000)), "</details>"]
    text = fitted(lines, limit, "thawcheck report")
    size = len(text) if limit == "comment" else len(text.encode())
    assert 0.99 * LIMITS[limit] < size <= LIMITS[limit]
    *table, left_out = text.rstrip("\n").split("\n")
    assert "</details>" in table
    kept = sum(line.startswith("| ") for line in table)
    assert left_out.startswith(f"{400_001 - kept:,} more lines are left out")
    assert fitted(lines[:5], limit, "") == "\n".join([*lines[:5], ""])


def test_every_real_verdict_can_be_written_and_fits(tmp_path: Path, capsys: Captured) -> None:
    shapes = {name: tmp_path / name for name in ("markdown", "junit", "json", "badge")}
    asked = [word for name, path in shapes.items() for word in (f"--{name}", str(path))]
    report(capsys, "--matrix", str(ROOT / "matrix"), "--site", str(tmp_path / "site"), *asked)
    assert len(shapes["markdown"].read_text()) <= LIMITS["comment"]
    made = json.loads(shapes["json"].read_text())
    jsonschema.validate(made, json.loads(schema()))
    ET.parse(shapes["junit"])  # noqa: S314  # our own
    files = [path for path in (tmp_path / "site").rglob("*") if path.is_file()]
    assert len([path for path in files if path.parent.name == "case"]) == 2 * made["summary"]["cases"]


def test_where_nothing_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "some", observed("latest", versions={}, unsolvable="no wheel"))
    assert report(capsys, "some").splitlines()[0] == "1 stack, 0 cases, 0 verdicts, measured 2026-11-30"
    made = json.loads(report(capsys, "some", "--json", "-"))
    jsonschema.validate(made, json.loads(schema()))
    assert made["outcomes"] == []
    assert "nothing measured" in report(capsys, "some", "--badge", "-")
    assert "UNSOLVABLE: no wheel" in report(capsys, "some", "--junit", "-")
    assert "**nothing measured**" in report(capsys, "some", "--markdown", "-")
    assert main(["report", "some", "--site", "site"]) == 0


# -- results files -----------------------------------------------------------------------------


def test_a_results_file_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """Outside of a checkout, a last line cut off, a case of one's own."""
    monkeypatch.chdir(tmp_path)
    one = ParameterVerdict("a", Verdict.NO_UPDATE, True, True, [0], [2], moment="step", expected="0.1", found="0")
    path = results(
        tmp_path / "mine.jsonl", record(parameters=[one]), record("my_own", Verdict.TRAINS), more='{"case":"cut o'
    )
    made = json.loads(report(capsys, str(path), "--json", "-"))
    assert [(case["name"], case["kind"]) for case in made["cases"]] == [(NAIVE, "C"), ("my_own", "OWN")]
    assert made["stacks"][0]["stack"] == "mine"
    assert main(["report", str(path), "--site", str(tmp_path / "site")]) == 0
    told = (tmp_path / "site" / "data" / "case" / f"{NAIVE}.js").read_text()
    assert "a: at step expected 0.1; found 0" in told


def test_the_same_stack_on_two_days(here: Path, capsys: Captured) -> None:
    put(here / "older", observed("ds-0.17.0", outcome(NAIVE, Verdict.TRAINS, 0), day="2026-01-01"))
    made = json.loads(report(capsys, "older", "matrix/observed", "--json", "-"))
    keys = [one["key"] for one in made["stacks"]]
    assert {"ds-0.17.0@2026-01-01", "ds-0.17.0@2026-11-30", "ds-0.19.0"} < {*keys}


def test_a_day_as_git_has_it(here: Path, capsys: Captured) -> None:
    commit(here, "2026-11-30")
    put(here / "matrix" / "observed", observed("ds-0.17.0", outcome(NAIVE, Verdict.TRAINS, 0), day="2026-12-24"))
    made = json.loads(report(capsys, "--day", "2026-11-30", "--json", "-"))
    keys = [one["key"] for one in made["stacks"] if one["stack"].startswith("ds")]
    # What is the same is there once.
    assert keys == ["ds-0.17.0@2026-11-30", "ds-0.17.0@2026-12-24", "ds-0.19.0"]


def commit(root: Path, day: str) -> None:
    who = {f"GIT_{one}_{what}": "a@b" for one in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    when = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), f"{day}T12:00:00Z")
    for words in (["init", "-q"], ["add", "matrix"], ["commit", "-qm", "measured"]):
        subprocess.run(["git", *words], cwd=root, check=True, env={**os.environ, **who, **when})


def test_only_some(here: Path, capsys: Captured) -> None:
    put(here / "matrix" / "observed", observed("ds-0.19.0", outcome("freeze_by_rank", Verdict.TRAINS, 1)))
    assert report(capsys, "--kind", "L").startswith("3 stacks, 1 case, 1 verdict,")
    assert report(capsys, "--case", NAIVE, "--stack", "ds-0.17.0").startswith("1 stack, 1 case, 2 verdicts,")
    assert report(capsys, "--case", "freeze_by_rang", "--stack", "ds-0.18", "--kind", "Z", status=2) == (
        "thawcheck: --stack: nothing was measured of a stack 'ds-0.18'; did you mean 'ds-0.19.0' or 'ds-0.17.0'?\n"
        "--case: nothing was measured of a case 'freeze_by_rang'; did you mean 'freeze_by_rank' or '"
        f"{NAIVE}'?\n"
        "--kind: nothing was measured of a kind 'Z'; there is: C, L\n"
    )


# -- bad input and bad surroundings ------------------------------------------------------------


def test_what_is_not_there_or_damaged_is_named_all_at_once(here: Path, capsys: Captured) -> None:
    (here / "empty").mkdir()
    (here / "void.jsonl").write_text("")
    (here / "cut.jsonl").write_text('{"case":"a')
    (here / "binary.jsonl").write_bytes(b"\xff\xfe\n")
    good = record().as_dict()
    bad: list[Any] = [
        {key: value for key, value in good.items() if key not in ("verdict", "versions")},
        {**good, "verdict": "FINE", "device": "abacus", "options": {"stage": 3, "colour": "red"}},
        {**good, "options": {"model": "gpt9", "stage": 7}},
        [1],
    ]
    lines = [as_line(good), "{", *(json.dumps(one) for one in bad), as_line(good)]
    (here / "damaged.jsonl").write_text("".join(f"{line}\n" for line in lines))
    names = ["gone", "empty", "void.jsonl", "cut.jsonl", "binary.jsonl", "damaged.jsonl"]
    said = report(capsys, *names, status=2).splitlines()
    assert said[:4] == [
        "thawcheck: nothing is reported:",
        "gone: there is no such file or folder",
        "empty: there is no *.jsonl in it, so nothing was observed there",
        "void.jsonl: is empty: no case has ended yet, or it was cut off",
    ]
    assert said[4] == "cut.jsonl: has no whole line, only the beginning of one; run the suite again"
    assert said[5].startswith("binary.jsonl: cannot be read: ")
    assert said[6] == "damaged.jsonl:2: is no JSON; run the suite again, or remove the line"
    assert said[7].startswith("damaged.jsonl:3: is no result: verdict, versions missing;")
    assert "no verdict is called 'FINE'; no device is called 'abacus'; there is: " in said[8]
    assert "no setting is called colour" in said[8]
    assert "no model is called 'gpt9'" in said[9]
    assert said[10].startswith("damaged.jsonl:6: is no result: it must be a JSON object, found [1]")
    assert said[11] == f"damaged.jsonl:7: {NAIVE}[mlp-z1] has a result in an earlier line already"
    assert len(said) == 12


@pytest.mark.parametrize(
    "value",
    [
        {"world": "two"},
        {"parameters": {}},
        {"parameters": [1]},
        {"parameters": [{"name": "a", "verdict": "FINE"}]},
        {"failure": {"what": 1}},
        {"stacks": []},
        {"options": None},
        {"versions": {"torch": 2}},
        {"headline": 3},
        {"case": None},
        {"started": 5},
    ],
)
def test_a_value_of_another_type_is_no_traceback(here: Path, capsys: Captured, value: dict[str, Any]) -> None:
    path = here / "odd.jsonl"
    path.write_text(json.dumps({**record().as_dict(), **value}) + "\n")
    assert report(capsys, "odd.jsonl", status=2).splitlines()[1].startswith("odd.jsonl:1: is no result: ")


def test_a_damaged_observed_file(here: Path, capsys: Captured) -> None:
    path = here / "matrix" / "observed" / "ds-0.19.0.jsonl"
    path.write_text(path.read_text()[:-30])
    assert "ds-0.19.0.jsonl:3: is no JSON, perhaps cut off by a kill" in report(capsys, status=2)


def test_expectations_that_cannot_be_read(here: Path, capsys: Captured) -> None:
    (here / "matrix" / "expected" / "all.toml").write_text("[[expect]\n")
    assert "all.toml" in report(capsys, status=2)
    assert report(capsys, "--expected", "gone", status=2) == "thawcheck: --expected: there is no folder gone\n"


def test_outside_of_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.chdir(tmp_path)
    assert "run at the root of a checkout" in report(capsys, status=2)


def test_where_nothing_can_be_written(here: Path, capsys: Captured) -> None:
    (here / "file").write_text("kept")
    for shape in ("--json", "--markdown", "--junit", "--badge"):
        said = f"thawcheck: {shape}: file/in/it cannot be written: Not a directory\n"
        assert report(capsys, shape, "file/in/it", status=2) == said
        said = f"thawcheck: {shape}: matrix cannot be written: it is a folder\n"
        assert report(capsys, shape, "matrix", status=2) == said
    said = report(capsys, "--site", "file", status=2)
    assert said == "thawcheck: --site: file is a file; name a folder for the site\n"
    said = report(capsys, "--site", "file/site", status=2)
    assert said.startswith("thawcheck: --site: the site cannot be written to file/site: ")
    assert (here / "file").read_text() == "kept"
    said = report(capsys, "--json", "-", "--badge", "-", status=2)
    assert said == "thawcheck: only one shape can go to standard output: give a file to the others\n"


def test_a_site_takes_the_place_of_a_site_and_of_nothing_else(here: Path, capsys: Captured) -> None:
    assert main(["report", "--site", "site"]) == 0
    (here / "site" / "case" / "gone.html").write_text("of a case that is gone")
    assert main(["report", "--site", "site"]) == 0
    assert not (here / "site" / "case" / "gone.html").exists()
    assert sorted(path.name for path in here.iterdir()) == ["matrix", "site"]
    said = report(capsys, "--site", "matrix", status=2)
    told = "matrix holds other things than a site, which would be lost; name a new folder, or empty it"
    assert said == f"thawcheck: --site: {told}\n"
    assert (here / "matrix" / "stacks.toml").is_file()


@pytest.mark.parametrize("missing", ["rich", "jinja2"])
@pytest.mark.usefixtures("here")
def test_a_library_that_is_missing_is_named(capsys: Captured, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    for name in [name for name in sys.modules if name.startswith("harness.control.report._")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.partition(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    arguments = ["--site", "site"] if missing == "jinja2" else []
    said = report(capsys, *arguments, status=2)
    assert said == f"thawcheck: thawcheck report needs {missing}, which is not here: pip install 'thawcheck[report]'\n"


# -- what comes from outside -------------------------------------------------------------------


def test_a_hostile_name_is_text_in_every_shape(here: Path, capsys: Captured) -> None:
    failure = Failure("engine", HOSTILE, HOSTILE)
    own = Outcome(HOSTILE, Verdict.RAISES, (Options(model="mlp", stage=1),), 2, {}, failure)
    put(here / "matrix" / "observed", observed("ds-0.19.0", own, versions=versions("0.19.0")))
    assert "\x1b" not in report(capsys, "--by", "case")
    markdown = report(capsys, "--markdown", "-")
    assert "<b>" not in re.sub(r"`+[^`].*?`+", "", markdown)
    ET.fromstring(report(capsys, "--junit", "-"))  # noqa: S314  # our own
    assert HOSTILE in {case["name"] for case in json.loads(report(capsys, "--json", "-"))["cases"]}
    assert main(["report", "--site", "site"]) == 0
    pages = sorted((here / "site" / "case").glob("*.html"))
    assert [page.name for page in pages if page.stem != NAIVE] == ["2j-b-maintainer-caee286b.html"]
    assert all("<b>" not in page.read_text() for page in pages)


def test_text_for_each_place() -> None:
    assert for_terminal("a\x1b[31m\n b\u202e\ud800") == "a\\x1b[31m b\\u202e\\ud800"
    assert for_markdown("<a href> @me *x* [y](z) a|b \\") == "&lt;a href&gt; &#64;me \\*x\\* \\[y\\](z) a\\|b \\\\"
    assert in_code("a`b``c|d") == "``` a`b``c\\|d ```"
    assert for_xml("a\x00b\ufffe") == "a\\x00b\\ufffe"


# -- the parts ---------------------------------------------------------------------------------


def test_every_verdict_looks_its_own_way() -> None:
    assert [*LOOKS] == [*PRECEDENCE]
    assert len({look.symbol for look in LOOKS.values()}) == len(LOOKS)
    assert all(len(look.symbol) == 1 for look in LOOKS.values())
    style = (ROOT / "harness" / "control" / "report" / "static" / "site.css").read_text()
    assert {look.family for look in LOOKS.values()} <= {*re.findall(r"^\.f-(\w+) ", style, re.MULTILINE)}


def test_the_colours_have_contrast() -> None:
    """Of a symbol on its ground, 4.5 to 1 as WCAG asks of text, in both schemes."""
    style = (ROOT / "harness" / "control" / "report" / "static" / "site.css").read_text()
    light, dark = style.split("prefers-color-scheme: dark")[:2]
    for scheme in (light, dark.partition("\n}\n")[0]):
        colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", scheme))
        for family in {look.family for look in LOOKS.values()}:
            assert contrast(colours[family], colours[f"on-{family}"]) >= 4.5, (family, scheme[:20])
        assert contrast(colours["bg"], colours["muted"]) >= 4.5


def contrast(one: str, other: str) -> float:
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_runs() -> None:
    assert _runs(["a", "a", "b", "a", "c", "c", "c"]) == [["a", "b", "c"], "0*2,1,0,2*3"]
    assert _runs([]) == [[], ""]


@pytest.mark.parametrize(
    ("name", "drivers"),
    [
        (NAIVE, ("engine",)),
        ("trainer_freeze_except_before", ("trainer",)),
        ("trainer_callback_unfreezes", ("trainer",)),
        ("axolotl_freeze_layers_except", ("axolotl",)),
    ],
)
def test_the_road_to_the_engine(name: str, drivers: Sequence[str]) -> None:
    assert drivers_of(find(name)) == drivers


def test_every_driver_is_told_from_the_others() -> None:
    folder = ROOT / "harness" / "drivers"
    known = {path.stem for path in folder.glob("[a-z]*.py")} | {"engine"}
    assert {one for case in shipped() for one in drivers_of(case)} <= known


def test_groups_of_stacks_have_names() -> None:
    stacks = load_matrix(ROOT / "matrix").stacks
    names = ["latest", "ds-0.19.8", "ds-0.14.4", "ds-0.19.8-torch-2.2.2", "era-2026q3", "tf-5.0.0", "not-in-the-matrix"]
    columns = columns_of([observed(name) for name in names], [{}] * len(names), stacks)
    assert [(column.group, column.label) for column in columns] == [
        ("Named", "not-in-the-matrix"),
        ("Named", "latest"),
        ("DeepSpeed", "0.14.4"),
        ("DeepSpeed", "0.19.8"),
        ("DeepSpeed on torch 2.2.2", "0.19.8"),
        ("transformers", "5.0.0"),
        ("Eras", "2026q3"),
    ]


def test_variants_in_words() -> None:
    every = find(NAIVE).variants
    some = {stage: tuple(one for one in every if one.stage == stage) for stage in range(4)}
    assert where_text(every, every) == "every variant"
    assert where_text(some[0], every) == "stage 0"
    assert where_text((*some[1], *some[3]), every) == "stages 1 or 3"
    assert where_text(tuple(one for one in every if one.model == "mlp"), every) == "mlp"
    assert where_text(tuple(one for one in some[3] if one.init == "zero_init"), every) == "zero.Init"
    assert where_text(every[:1], every) == "tiny_llama-z0"


# -- what is written about it --------------------------------------------------------------------


def test_every_command_of_the_documentation_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It parses, and names stacks and cases that there are."""
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in ("docs/atlas.md", "README.md")]
    lines = [line for text in texts for line in re.findall(r"^\$ (.*\b(?:report|diff) .*)$", text, re.MULTILINE)]
    assert len(lines) >= 12
    monkeypatch.chdir(ROOT)
    for line in lines:
        words = shlex.split(line, comments=True)
        words = words[words.index("--") + 1 :] if words[0] == "./toxw" else words[1:]
        args = cli._parser().parse_args(words)
        for name in getattr(args, "stack", None) or ():
            assert (ROOT / "matrix" / "observed" / f"{name}.jsonl").is_file()
        for name in getattr(args, "case", None) or ():
            assert find(name).name == name
        for name in {getattr(args, "a", "latest"), getattr(args, "b", "latest")}:
            path = re.fullmatch(r"\d{4}-\d\d-\d\d|observed|.*/.*|.*\.jsonl", name)
            assert path or (ROOT / "matrix" / "observed" / f"{name}.jsonl").is_file(), name


def test_the_documentation_shows_every_symbol() -> None:
    text = (ROOT / "docs" / "atlas.md").read_text(encoding="utf-8")
    assert {LOOKS[one].symbol for one in SHOWN if LOOKS[one].family != "none"} <= {*re.findall(r"`(.)`", text)}
