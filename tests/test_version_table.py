"""``thawcheck table``: what was observed, cases down, releases or eras across."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from harness.cell import Options, Verdict
from harness.cell._catalog import shipped
from harness.cell.outcome._observed import Observed, Outcome, load_all
from harness.control import cli
from harness.control._table import updated
from harness.control.stacks import load_matrix

ROOT = Path(__file__).resolve().parents[1]

STACKS = """\
[base.b]
python = ["3.11"]
pins.torch = "2.2.2"
pins.deepspeed = "0.11.1"

[sweep.ds]
name = "ds-{version}"
description = "{version}"
label = "deepspeed"
base = "b"
moves = "deepspeed"
range = ">=0.10"
take = "every"

[sweep.elsewhere]
name = "ds-{version}-elsewhere"
description = "{version}"
label = "deepspeed"
base = "b"
moves = "deepspeed"
range = ">=0.11"
take = "every"

[sweep.python]
name = "on-a-python{version}"
description = "{version}"
label = "python"
base = "b"
moves = "python"
values = ["3.9", "3.10"]

[sweep.era]
name = "era-{version}"
description = "{version}"
label = "era"
base = "b"
moves = "as_of"
values = ["2024q1", "2024q2"]
"""

RELEASES = """\
[torch]
"2.2.2" = 2024-03-27
[deepspeed]
"0.9.5" = 2023-06-22
"0.10.0" = 2023-07-17
"0.10.3" = 2023-09-11
"0.11.1" = 2023-10-09
"""

NAIVE = "unfreeze_more_after_engine"
NAIVE_ROW = "freeze part, engine, unfreeze more, across the engine (naive unfreezing)"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "matrix").mkdir()
    (tmp_path / "matrix" / "stacks.toml").write_text(STACKS)
    (tmp_path / "matrix" / "releases.toml").write_text(RELEASES)
    monkeypatch.chdir(tmp_path)
    observe(tmp_path, "ds-0.10.0", {3: "TRAINS"})
    observe(tmp_path, "ds-0.10.3", {1: "RAISES", 3: "NO_UPDATE"})
    observe(tmp_path, "ds-0.11.1", {1: "NO_UPDATE", 2: "RAISES", 3: "TRAINS"})
    observe(tmp_path, "ds-0.11.1-elsewhere", {3: "CRASH"})
    observe(tmp_path, "era-2024q1", {3: "HANG"}, torch="2.2.2+cpu")
    return tmp_path


def observe(folder: Path, stack: str, verdicts: dict[int, str], **versions: str) -> None:
    outcomes = tuple(
        Outcome(NAIVE, Verdict(verdict), (Options(model="mlp", stage=stage),), 2) for stage, verdict in verdicts.items()
    )
    observed = Observed(stack, "1.0", "2026-11-30", "cpu", "0", {"python": "3.11.7", **versions}, outcomes)
    observed.write(folder / "matrix" / "observed" / f"{stack}.jsonl")


def rows(text: str) -> dict[str, list[str]]:
    found = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if " | " in line]
    return {row[0].strip("| "): [cell.strip("| ") for cell in row[1:]] for row in found}


def thawcheck(*arguments: str) -> int:
    return int(cli.main(["table", *arguments]))


@pytest.mark.usefixtures("folder")
def test_columns_are_the_last_of_each_minor_on_their_usual_stack(capsys: pytest.CaptureFixture[str]) -> None:
    """0.10.0 is not the last of its minor, and 0.11.1 stands on another stack as well."""
    assert thawcheck() == 0

    found = rows(capsys.readouterr().out)
    assert found["recipe, moment"] == ["0.10.3", "0.11.1"]
    assert found[NAIVE_ROW] == ["NO_UPDATE", "TRAINS"]
    assert len(found) == 1 + len({f"{case.recipe}, {case.moment}" for case in shipped()})


@pytest.mark.parametrize(("by", "heads"), [("deepspeed", ["0.10.3", "0.11.1"]), ("python", ["3.9", "3.10"])])
def test_what_the_stacks_are_called_decides_no_column(
    folder: Path, capsys: pytest.CaptureFixture[str], by: str, heads: list[str]
) -> None:
    stacks = folder / "matrix" / "stacks.toml"
    stacks.write_text(STACKS.replace('"ds-{version}"', '"on-ds{version}"'))
    for name in ("on-ds0.10.3", "on-ds0.11.1", "on-a-python3.9", "on-a-python3.10"):
        observe(folder, name, {3: "TRAINS"})

    assert thawcheck("--by", by) == 0

    found = rows(capsys.readouterr().out)
    assert found["recipe, moment"] == heads
    assert found[NAIVE_ROW] == ["TRAINS", "TRAINS"]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--check"], "--check says whether the tables of a file are fresh: give it by --update FILE"),
        (["--update", "page.md", "--by", "era"], "--by, --stage and --file are said by the marks in page.md; leave"),
        (["--update", "page.md", "--stage", "1"], "--by, --stage and --file are said by the marks in page.md; leave"),
        (["--update", "page.md", "--check"], "page.md cannot be read: "),
    ],
)
def test_options_that_do_not_go_together(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    assert thawcheck(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"thawcheck: {said}")


def test_a_page_is_written_whole_or_not_at_all(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = folder / "page.md"
    stale = "<!-- table: by deepspeed, stage 3 -->\nstale\n<!-- end of table -->\n"
    page.write_text(stale)
    page.chmod(0o640)

    def full(path: Path, text: str, **_: object) -> int:
        path.write_bytes(text.encode()[:9])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        assert thawcheck("--update", "page.md") == 2
    assert capsys.readouterr().err == (
        f"thawcheck: {page} cannot be written: No space left on device; it is as it was\n"
    )
    assert page.read_text() == stale
    assert sorted(one.name for one in folder.iterdir()) == ["matrix", "page.md"]

    (folder / "link.md").symlink_to(page)
    assert thawcheck("--update", "link.md") == 0
    assert (folder / "link.md").is_symlink()
    assert "stale" not in page.read_text()
    assert page.stat().st_mode & 0o777 == 0o640


@pytest.mark.usefixtures("folder")
def test_a_table_may_be_of_some_files_of_cases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = {f"{case.recipe}, {case.moment}" for case in shipped() if case.module == "harness.cases.core"}
    assert thawcheck("--file", "core") == 0
    assert {*rows(capsys.readouterr().out)} - {"recipe, moment"} == first

    page = tmp_path / "page.md"
    page.write_text("<!-- table: by deepspeed, stage 3, of core -->\n<!-- end of table -->\n")
    assert thawcheck("--update", str(page)) == 0
    assert {*rows(page.read_text())} - {"recipe, moment"} == first

    page.write_text(page.read_text().replace("of core", "of cor, rods"))
    assert thawcheck("--update", str(page)) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"thawcheck: {page}: no file of cases is called 'cor'; did you mean 'core'?",
        f"{page}: no file of cases is called 'rods'; did you mean 'roads'?",
    ]


@pytest.mark.usefixtures("folder")
def test_several_stages_in_one_cell_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    thawcheck("--stage", "1", "--stage", "2")

    assert rows(capsys.readouterr().out)[NAIVE_ROW] == ["RAISES", "1 NO_UPDATE, 1 RAISES"]


@pytest.mark.usefixtures("folder")
def test_eras_say_what_they_are_made_of(capsys: pytest.CaptureFixture[str]) -> None:
    """Of those that were observed."""
    thawcheck("--by", "era")

    found = rows(capsys.readouterr().out)
    assert found["recipe, moment"] == ["2024q1"]
    assert found["2024q1"] == ["2.2.2", "-", "-", "-", "-", "-"]


def test_an_unsolvable_stack_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    observed = Observed("ds-0.11.1", "1.0", "2026-11-30", "cpu", "0", {}, (), "cannot be built")
    observed.write(folder / "matrix" / "observed" / "ds-0.11.1.jsonl")

    thawcheck()

    assert rows(capsys.readouterr().out)[NAIVE_ROW] == ["NO_UPDATE", "UNSOLVABLE"]


def test_tables_of_a_file_are_made_anew_between_their_marks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = folder / "page.md"
    page.write_text("before\n<!-- table: by deepspeed, stage 3 -->\nstale\n<!-- end of table -->\nafter\n")

    assert thawcheck("--update", "page.md", "--check") == 1
    assert "page.md does not show what was observed" in capsys.readouterr().out
    assert "stale" in page.read_text()
    assert thawcheck("--update", "page.md") == 0

    text = page.read_text()
    assert text.startswith("before\n<!-- table: by deepspeed, stage 3 -->\n| recipe, moment |")
    assert text.endswith("|\n<!-- end of table -->\nafter\n")
    assert "stale" not in text
    assert thawcheck("--update", "page.md", "--check") == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no table", "page.md has no table between <!-- table: by deepspeed, stage 3 -->"),
        ("<!-- table: by moon, stage 3 -->\n<!-- end of table -->", "there is no table by moon; there is: axolotl, "),
    ],
)
def test_a_file_without_a_table(folder: Path, capsys: pytest.CaptureFixture[str], text: str, said: str) -> None:
    (folder / "page.md").write_text(text)

    assert thawcheck("--update", "page.md") == 2
    assert said in capsys.readouterr().err


def test_a_broken_observation_is_told_with_file_and_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "matrix" / "observed" / "ds-0.10.3.jsonl"
    path.write_text(path.read_text()[:-20])

    assert thawcheck() == 2
    assert f"{path}:3: is no JSON" in capsys.readouterr().err


def test_readme_shows_what_was_observed() -> None:
    matrix = load_matrix(ROOT / "matrix")
    text = (ROOT / "README.md").read_text(encoding="utf-8")

    assert updated(text, matrix, load_all(matrix.folder / "observed"), "README.md") == text
