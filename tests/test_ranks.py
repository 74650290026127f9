"""Ranks: how each way to end is told, one beside another, forked and spawned."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import rank_cases
from rank_world import World, answer, new_world, request, run

from harness.cell import Case, Verdict
from harness.cell.outcome._merge import fill
from harness.cell.ranks import _limits
from harness.cell.ranks._launch import ZygoteLauncher, blank_record

#: Long enough for two busy cores, and short enough for a test that waits for it.
SHORT: Final = 1.5

#: Well before the deadline that would have ended it, too.
AT_ONCE: Final = _limits.PROGRESS / 2


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A world of its own, on stand-ins for the libraries."""
    with new_world(tmp_path) as made:
        made.stand_in()
        yield made


# -- outcomes, with the real libraries -------------------------------------------------------


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_any_number_of_ranks_trains(launcher: ZygoteLauncher, world: int) -> None:
    record = run(launcher, rank_cases.sums_ranks, world=world)
    assert record.verdict is Verdict.TRAINS, record.headline
    assert record.world == world
    assert [json.loads(note)["sum"] for note in record.notes] == [world * (world + 1) / 2]


def test_a_hang_at_the_default_deadline_is_told_within_15_seconds_while_others_run(
    launcher: ZygoteLauncher,
) -> None:
    """Concurrent jobs, answered in any order; the deadline of one is not another's."""
    hangs = launcher.submit(request(rank_cases.blocks_in_a_collective, world=2))
    trains = launcher.submit(request(rank_cases.sums_ranks, world=2))
    raises = launcher.submit(request(rank_cases.raises_on_the_last_rank, world=2))
    assert launcher.result(raises).record.verdict is Verdict.RAISES
    assert launcher.result(trains).record.verdict is Verdict.TRAINS
    assert not launcher.done(hangs)
    record = launcher.result(hangs).record
    assert record.verdict is Verdict.HANG, record.headline
    assert _limits.PROGRESS <= record.seconds["total"] < 15
    assert "no rank made progress for 10 s" in record.headline


def test_hangs_show_the_stack_of_every_rank(launcher: ZygoteLauncher) -> None:
    """Blocked in a collective that the others never enter, spinning, asleep."""
    lines = {
        rank_cases.blocks_in_a_collective: ["in wait_for_others", "in sleep_for_ever"],
        rank_cases.spins: ["in wait_for_others", "in spin_for_ever"],
        rank_cases.sleeps: ["in sleep_for_ever", "in sleep_for_ever"],
    }
    tickets = {case: launcher.submit(request(case, world=2, deadline=SHORT)) for case in lines}
    for case, ticket in tickets.items():
        record = launcher.result(ticket).record
        assert record.verdict is Verdict.HANG, record.headline
        assert record.failure is not None
        assert record.failure.ranks == [0, 1]
        assert sorted(record.stacks) == ["0", "1"]
        for rank, line in enumerate(lines[case]):
            assert line in record.stacks[str(rank)]
            assert f"in {case.name}" in record.stacks[str(rank)]


def test_a_stopped_process_is_a_hang(launcher: ZygoteLauncher) -> None:
    """It cannot tell its stack, and is ended all the same."""
    record = run(launcher, rank_cases.stops_itself, world=1, deadline=SHORT)
    assert record.verdict is Verdict.HANG, record.headline
    assert record.stacks == {}


def test_progress_is_no_hang_however_long_it_takes(launcher: ZygoteLauncher) -> None:
    record = run(launcher, rank_cases.ticks_and_sleeps, world=2, deadline=1.0)
    assert record.verdict is Verdict.HANG, record.headline
    assert record.failure is not None
    assert record.failure.moment == "saved"


@pytest.mark.parametrize(
    ("case", "name", "text"),
    [
        (rank_cases.reads_address_zero, "SIGSEGV", "rank 1 died by SIGSEGV on the way to 'start'"),
        (
            rank_cases.is_killed,
            "SIGKILL",
            "rank 1 died by SIGKILL (the kernel's out-of-memory killer sends it, too) on the way to 'start'",
        ),
        (rank_cases.gets_a_real_time_signal, "SIGRTMIN+3", "rank 1 died by SIGRTMIN+3 on the way to 'start'"),
        (rank_cases.leaves_with_status_3, "exit", "rank 1 left with status 3 without reporting"),
    ],
    ids=lambda value: value.name if isinstance(value, Case) else "",
)
def test_a_death_is_told_at_once_with_its_signal_and_rank(
    launcher: ZygoteLauncher, case: Case, name: str, text: str
) -> None:
    record = run(launcher, case, world=2)
    assert record.verdict is Verdict.CRASH, record.headline
    assert record.failure is not None
    assert (record.failure.type, record.failure.ranks) == (name, [1])
    assert text in record.headline
    assert record.seconds["total"] < AT_ONCE


@pytest.mark.parametrize("world", [1, 2])
def test_a_death_is_told_at_once_though_no_other_rank_notices(launcher: ZygoteLauncher, world: int) -> None:
    record = run(launcher, rank_cases.is_killed, world=world)
    assert record.verdict is Verdict.CRASH, record.headline
    assert record.failure is not None
    assert record.failure.ranks == [world - 1]
    assert ["in sleep_for_ever" in stack for stack in record.stacks.values()] == [True] * (world - 1)
    assert record.seconds["total"] < AT_ONCE


def test_a_segmentation_fault_shows_where(launcher: ZygoteLauncher) -> None:
    record = run(launcher, rank_cases.reads_address_zero, world=2)
    assert "Segmentation fault" in record.stacks["1"]
    assert "in reads_address_zero" in record.stacks["1"]


def test_ranks_that_die_in_one_instant_are_told_apart() -> None:
    """As the supervisor reports it when it finds several dead at one look."""
    asked = request(rank_cases.trains, world=3)
    seen = {"moment": "engine", "outcome": None, "exit": None, "blocked": False, "log": "", "stack": ""}
    ranks = [{**seen, "rank": rank, "signal": number} for rank, number in enumerate((6, 9, 6))]
    record = fill(blank_record(asked, "test"), {"how": "died", "ranks": ranks}, asked).record
    assert record.verdict is Verdict.CRASH
    assert record.headline == "ranks 0, 2 died by SIGABRT on the way to 'engine'"
    assert record.notes == [
        "rank 1 died by SIGKILL (the kernel's out-of-memory killer sends it, too) on the way to 'engine'"
    ]


@pytest.mark.parametrize(
    ("case", "name", "text"),
    [
        (rank_cases.raises_on_the_last_rank, "ValueError", "ValueError: only here"),
        (rank_cases.exits, "SystemExit", "SystemExit: 3"),
        (rank_cases.runs_out_of_memory, "MemoryError", "MemoryError"),
    ],
    ids=lambda value: value.name if isinstance(value, Case) else "",
)
def test_when_one_raises_its_blocked_peers_are_ended_at_once(
    launcher: ZygoteLauncher, case: Case, name: str, text: str
) -> None:
    record = run(launcher, case, world=3)
    assert record.verdict is Verdict.RAISES, record.headline
    assert record.failure is not None
    assert (record.failure.type, record.failure.moment, record.failure.ranks) == (name, "start", [2])
    assert record.headline == f"rank 2 raised on the way to 'start': {text}"
    assert record.notes == ["rank 0 was blocked at 'start'", "rank 1 was blocked at 'start'"]
    assert "in wait_for_others" in record.stacks["0"]
    assert "in wait_for_others" in record.stacks["1"]
    assert record.seconds["total"] < AT_ONCE


def test_the_log_of_a_rank_that_raised_ends_with_its_traceback(launcher: ZygoteLauncher) -> None:
    outcome = launcher.result(launcher.submit(request(rank_cases.raises_on_the_last_rank, world=2)))
    assert "Traceback" not in outcome.logs[0]
    assert "in raises_on_the_last_rank" in outcome.logs[1]
    assert outcome.logs[1].endswith("ValueError: only here\n")


def test_what_all_ranks_raise_is_told_once(launcher: ZygoteLauncher) -> None:
    record = run(launcher, rank_cases.raises_on_every_rank, world=2)
    assert record.verdict is Verdict.RAISES, record.headline
    assert record.headline == "all 2 ranks raised on the way to 'start': ValueError: everywhere"
    assert record.notes == []
    assert record.stacks == {}


def test_what_ranks_raise_differently_is_told_apart(launcher: ZygoteLauncher) -> None:
    record = run(launcher, rank_cases.raises_in_two_ways, world=2)
    assert record.failure is not None
    first = record.failure.ranks[0]
    other = {0: "rank 1 raised LookupError: what rank 1 says", 1: "rank 0 raised ValueError: what rank 0 says"}
    assert record.notes == [f"{other[first]} at 'start'"]


def test_messages_that_differ_are_both_told(launcher: ZygoteLauncher) -> None:
    record = run(launcher, rank_cases.raises_with_two_messages, world=2)
    assert record.failure is not None
    everything = " ".join([record.failure.message, *record.notes])
    assert "what rank 0 says" in everything
    assert "what rank 1 says" in everything


def test_a_disk_that_fills_up_is_not_the_fault_of_the_code_under_test(launcher: ZygoteLauncher) -> None:
    record = run(launcher, rank_cases.finds_the_disk_full, world=2)
    assert record.verdict is Verdict.NOT_RUN, record.headline
    assert "rank 1" in record.headline
    assert "No space left on device" in record.headline


@pytest.mark.parametrize(
    "case",
    [rank_cases.trains_while_a_child_fails, rank_cases.trains_with_closed_output],
    ids=lambda case: case.name,
)
def test_what_a_case_does_to_its_process_is_no_verdict(launcher: ZygoteLauncher, case: Case) -> None:
    record = run(launcher, case, world=2)
    assert record.verdict is Verdict.TRAINS, record.headline


def test_the_address_in_the_environment_can_be_used(launcher: ZygoteLauncher) -> None:
    record = run(launcher, rank_cases.trains_on_its_own_store, world=2)
    assert record.verdict is Verdict.TRAINS, record.headline


def test_the_zygote_has_one_thread_and_stays_up(launcher: ZygoteLauncher) -> None:
    """After cases, too, which make it import what they had to."""
    before = launcher.pid
    assert run(launcher, rank_cases.trains, world=2).verdict is Verdict.TRAINS
    assert run(launcher, rank_cases.is_killed, world=2).verdict is Verdict.CRASH
    assert launcher.pid == before
    assert len(list(Path(f"/proc/{before}/task").iterdir())) == 1
    assert launcher.warnings == []


# -- one beside another ----------------------------------------------------------------------


def test_two_launchers_at_once_share_nothing(launcher: ZygoteLauncher) -> None:
    with_other = ZygoteLauncher()
    try:
        tickets = [(one, one.submit(request(rank_cases.sums_ranks, world=2))) for one in (launcher, with_other) * 2]
        records = [one.result(ticket).record for one, ticket in tickets]
    finally:
        with_other.close()
    assert {record.verdict for record in records} == {Verdict.TRAINS}
    notes = [json.loads(note) for record in records for note in record.notes]
    assert [note["sum"] for note in notes] == [3.0] * 4
    assert len({note["port"] for note in notes}) == 4
    assert len({note["folder"] for note in notes}) == 4


def test_jobs_under_way_share_no_port_and_no_folder(world: World) -> None:
    """Nor with those of another launcher."""
    launchers = [ZygoteLauncher(), ZygoteLauncher()]
    tickets = [(one, one.submit(request(rank_cases.tells_its_surroundings))) for one in launchers for _ in range(5)]
    told = [answer(one.result(ticket).record) for one, ticket in reversed(tickets)]
    for one in launchers:
        one.close()
    assert len({each["port"] for each in told}) == 10
    assert len({each["folder"] for each in told}) == 10
    assert len({each["parent"] for each in told}) == 2
    for each in told:
        assert Path(each["temporary"]).parent == Path(each["folder"])
        assert world.temporary in Path(each["folder"]).parents


def test_ranks_inherit_no_socket_but_their_own(world: World) -> None:
    launcher = ZygoteLauncher()
    hangs = launcher.submit(request(rank_cases.sleeps, world=2))
    run(launcher, rank_cases.tells_files, world=3)
    launcher.cancel(hangs)
    launcher.close()
    told = world.told("files")
    assert len(told) == 3
    for files in told:
        assert len([name for name in files.values() if name.startswith("socket:")]) == 1, files
        assert not any("eventpoll" in name for name in files.values()), files
    assert len({name for files in told for name in files.values() if name.startswith("socket:")}) == 3


def test_ranks_that_tick_while_the_zygote_is_busy_do_not_hang(world: World) -> None:
    """It hears their ticks late, after importing what another job had to import."""
    gate = world.notes / "gate"
    world.plant("einops/__init__.py", f"import os, time\nwhile os.path.exists({str(gate)!r}): time.sleep(0.01)\n")
    world.patch.setenv(rank_cases.BESIDE, "yes")
    launcher = ZygoteLauncher()
    imports = launcher.submit(request(rank_cases.imports_einops_and_shuts))
    ticks = launcher.submit(request(rank_cases.ticks_until_told, deadline=SHORT))
    launcher.result(imports)
    time.sleep(2 * SHORT)
    gate.unlink()
    (world.notes / "go").touch()
    told = answer(launcher.result(ticks).record)
    launcher.close()
    assert told == "told"


@pytest.mark.usefixtures("world")
def test_a_log_is_cut_at_its_beginning() -> None:
    launcher = ZygoteLauncher()
    outcome = launcher.result(launcher.submit(request(rank_cases.fills_its_log)))
    launcher.close()
    assert answer(outcome.record) == "printed"
    assert "line 99999\nTraceback" in outcome.logs[0]
    assert len(outcome.logs[0]) < 100_000


def test_what_libraries_say_on_import_is_in_no_log(world: World) -> None:
    world.plant("accelerate/__init__.py", "print('said once')")
    world.patch.delenv("PYTHONUNBUFFERED", raising=False)
    launcher = ZygoteLauncher()
    outcome = launcher.result(launcher.submit(request(rank_cases.raises_on_every_rank, world=2)))
    launcher.close()
    assert ["said once" in log for log in outcome.logs] == [False, False]


# -- where forking is unsafe -----------------------------------------------------------------


def test_spawned_ranks_give_the_same_verdict(tmp_path: Path) -> None:
    with new_world(tmp_path):
        launcher = ZygoteLauncher(spawn=True)
        record = run(launcher, rank_cases.sums_ranks, world=2)
        launcher.close()
    assert record.verdict is Verdict.TRAINS, record.headline
    assert record.launcher == "spawn"
    assert launcher.warnings == ["ranks are spawned, not forked: spawning was asked for"]


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        (
            "sitecustomize.py",
            "import threading, time\nthreading.Thread(target=time.sleep, args=[99], daemon=True).start()\n",
            "the process that would fork has 2 threads",
        ),
        (
            "accelerate/__init__.py",
            "import torch\ntorch.cuda.is_initialized = lambda: True\n",
            "CUDA is initialised in the process that would fork",
        ),
    ],
    ids=["thread", "cuda"],
)
def test_ranks_are_spawned_where_forking_is_unsafe(world: World, file: str, text: str, reason: str) -> None:
    world.plant(file, text)
    launcher = ZygoteLauncher()
    record = run(launcher, rank_cases.raises_on_every_rank, world=2)
    launcher.close()
    assert record.launcher == "spawn"
    assert record.headline == "all 2 ranks raised on the way to 'start': ValueError: everywhere"
    assert launcher.warnings == [f"ranks are spawned, not forked: {reason}"]


def test_a_spawned_rank_may_import_for_longer_than_the_deadline(world: World) -> None:
    """But once it is in the group, the deadline is the same as ever."""
    world.plant("deepspeed/__init__.py", "import time\ntime.sleep(1.5)\ndef init_distributed(**_): pass\n")
    launcher = ZygoteLauncher(spawn=True)
    record = run(launcher, rank_cases.sleeps, world=2, deadline=0.5)
    launcher.close()
    assert record.verdict is Verdict.HANG, record.headline
    assert "in sleep_for_ever" in record.stacks["0"]
    assert "in sleep_for_ever" in record.stacks["1"]
