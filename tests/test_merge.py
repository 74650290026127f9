"""``thawcheck merge``: what several machines measured becomes one folder, or nothing is written."""

from __future__ import annotations

import errno
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from small_matrix import observed, outcome

from harness.cell import Options, Verdict
from harness.cell.outcome._observed import Observed, Outcome, read_observed
from harness.cell.outcome._record import Failure
from harness.control._exit import Exit
from harness.control.cli import main

TRAINS: Final = outcome("late", Verdict.TRAINS, 0)
NO_UPDATE: Final = outcome("late", Verdict.NO_UPDATE, 1, 2, parameters=("layers.2.weight",))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(folder: str, *stacks: Observed) -> None:
    for one in stacks:
        one.write(Path(folder) / f"{one.stack}.jsonl")


def contents(folder: str = "into") -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(Path(folder).rglob("*")) if path.is_file()}


def text(one: Observed) -> str:
    return "".join(f"{line}\n" for line in one.lines())


def merge(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(["merge", *arguments, "--into", "into"]) == Exit.OK
    out, err = capsys.readouterr()
    assert err == ""
    return out.splitlines()


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """The faults, with nothing written."""
    before = contents()
    assert main(["merge", *arguments, "--into", "into"]) == Exit.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert contents() == before
    return err.splitlines()


# -- joined ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("here")
def test_folders_and_files_are_joined(capsys: pytest.CaptureFixture[str]) -> None:
    stacks = [observed(f"ds-0.{number}.0", TRAINS, NO_UPDATE) for number in range(4)]
    put("artifacts/observed-1/observed", stacks[0])
    put("artifacts/observed-2/observed", stacks[1])
    put("one", stacks[2])
    put("into", stacks[3])
    Path("artifacts/observed-1/ds-0.0.0.log").write_text("not a stack", encoding="utf-8")
    assert merge(capsys, "artifacts", "one/ds-0.2.0.jsonl") == [
        "3 added, 0 replaced, 0 unchanged",
        "added: ds-0.0.0, ds-0.1.0, ds-0.2.0",
    ]
    assert contents() == {f"{one.stack}.jsonl": text(one) for one in stacks}


@pytest.mark.usefixtures("here")
def test_what_came_takes_the_place_of_what_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    there = [observed("a", TRAINS), observed("b", NO_UPDATE, day="2026-11-01"), observed("c", TRAINS)]
    came = [observed("a", TRAINS, day="2026-12-01"), observed("b", TRAINS), observed("c", TRAINS)]
    put("into", *there)
    put("came", *came)
    assert merge(capsys, "came") == ["0 added, 1 replaced, 2 unchanged", "replaced: b"]
    # Of what saw the same, the newer head.
    assert contents() == {f"{one.stack}.jsonl": text(one) for one in came}
    assert merge(capsys, "came") == ["0 added, 0 replaced, 3 unchanged"]


@pytest.mark.usefixtures("here")
def test_of_two_that_saw_the_same_the_newest_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    old, new = observed("a", TRAINS, harness="1.0.dev9"), observed("a", TRAINS, harness="1.0.dev10", lock="other")
    newest = observed("b", TRAINS, day="2026-12-01", harness="0+unknown")
    put("one", old, newest)
    put("two", new, observed("b", TRAINS, harness="2.0"))
    for into, sources in {"into": ("one", "two"), "again": ("two", "one")}.items():
        assert main(["merge", *sources, "--into", into]) == Exit.OK
        assert contents(into) == {"a.jsonl": text(new), "b.jsonl": text(newest)}
    capsys.readouterr()
    # An older head comes too late.
    assert merge(capsys, "one/a.jsonl") == ["0 added, 0 replaced, 1 unchanged"]
    assert contents()["a.jsonl"] == text(new)


@pytest.mark.usefixtures("here")
def test_other_texts_of_one_outcome_are_kept_apart_from_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """In the order of a file, or joined in lines in another way, outcomes are the same."""
    one, two = outcome("late", Verdict.TRAINS, 0), outcome("late", Verdict.TRAINS, 1)
    put("one", observed("a", one, two))
    put("two", observed("a", outcome("late", Verdict.TRAINS, 1, 0)))
    assert merge(capsys, "one", "two") == ["1 added, 0 replaced, 0 unchanged", "added: a"]


# -- refused ---------------------------------------------------------------------------------


def _raised(message: str) -> Outcome:
    return outcome("early", Verdict.RAISES, 3, failure=Failure("engine", "IndexError", message))


@pytest.mark.usefixtures("here")
def test_two_that_saw_different_things_are_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    five = outcome("late", Verdict.TRAINS, 0, 1, 2)
    put("one", observed("a", five, _raised("list index")), observed("b", TRAINS), observed("c", TRAINS))
    put("two", observed("a", NO_UPDATE, _raised("index"), day="2026-12-01", lock="ffff"))
    put("three", observed("b", unsolvable="no wheel", day="2026-12-02"), observed("c", TRAINS, device="cuda"))
    assert refused(capsys, "one", "two", "three") == [
        "thawcheck: nothing is merged:",
        (
            "one/a.jsonl and two/a.jsonl differ in early[mlp-z3-plain-persist_zero] (RAISES and RAISES), "
            "late[mlp-z0] (TRAINS and no result), late[mlp-z1] (TRAINS and NO_UPDATE) and 1 more, "
            "by the locks 0123456789abcdef and ffff; --newest keeps the one of 2026-12-01, two/a.jsonl"
        ),
        "one/b.jsonl and three/b.jsonl: solved and UNSOLVABLE; --newest keeps the one of 2026-12-02, three/b.jsonl",
        "one/c.jsonl was measured on cpu and three/c.jsonl on cuda: merge them into two folders",
    ]
    assert refused(capsys, "one", "two", "three", "--newest") == [
        "thawcheck: nothing is merged:",
        "one/c.jsonl was measured on cpu and three/c.jsonl on cuda: merge them into two folders",
    ]
    merge(capsys, "one/a.jsonl", "one/b.jsonl", "two", "three/b.jsonl", "--newest")
    assert [read_observed(Path(f"into/{one}.jsonl")).measured for one in "ab"] == ["2026-12-01", "2026-12-02"]


@pytest.mark.usefixtures("here")
def test_without_a_newest_newest_does_not_help(capsys: pytest.CaptureFixture[str]) -> None:
    put("one", observed("a", TRAINS, harness="1"))
    put("two", observed("a", outcome("late", Verdict.NO_GRAD, 0), harness="2"))
    assert refused(capsys, "one", "two", "--newest") == [
        "thawcheck: nothing is merged:",
        (
            "one/a.jsonl and two/a.jsonl differ in late[mlp-z0] (TRAINS and NO_GRAD); "
            "both are of 2026-11-30, so neither is the newest"
        ),
    ]


@pytest.mark.usefixtures("here")
def test_an_older_measurement_does_not_take_the_place_of_a_newer(capsys: pytest.CaptureFixture[str]) -> None:
    there = observed("a", TRAINS, day="2026-12-01")
    put("into", there)
    put("came", observed("a", NO_UPDATE), observed("b", TRAINS))
    assert refused(capsys, "came") == [
        "thawcheck: nothing is merged:",
        (
            "into/a.jsonl and came/a.jsonl differ in late[mlp-z0] (TRAINS and no result), "
            "late[mlp-z1] (no result and NO_UPDATE), late[mlp-z2] (no result and NO_UPDATE); "
            "what came is older: --newest keeps the one of 2026-12-01, into/a.jsonl"
        ),
    ]
    assert merge(capsys, "came", "--newest") == ["1 added, 0 replaced, 1 unchanged", "added: b"]
    assert contents()["a.jsonl"] == text(there)


@pytest.mark.usefixtures("here")
def test_of_one_day_what_came_takes_no_place_unless_it_is_told_to(capsys: pytest.CaptureFixture[str]) -> None:
    put("into", observed("a", TRAINS), observed("b", TRAINS))
    came = observed("a", outcome("late", Verdict.NO_GRAD, 0))
    put("came", came, observed("b", TRAINS, harness="2.0"))
    assert refused(capsys, "came") == [
        "thawcheck: nothing is merged:",
        (
            "into/a.jsonl and came/a.jsonl differ in late[mlp-z0] (TRAINS and NO_GRAD); "
            "both are of 2026-11-30: --newest keeps what came, came/a.jsonl"
        ),
    ]
    assert merge(capsys, "came", "--newest") == ["0 added, 1 replaced, 1 unchanged", "replaced: a"]
    assert contents()["a.jsonl"] == text(came)


def _lines(path: str, change: dict[int, str]) -> None:
    """Change some lines of a file."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    for number, line in change.items():
        lines[number - 1] = line
    Path(path).write_text("\n".join(lines), encoding="utf-8")


@pytest.mark.usefixtures("here")
def test_faults_of_all_sources_come_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    put("one", *(observed(name, TRAINS, NO_UPDATE) for name in ("good", "cut", "short", "future", "named", "twice")))
    put("into", observed("old", TRAINS))
    Path("one/cut.jsonl").write_bytes(Path("one/cut.jsonl").read_bytes()[:-20])
    Path("one/short.jsonl").write_text(
        "\n".join(Path("one/short.jsonl").read_text(encoding="utf-8").splitlines()[:2]) + "\n", encoding="utf-8"
    )
    head = json.loads(Path("one/future.jsonl").read_text(encoding="utf-8").splitlines()[0])
    _lines("one/future.jsonl", {1: json.dumps({**head, "observed": 7, "harness": "9.0"})})
    _lines("one/named.jsonl", {1: json.dumps({**head, "versions": ["torch"], "lock": 7}), 2: '"words"'})
    _lines("one/twice.jsonl", {3: json.dumps(outcome("late", Verdict.HANG, 0).as_dict())})
    Path("results.jsonl").write_text('{"case": "late"}\n', encoding="utf-8")
    Path("into/broken.jsonl").write_text("", encoding="utf-8")
    said = refused(capsys, "one", "results.jsonl", "nowhere", "nothing.jsonl")

    def again(stack: str) -> str:
        return f"measure the stack again: thawcheck sweep {stack} --again"

    assert said == [
        "thawcheck: nothing is merged:",
        "nowhere: there is no such file or folder",
        "nothing.jsonl: there is no such file or folder",
        f"one/cut.jsonl:3: is no JSON, perhaps cut off by a kill; {again('cut')}",
        (
            "one/future.jsonl:1: format 7, written by 9.0; this thawcheck reads format 1: "
            "measure the stack again, or use the thawcheck that wrote it"
        ),
        "one/named.jsonl:2: must be a JSON object, found '\"words\"'",
        "one/named.jsonl:1: lock must be a text, found 7",
        "one/named.jsonl:1: versions must be packages and versions, found ['torch']",
        "one/named.jsonl:1: is of stack 'future', but the file is called 'named'",
        f"one/short.jsonl:1: says 2 outcomes, and 1 follow; {again('short')}",
        "one/twice.jsonl:3: late[mlp-z0] has an outcome in line 2 already",
        f"results.jsonl:1: the first line must say what was observed, and does not; {again('results')}",
        f"into/broken.jsonl:1: the first line must say what was observed, and does not; {again('broken')}",
    ]


@pytest.mark.usefixtures("here")
def test_sources_with_nothing_in_them(capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty").mkdir()
    assert refused(capsys, "empty") == ["thawcheck: there is no .jsonl file in empty"]
    put("one", observed("a", TRAINS))
    # A shard that measured nothing does not keep the others.
    assert merge(capsys, "empty", "one") == ["1 added, 0 replaced, 0 unchanged", "added: a"]
    Path("file").touch()
    assert main(["merge", "one", "--into", "file"]) == Exit.USAGE
    assert capsys.readouterr().err == "thawcheck: --into: file is no folder\n"


@pytest.mark.usefixtures("here")
def test_a_full_disk_leaves_all_as_it_was(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    put("into", observed("a", TRAINS, day="2026-01-01"))
    put("one", observed("a", NO_UPDATE), observed("b", TRAINS))
    written: list[Path] = []
    write = Observed.write

    def full(one: Observed, path: Path) -> None:
        if written:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(path)
        write(one, path)

    monkeypatch.setattr(Observed, "write", full)
    assert refused(capsys, "one") == [
        "thawcheck: cannot be written to into: No space left on device; what was there is as it was"
    ]
    assert sorted(path.name for path in Path("into").iterdir()) == ["a.jsonl"]


@pytest.mark.usefixtures("here")
def test_what_took_its_place_before_a_fault_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = [observed(name, TRAINS, day="2026-01-01") for name in "abc"]
    came = [observed(name, NO_UPDATE) for name in "abc"]
    put("into", *there)
    put("came", *came)
    replace = Path.replace

    def broken(path: Path, target: Path) -> Path:
        if target == Path("into/b.jsonl"):
            raise OSError(errno.EIO, "Input/output error")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", broken)
    assert main(["merge", "came", "--into", "into"]) == Exit.USAGE
    assert capsys.readouterr().err == (
        "thawcheck: cannot be written to into: Input/output error; already merged: a; all else is as it was; "
        "merge again once that is mended\n"
    )
    assert contents() == {f"{one.stack}.jsonl": text(one) for one in (came[0], *there[1:])}


def test_an_outcome_reads_back_as_it_was_written(tmp_path: Path) -> None:
    several: Sequence[Outcome] = (TRAINS, NO_UPDATE, _raised("x"))
    one = observed("a", *several)
    one.write(tmp_path / "a.jsonl")
    again = read_observed(tmp_path / "a.jsonl")
    assert again.outcomes == tuple(several)
    assert [record.id for record in again.records()] == [
        f"{each.case}[{options.id}]" for each in several for options in each.variants
    ]
    assert again.key()["early", Options(model="mlp").id].failure == Failure("engine", "IndexError", "x")
