"""``thawcheck sweep``: measures what is left, keeps what is done, and leaves nothing behind."""

from __future__ import annotations

import dataclasses
import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from rank_world import PATIENCE
from small_matrix import observed, solve
from sweep_world import ORDER, Checkout, finished, gone

from harness.cell._catalog import shipped
from harness.cell.outcome._observed import Observed, Outcome, load_all, read_observed
from harness.cell.outcome._verdict import Verdict
from harness.control._exit import Exit
from harness.control.cli import main
from harness.control.locks import read_lock
from harness.control.sweep import Shard, _measure, ordered, room_needed
from harness.control.sweep._guard import guarded

VARIANTS: Final = sum(len(case.variants) for case in shipped())


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Checkout]:
    made = Checkout(tmp_path / "checkout")
    yield made
    made.close()


# -- what is measured ------------------------------------------------------------------------


def test_a_sweep_measures_all_and_then_what_is_left(checkout: Checkout) -> None:
    checkout.how("ds-0.17.0", "twice")
    first = checkout.sweep()
    assert (first.status, first.err) == (Exit.OK, [])
    assert first.out[0] == "5 stacks, 0 measured already, 5 to go"
    assert checkout.ran() == ORDER
    counts = f"{VARIANTS - counted(1) - counted(2)} TRAINS"
    for number, (line, stack) in enumerate(zip(first.out[1:], ORDER, strict=True), 1):
        assert re.fullmatch(rf"\[{number}/5\] {stack}: {counts}, .*\(\d+ s; about \d+ min left\)", line), line
    seen = load_all(checkout.matrix.folder / "observed")
    assert sorted(seen) == sorted(ORDER)
    one = seen["ds-0.17.0"]
    lock, _ = read_lock(checkout.matrix.lock("ds-0.17.0"))
    assert lock is not None
    assert (one.lock, one.harness, one.measured, one.device) == (lock.answer, "1.0", "2026-11-30", "cpu")
    assert one.versions == {**lock.versions, "python": "3.11.7"}
    assert len(one.key()) == VARIANTS
    assert {str(each.verdict) for each in one.outcomes} == {"TRAINS", "NO_UPDATE", "RAISES"}
    (raises,) = (each for each in one.outcomes if each.failure)
    assert raises.failure is not None
    assert raises.failure.message == "in .../module.py at 0x..."
    assert checkout.left() == []

    # Done is what was measured by the lock that the stack has now, and can be read.
    checkout.matrix.observed("latest").unlink()
    observed("ds-0.19.0", lock="older").write(checkout.matrix.observed("ds-0.19.0"))
    checkout.matrix.observed("torch-2.13.0").write_text('{"observed', encoding="utf-8")
    before = checkout.bytes_of("matrix/observed")
    again = checkout.sweep()
    assert again.out[0] == "5 stacks, 2 measured already, 3 to go"
    assert checkout.ran() == ["latest", "ds-0.19.0", "torch-2.13.0"]
    after = checkout.bytes_of("matrix/observed")
    assert {name for name in before if before[name] == after[name]} == {"torch-2.2.1.jsonl", "ds-0.17.0.jsonl"}
    assert checkout.sweep().out == ["5 stacks, 5 measured already, 0 to go"]
    assert checkout.ran() == []
    assert checkout.sweep("latest", "--again", "--keep").status == Exit.OK
    assert checkout.ran() == checkout.left() == ["latest"]


def counted(number: int) -> int:
    return len(shipped()[number].variants)


def test_new_cases_are_measured_alone(checkout: Checkout) -> None:
    checkout.sweep("latest")
    checkout.ran()
    path = checkout.matrix.observed("latest")
    whole, seen = path.read_bytes(), read_observed(path)
    some, many = shipped()[1], next(case for case in shipped()[3:] if len(case.variants) > 1)
    holes = (
        dataclasses.replace(one, variants=one.variants[1:]) if one.case == many.name else one
        for one in seen.outcomes
        if one.case != some.name
    )
    gone = Outcome("taken_out_since", Verdict.TRAINS, some.variants[:1], 2)
    dataclasses.replace(seen, outcomes=(*holes, gone)).write(path)

    asked = ["--case", some.name, "--case", many.name]
    assert checkout.sweep("latest", "--dry-run").out[1] == f"  latest: {some.name}, {many.name}"
    ran = checkout.sweep("latest")

    assert ran.out[0] == "1 stacks, 0 measured already, 1 to go"
    for counts in (f"{len(some.variants)} NO_UPDATE", f"{len(many.variants)} TRAINS"):
        assert re.search(rf"[:,] {counts}[, ]", ran.out[1])
    assert checkout.ran() == [":".join(["latest", *asked[1::2]])]
    assert path.read_bytes() == whole
    # What was asked for again is measured again, and the rest left as it was.
    assert checkout.sweep("latest", "--again", "--case", some.name).status == Exit.OK
    assert checkout.ran() == [f"latest:{some.name}"]
    assert path.read_bytes() == whole
    # What the case did when it was measured was something else.
    stale = [dataclasses.replace(one, code="00000000") if one.case == some.name else one for one in seen.outcomes]
    dataclasses.replace(seen, outcomes=tuple(stale)).write(path)
    checkout.sweep("latest")
    assert checkout.ran() == [f"latest:{some.name}"]
    assert path.read_bytes() == whole
    # By another lock, nothing that is known holds.
    dataclasses.replace(seen, lock="older").write(path)
    checkout.sweep("latest")
    assert checkout.ran() == ["latest"]
    assert path.read_bytes() == whole


def test_an_unsolvable_stack_is_an_outcome(checkout: Checkout) -> None:
    solve(checkout.matrix, unsolvable={"latest": "no wheel for Python 3.11"})
    ran = checkout.sweep("latest")
    assert (ran.status, checkout.ran()) == (Exit.OK, [])
    assert ran.out[1].startswith("[1/1] latest: UNSOLVABLE: no wheel for Python 3.11 (")
    seen = read_observed(checkout.matrix.observed("latest"))
    assert (seen.unsolvable, seen.outcomes, seen.versions) == ("no wheel for Python 3.11", (), {})
    assert checkout.sweep("latest").out == ["1 stacks, 1 measured already, 0 to go"]


def test_two_stacks_may_be_under_way_at_once(checkout: Checkout) -> None:
    checkout.how("ds-0.17.0", "hang")
    checkout.how("ds-0.19.0", "hang")
    process = checkout.start("-m", "deepspeed", "--jobs", "2")
    pids = [pid for stack in ("ds-0.17.0", "ds-0.19.0") for pid in checkout.hanging(stack)]
    for stack in ("ds-0.17.0", "ds-0.19.0"):
        (checkout.root / "hanging" / stack).unlink()
    assert finished(process).status == Exit.OK
    assert gone(pids)
    assert sorted(load_all(checkout.matrix.folder / "observed")) == ["ds-0.17.0", "ds-0.19.0"]


# -- what is not measured --------------------------------------------------------------------


def test_a_stack_that_fails_does_not_keep_the_others(checkout: Checkout) -> None:
    for stack, does in {"latest": "fail", "ds-0.17.0": "short", "ds-0.19.0": "broken", "torch-2.13.0": "mixed"}.items():
        checkout.how(stack, does)
    ran = checkout.sweep()
    assert ran.status == Exit.FAILED
    log = checkout.root / "results" / "sweep" / "latest.log"
    assert ran.err[:3] == [
        f"thawcheck: not measured: latest: no results, tox left with 7; the end of {log}:",
        "  line 6",
        "  line 7",
    ]
    assert ran.err[15] == "  line 20"
    assert re.fullmatch(
        rf"thawcheck: not measured: ds-0\.17\.0: 3 of {VARIANTS} variants have no result \(.*\[.*\], .* \.\.\.\), "
        rf"tox left with 1; the end of {log.with_name('ds-0.17.0.log')}:",
        ran.err[16],
    )
    assert ran.err[17] == "  stopped early"
    assert ran.err[18].startswith("thawcheck: not measured: ds-0.19.0: its results cannot be read: JSONDecodeError: ")
    assert ran.err[19:] == [
        "thawcheck: not measured: torch-2.13.0: the results are of more than one set of versions",
        "not measured: latest, ds-0.17.0, ds-0.19.0, torch-2.13.0; run the same command again",
    ]
    assert sorted(load_all(checkout.matrix.folder / "observed")) == ["torch-2.2.1"]
    assert checkout.left() == []


def test_a_lock_that_does_not_answer_measures_nothing(checkout: Checkout) -> None:
    checkout.matrix.lock("latest").unlink()
    with checkout.matrix.lock("ds-0.17.0").open("a", encoding="utf-8") as file:
        file.write("scipy==1.0\n")
    ran = checkout.sweep("latest", "ds-0.17.0")
    folder = checkout.root / "matrix" / "locks"
    assert (ran.status, checkout.ran()) == (Exit.FAILED, [])
    assert sorted(ran.err[:-1]) == [
        (
            f"thawcheck: not measured: {folder}/ds-0.17.0.txt: was edited by hand after it was solved; "
            "thawcheck lock ds-0.17.0"
        ),
        f"thawcheck: not measured: {folder}/latest.txt: there is no lock file; thawcheck lock latest",
    ]


def test_a_wheel_that_cannot_be_built(checkout: Checkout) -> None:
    (checkout.root / "backend.py").write_text("raise SystemExit('no backend today')\n", encoding="utf-8")
    ran = checkout.sweep()
    assert ran.status == Exit.FAILED
    assert ran.err[0] == "thawcheck: thawcheck's own wheel cannot be built; the end of what uv said:"
    assert "  no backend today" in ran.err
    assert checkout.ran() == []


# -- bad usage, and a bad disk ---------------------------------------------------------------


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["sweep", *arguments]) == Exit.USAGE
    return capsys.readouterr().err.removeprefix("thawcheck: ").rstrip("\n")


@pytest.fixture
def here(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    """To run the command in this process."""
    monkeypatch.chdir(checkout.root)
    return checkout


def test_bad_usage(capsys: pytest.CaptureFixture[str], here: Checkout) -> None:
    assert refused(capsys, "--shard", "0/3") == "--shard: a shard is I/N, as in 2/5, found '0/3'"
    assert refused(capsys, "--jobs", "0") == "--jobs must be 1 or more, found 0"
    known = shipped()[0].name
    assert refused(capsys, "--case", known[:-1], "--case", known).startswith(
        f"--case: no case is called {known[:-1]!r}; did you mean {known!r}"
    )
    assert refused(capsys, "dev-main") == (
        "dev-main: a dev stack has no lock, and what it gives holds for a day: tox run -e dev-main"
    )
    assert refused(capsys, "--into", "toxw") == "--into: toxw is no folder"
    assert refused(capsys, "--into", "toxw/observed") == "nothing can be written to toxw/observed: Not a directory"
    assert here.ran() == []


def test_too_little_disk_is_refused(
    capsys: pytest.CaptureFixture[str], here: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=7 << 30))
    for name in ("UV_TORCH_BACKEND", "UV_FIND_LINKS", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    folder = here.root / "matrix"
    needs = "the sweep needs about {} GB of disk for {} stacks at once and uv's cache, and there are 7 GB free at "
    hint = f"{folder}; free some, or set UV_TORCH_BACKEND=cpu"
    assert refused(capsys) == needs.format(11, 1) + hint
    assert refused(capsys, "--jobs", "2") == needs.format(20, 2) + hint
    assert main(["sweep", "--dry-run"]) == Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines == [lines[0], *(f"  {stack}" for stack in ORDER), "about 11 GB of disk needed, 7 GB free"]
    monkeypatch.setenv("UV_TORCH_BACKEND", "cpu")
    assert room_needed(here.matrix, list(here.matrix.stacks.values())[:3], 2) == 8 << 30
    assert refused(capsys, "--jobs", "2").startswith(needs.format(8, 2))
    # A wheel for CPU that lies ready is no download of CUDA packages.
    monkeypatch.delenv("UV_TORCH_BACKEND")
    monkeypatch.setenv("PIP_FIND_LINKS", f"https://example.org/wheels {here.root}")
    (here.root / "torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl").touch()
    assert room_needed(here.matrix, [here.matrix.stacks["latest"]], 1) == 5 << 30
    assert room_needed(here.matrix, [here.matrix.stacks["torch-2.2.1"]], 1) == 11 << 30
    # uv's cache may be on another disk.
    cache = here.root / "cache"
    monkeypatch.setenv("UV_CACHE_DIR", str(cache / "not" / "there" / "yet"))
    cache.mkdir()
    free = {here.root / "matrix": 99 << 30, cache: 6 << 30}
    monkeypatch.setattr(shutil, "disk_usage", lambda one: usage._replace(free=free[one]))
    assert f" 6 GB free at {cache}; free some" in refused(capsys, "torch-2.2.1")
    free[cache] = 11 << 30
    monkeypatch.setattr("harness.control._sweep._Sweep.run", lambda _: Exit.OK)
    assert main(["sweep", "torch-2.2.1"]) == Exit.OK
    assert here.ran() == []


def test_a_full_disk_loses_no_results(
    capsys: pytest.CaptureFixture[str], here: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Observed.write

    def full(one: Observed, path: Path) -> None:
        if one.stack == "latest":
            raise OSError(errno.ENOSPC, "No space left on device")
        write(one, path)

    monkeypatch.setattr(Observed, "write", full)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    assert main(["sweep", "latest", "ds-0.17.0"]) == Exit.FAILED
    kept = here.root / "results" / "sweep" / "latest.jsonl"
    assert capsys.readouterr().err.splitlines() == [
        (
            f"thawcheck: not measured: latest: cannot be written to {here.root}/matrix/observed/latest.jsonl: "
            f"No space left on device; its results are in {kept}"
        ),
        "not measured: latest; run the same command again",
    ]
    assert len(kept.read_text(encoding="utf-8").splitlines()) == VARIANTS
    assert sorted(load_all(here.matrix.folder / "observed")) == ["ds-0.17.0"]


def test_a_stack_that_takes_for_ever_is_given_up(
    capsys: pytest.CaptureFixture[str], here: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_measure, "_PATIENCE", 3)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    here.how("latest", "hang")
    assert main(["sweep", "latest"]) == Exit.FAILED
    assert capsys.readouterr().err.splitlines()[0] == "thawcheck: not measured: latest: not done after 3 s"
    assert gone(here.hanging("latest"))
    assert here.left() == []


# -- shards ----------------------------------------------------------------------------------


def test_shards_cover_all_each_once(checkout: Checkout) -> None:
    stacks = ordered(checkout.matrix, [one for one in checkout.matrix.stacks.values() if not one.dev])
    for count in range(1, 9):
        parts = [Shard(number, count).take(stacks) for number in range(1, count + 1)]
        assert [one for part in parts for one in part] == stacks
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_three_shards_one_killed_half_way_equal_the_whole(checkout: Checkout, how: signal.Signals) -> None:
    solve(checkout.matrix, unsolvable={"torch-2.13.0": "no wheel"})
    # A stack without a torch comes first.
    order = ["torch-2.13.0", *ORDER[:4]]
    assert checkout.sweep("--into", "whole").status == Exit.OK
    for number in (1, 3):
        assert checkout.sweep("--shard", f"{number}/3", "--into", f"part{number}").status == Exit.OK
    # Its second stack is under way when it is killed, its first is done.
    assert list(checkout.bytes_of("part1")) == [f"{order[0]}.jsonl"]
    # Of what a killed one leaves, not even the first process ends when it is asked to.
    checkout.how(order[2], "deaf" if how is signal.SIGKILL else "hang")
    process = checkout.start("--shard", "2/3", "--into", "part2")
    pids = checkout.hanging(order[2])
    process.send_signal(how)
    ended = finished(process)
    if how is signal.SIGTERM:
        assert (ended.status, ended.err) == (
            Exit.INTERRUPTED,
            ["thawcheck: interrupted; nothing that it started is left running"],
        )
        assert gone(pids)
        assert checkout.left() == []
    assert ended.out[0] == "2 stacks, 0 measured already, 2 to go"
    assert list(checkout.bytes_of("part2")) == [f"{order[1]}.jsonl"]

    # At once: it waits for the end of what the killed one left.
    checkout.how(order[2], "")
    again = checkout.sweep("--shard", "2/3", "--into", "part2")
    assert (again.status, again.err, again.out[0]) == (Exit.OK, [], "2 stacks, 1 measured already, 1 to go")
    assert gone(pids)
    assert checkout.left() == []
    merged = [sys.executable, "-m", "harness.control.cli", "merge", "part1", "part2", "part3", "--into", "merged"]
    done = subprocess.run(merged, cwd=checkout.root, capture_output=True, text=True, check=True, env=environment())
    assert done.stdout.splitlines()[0] == "5 added, 0 replaced, 0 unchanged"
    assert checkout.bytes_of("merged") == checkout.bytes_of("whole")


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def test_two_sweeps_do_not_touch_each_other(checkout: Checkout) -> None:
    checkout.how("latest", "hang")
    first = checkout.start("latest", "ds-0.17.0")
    pids = checkout.hanging("latest")
    second = checkout.sweep("latest", "ds-0.19.0")
    assert (second.status, second.err) == (
        Exit.FAILED,
        [
            f"thawcheck: not measured: latest: another sweep (process {first.pid}) is measuring it",
            "not measured: latest; run the same command again",
        ],
    )
    assert list(checkout.bytes_of("matrix/observed")) == ["ds-0.19.0.jsonl"]
    assert not any(gone([pid]) for pid in pids)
    (checkout.root / "hanging" / "latest").unlink()
    assert finished(first).status == Exit.OK
    assert sorted(load_all(checkout.matrix.folder / "observed")) == ["ds-0.17.0", "ds-0.19.0", "latest"]


# -- the guard -------------------------------------------------------------------------------


def test_the_guard_gives_the_status_and_ends_what_stays_behind(tmp_path: Path) -> None:
    stays = "import os, sys, time\nif os.fork():\n    sys.exit(5)\nos.setsid()\n"
    stays += "open('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    process = subprocess.Popen(guarded([sys.executable, "-c", stays]), stdin=subprocess.PIPE, cwd=tmp_path)
    assert process.wait(PATIENCE) == 5
    assert process.stdin is not None
    process.stdin.close()
    pid = tmp_path / "pid"
    assert not pid.exists() or not pid.read_text(encoding="utf-8") or gone([int(pid.read_text(encoding="utf-8"))])
