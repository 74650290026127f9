"""The results file: a line as soon as it is measured, one writer, and nothing that was there is lost."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from rank_world import PATIENCE, World, wait_for

from harness.cell.outcome._results import ResultsError, ResultsFile, as_line, read_results
from harness.cell.ranks._scratch import sweep

#: On stand-ins: three cases that answer, the first at once, the last when it is told to.
CASES: Final = """\
import os, time
from pathlib import Path
from harness.cell import Options, case

STAGES = [Options(model="mlp", stage=stage) for stage in (0, 1)]


class Answer(Exception):
    pass


@case(kind="CONTROL", world=1, variants=STAGES)
def answers(run):
    raise Answer("here")


@case(kind="CONTROL", world=1, variants=STAGES[:1])
def waits(run):
    while not Path(os.environ["GO"]).exists():
        time.sleep(0.02)
        run.reach("waiting")
    raise Answer("at last")
"""


@pytest.fixture
def file(tmp_path: Path) -> Iterator[ResultsFile]:
    opened = ResultsFile(tmp_path / "below" / "out.jsonl")
    yield opened
    opened.close()


def names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


# -- lines -----------------------------------------------------------------------------------


def test_each_line_is_on_disk_as_soon_as_it_is_written(file: ResultsFile) -> None:
    for number in range(3):
        file.write({"number": number})
        assert read_results(file.path) == [{"number": one} for one in range(number + 1)]
    assert file.written == 3


def test_a_line_cut_off_by_a_kill_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(b'{"number":0}\n{"number":1}\n{"num')
    assert read_results(path) == [{"number": 0}, {"number": 1}]
    path.write_bytes(b'{"num')
    assert read_results(path) == []


def test_any_text_makes_a_line_that_any_reader_of_json_takes() -> None:
    record = {"text": "é \u2028 \x00 \n \udc80 \U0001f600", "nan": float("nan"), "list": [float("-inf"), 1.5, ("a",)]}
    line = as_line(record)
    assert "\n" not in line
    assert "é" in line

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    told = json.loads(line.encode("utf-8"), parse_constant=refuse)
    assert told == {"text": record["text"], "nan": None, "list": [None, 1.5, ["a"]]}


# -- what an earlier run left ----------------------------------------------------------------


def test_an_earlier_file_is_kept_under_its_date(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    for number in range(3):
        path.write_text(f"{number}\n", encoding="utf-8")
        os.utime(path, (1_800_000_000, 1_800_000_000))
        file = ResultsFile(path)
        assert path.read_text(encoding="utf-8") == f"{number}\n", "it stays until there is something to put instead"
        file.write({"number": number})
        file.close()
    kept = [one for one in names(tmp_path) if one != "out.jsonl"]
    assert len(kept) == 3
    assert all(re.fullmatch(r"out\.20270115-\d{6}(-\d)?\.jsonl", one) for one in kept), kept
    assert sorted((tmp_path / one).read_text(encoding="utf-8") for one in kept) == ["0\n", "1\n", "2\n"]
    assert read_results(path) == [{"number": 2}]


def test_a_run_without_results_leaves_the_earlier_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("{}\n", encoding="utf-8")
    ResultsFile(path).close()
    assert names(tmp_path) == ["out.jsonl"]
    assert path.read_text(encoding="utf-8") == "{}\n"


def test_an_empty_file_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").touch()
    file = ResultsFile(tmp_path / "out.jsonl")
    file.write({})
    file.close()
    assert names(tmp_path) == ["out.jsonl"]


# -- one writer ------------------------------------------------------------------------------


def test_a_second_writer_is_refused_and_told_who_the_first_is(file: ResultsFile) -> None:
    with pytest.raises(ResultsError) as refused:
        ResultsFile(file.path)
    assert str(refused.value) == (
        f"another run (process {os.getpid()}) is writing {file.path}; wait for it, or name another file"
    )
    file.write({"number": 1})
    assert read_results(file.path) == [{"number": 1}]


def test_what_a_killed_writer_left_locks_nobody_out(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    program = f"""
import os, signal
from pathlib import Path
from harness.cell.outcome._results import ResultsFile
file = ResultsFile(Path({str(path)!r}))
file.write({{"number": 1}})
os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", program], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert names(tmp_path) == [".out.jsonl.lock", "out.jsonl"]
    file = ResultsFile(path)
    file.write({"number": 2})
    file.close()
    assert read_results(path) == [{"number": 2}]
    assert len(names(tmp_path)) == 2


def test_a_lock_that_its_owner_removes_meanwhile_is_no_lock(file: ResultsFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run ends between the moments when the second opens its lock and takes it."""
    take = ResultsFile._take
    opened: list[int] = []

    def end_first(self: ResultsFile, lock: Any) -> None:
        if not opened:
            file.close()
        opened.append(os.fstat(lock.fileno()).st_ino)
        take(self, lock)

    monkeypatch.setattr(ResultsFile, "_take", end_first)
    second = ResultsFile(file.path)
    monkeypatch.undo()
    with pytest.raises(ResultsError, match="another run"):
        ResultsFile(file.path)
    second.close()
    assert len(opened) == 2


# -- a full disk -----------------------------------------------------------------------------


def test_a_full_disk_leaves_whole_lines_and_says_so(file: ResultsFile) -> None:
    """A limit on the size of files stands for it: the kernel writes what fits, and then refuses."""
    for number in range(3):
        file.write({"number": number})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.path.stat().st_size + 5, hard))
    try:
        with pytest.raises(ResultsError) as full:
            file.write({"number": 3})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(full.value) == (
        f"results cannot be written to {file.path}: No space left on device; the 3 lines before are whole"
    )
    assert file.path.read_bytes() == b'{"number":0}\n{"number":1}\n{"number":2}\n'


def test_an_error_at_the_very_write_leaves_whole_lines(file: ResultsFile, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write({"number": 0})
    assert file._file is not None

    class Broken:
        def write(self, _: bytes) -> int:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        def __getattr__(self, name: str) -> Any:
            return getattr(opened, name)

    opened = file._file
    monkeypatch.setattr(file, "_file", Broken())
    with pytest.raises(ResultsError, match=r"Input/output error; the 1 line before is whole"):
        file.write({"number": 1})
    assert read_results(file.path) == [{"number": 0}]


# -- in a session ----------------------------------------------------------------------------


def test_results_survive_a_kill_and_a_second_run_is_refused(
    pytester: pytest.Pytester, quick: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second, while the first is under way; then the first is killed in the middle of a case."""
    monkeypatch.setenv("GO", str(pytester.path / "go"))
    pytester.makepyfile(test_mine=CASES)
    path = pytester.path / "out.jsonl"
    path.write_text('{"earlier":true}\n', encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "--thaw-results=out.jsonl"]
    with subprocess.Popen(command, cwd=pytester.path, stdout=subprocess.DEVNULL) as first:
        assert wait_for(lambda: len(read_results(path)) == 2)
        second = subprocess.run(
            command, cwd=pytester.path, capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        assert second.returncode == pytest.ExitCode.USAGE_ERROR
        assert second.stderr.splitlines() == [
            f"ERROR: another run (process {first.pid}) is writing out.jsonl; wait for it, or name another file",
            "",
        ]
        assert first.poll() is None
        first.kill()
    assert [one["id"] for one in read_results(path)] == ["answers[mlp-z0]", "answers[mlp-z1]"]
    kept = [one for one in pytester.path.glob("out.*.jsonl") if one != path]
    assert [one.read_text(encoding="utf-8") for one in kept] == ['{"earlier":true}\n']
    assert wait_for(lambda: not quick.strays())
    sweep()  # as the next start does
    assert quick.left() == {}


def test_a_session_goes_on_undisturbed_beside_a_refused_one(
    pytester: pytest.Pytester, quick: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    del quick
    go = pytester.path / "go"
    monkeypatch.setenv("GO", str(go))
    pytester.makepyfile(test_mine=CASES)
    path = pytester.path / "out.jsonl"
    path.touch()
    command = [sys.executable, "-m", "pytest", "--thaw-results=out.jsonl"]
    with subprocess.Popen(command, cwd=pytester.path, stdout=subprocess.DEVNULL) as first:
        assert wait_for(lambda: len(read_results(path)) == 2)
        subprocess.run(command, cwd=pytester.path, capture_output=True, check=False, timeout=PATIENCE)
        go.touch()
        first.wait(PATIENCE)
    assert [one["id"] for one in read_results(path)] == ["answers[mlp-z0]", "answers[mlp-z1]", "waits[mlp-z0]"]
    assert [one.name for one in pytester.path.glob(".*.lock")] == []
