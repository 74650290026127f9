"""Nothing is left behind: no process, no shared memory, no folder, whoever is killed and when.

The ranks of these tests litter as much as they can (``rank_cases.litter``).
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
import rank_cases
from rank_world import PATIENCE, World, answer, new_world, request, run, wait_for

from harness.cell import Case, Verdict
from harness.cell.ranks._launch import LauncherFailed, ZygoteLauncher
from harness.cell.ranks._programs import import_path
from harness.cell.ranks._scratch import new_scratch, sweep

#: Everything that a rank of two starts: see ``rank_cases.litter``.
STARTED: Final = 2 * 7

#: A process that owns a launcher, to be killed.
OWNER: Final = """
import json, sys
import rank_cases
from rank_world import request
from harness.cell.ranks._launch import ZygoteLauncher

launcher = ZygoteLauncher()
ticket = launcher.submit(request(rank_cases.litters_and_hangs, world=2, deadline=600))
print(launcher.pid, flush=True)
try:
    launcher.result(ticket)
finally:
    launcher.close()
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A world of its own, on stand-ins for the libraries: what is tested is processes."""
    with new_world(tmp_path) as made:
        made.stand_in()
        yield made


#: The same with a child of its own, which keeps open all that its parent had.
FORKS: Final = """
import os, time
if not os.fork():
    time.sleep(3600)
"""


@pytest.fixture
def launcher(world: World) -> Iterator[ZygoteLauncher]:
    del world
    made = ZygoteLauncher()
    yield made
    made.close()


def littered(world: World) -> bool:
    """Whether both ranks have done their worst."""
    return len(world.told("littered")) == 2 and len(world.strays()) >= STARTED


@contextlib.contextmanager
def owner(world: World, *, forks: bool = False) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that owns a launcher whose ranks have littered and hang; the pid of its zygote."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER.replace("try:", f"{FORKS}try:") if forks else OWNER],
        env=os.environ | import_path(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        zygote = int(process.stdout.readline())
        assert wait_for(lambda: littered(world)), world.strays()
        yield process, zygote


# -- after every outcome ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, ZygoteLauncher]]:
    """Ranks with the real libraries, threads and sockets of a group included."""
    with new_world(tmp_path_factory.mktemp("world")) as made:
        launcher = ZygoteLauncher()
        launcher.start()
        yield made, launcher
        launcher.close()
        assert made.left() == {}


@pytest.mark.parametrize(
    ("case", "verdict"),
    [
        (rank_cases.litters_and_trains, Verdict.TRAINS),
        (rank_cases.litters_and_raises, Verdict.RAISES),
        (rank_cases.litters_and_hangs, Verdict.HANG),
        (rank_cases.litters_and_is_killed, Verdict.CRASH),
        (rank_cases.litters_and_leaves, Verdict.CRASH),
    ],
    ids=lambda value: value.name if isinstance(value, Case) else "",
)
def test_nothing_is_left_when_the_answer_is_there(
    real: tuple[World, ZygoteLauncher], case: Case, verdict: Verdict
) -> None:
    world, launcher = real
    before = len(world.told("littered"))
    record = run(launcher, case, world=2, deadline=1.5 if verdict is Verdict.HANG else None)
    assert record.verdict is verdict, record.headline
    assert len(world.told("littered")) == before + 2
    assert list(world.strays()) == [launcher.pid]
    left = world.left()
    assert "shared memory" not in left
    assert {Path(one).name for one in left["files"]} == {"mark", "pids", "ports"}
    assert len(left["folders"]) == 1


def test_nothing_is_left_of_a_cancelled_job(world: World, launcher: ZygoteLauncher) -> None:
    ticket = launcher.submit(request(rank_cases.litters_and_hangs, world=2))
    assert wait_for(lambda: littered(world))
    launcher.cancel(ticket)
    assert wait_for(lambda: list(world.strays()) == [launcher.pid])
    launcher.close()
    assert world.left() == {}


def test_one_job_leaves_the_daemons_of_another_alone(world: World, launcher: ZygoteLauncher) -> None:
    waits = launcher.submit(request(rank_cases.waits_for_its_daemon))
    assert wait_for(lambda: world.told("daemon"))
    assert run(launcher, rank_cases.raises_on_every_rank).verdict is Verdict.RAISES
    (world.notes / "go").touch()
    assert answer(launcher.result(waits).record) == "done"


def test_nothing_is_left_when_the_launcher_is_closed_over_a_running_job(world: World, launcher: ZygoteLauncher) -> None:
    launcher.submit(request(rank_cases.litters_and_hangs, world=2))
    assert wait_for(lambda: littered(world))
    launcher.close()
    assert world.left() == {}


def test_nothing_is_left_where_ranks_are_spawned(world: World) -> None:
    launcher = ZygoteLauncher(spawn=True)
    record = run(launcher, rank_cases.litters_and_hangs, world=2, deadline=1.5)
    assert record.verdict is Verdict.HANG, record.headline
    assert len(world.told("littered")) == 2
    assert list(world.strays()) == [launcher.pid]
    launcher.close()
    assert world.left() == {}


# -- after an interrupt ----------------------------------------------------------------------


def interrupt_while(waiting: Callable[[], object]) -> None:
    """Ctrl-C a moment after ``waiting`` began to."""
    timer = threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    try:
        waiting()
    finally:
        timer.join()


def test_an_interrupt_ends_the_ranks_and_not_the_session(world: World, launcher: ZygoteLauncher) -> None:
    ticket = launcher.submit(request(rank_cases.litters_and_hangs, world=2))
    assert wait_for(lambda: littered(world))
    with pytest.raises(KeyboardInterrupt):
        interrupt_while(lambda: launcher.result(ticket))
    assert wait_for(lambda: list(world.strays()) == [launcher.pid])
    assert run(launcher, rank_cases.raises_on_every_rank).verdict is Verdict.RAISES
    launcher.close()
    assert world.left() == {}


def test_an_interrupt_while_the_libraries_are_imported_leaves_nothing(world: World) -> None:
    world.plant("accelerate/__init__.py", "import time\ntime.sleep(600)\n")
    launcher = ZygoteLauncher()
    with pytest.raises(KeyboardInterrupt):
        interrupt_while(launcher.start)
    assert world.left() == {}
    world.plant("accelerate/__init__.py", "")
    assert run(launcher, rank_cases.raises_on_every_rank).verdict is Verdict.RAISES
    launcher.close()


def test_ctrl_c_at_the_terminal_leaves_nothing(world: World) -> None:
    """It reaches the whole group; the zygote and its ranks are not in it."""
    with owner(world) as (process, _):
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(PATIENCE) != 0
        assert world.left() == {}


# -- after kill -9 ---------------------------------------------------------------------------


def test_a_killed_owner_leaves_nothing(world: World) -> None:
    """The zygote notices, ends the ranks and clears up."""
    with owner(world) as (process, _):
        process.kill()
        process.wait()
    assert wait_for(lambda: world.left() == {}), world.left()


def test_a_killed_owner_leaves_nothing_though_a_child_keeps_its_connections(world: World) -> None:
    with owner(world, forks=True) as (process, zygote):
        process.kill()
        process.wait()
        assert wait_for(lambda: len(world.strays()) == 1), world.strays()
        assert zygote not in world.strays()
        world.end_strays()
    assert wait_for(lambda: world.left() == {}), world.left()


def test_a_killed_owner_leaves_nothing_of_real_ranks(tmp_path: Path) -> None:
    with new_world(tmp_path) as world:
        with owner(world) as (process, _):
            process.kill()
            process.wait()
        assert wait_for(lambda: world.left() == {}), world.left()


def test_a_killed_zygote_leaves_nothing_and_is_replaced(world: World, launcher: ZygoteLauncher) -> None:
    done = launcher.submit(request(rank_cases.raises_on_every_rank))
    hangs = launcher.submit(request(rank_cases.litters_and_hangs, world=2))
    also = launcher.submit(request(rank_cases.sleeps))
    while not launcher.done(done):
        launcher.pump()
    assert wait_for(lambda: littered(world))
    assert launcher.pid is not None
    os.kill(launcher.pid, signal.SIGKILL)
    for ticket in (hangs, also):
        with pytest.raises(LauncherFailed, match="the process that forks the ranks died: signal SIGKILL"):
            launcher.result(ticket)
    assert world.left() == {}
    assert launcher.result(done).record.verdict is Verdict.RAISES
    assert run(launcher, rank_cases.raises_on_every_rank).verdict is Verdict.RAISES
    launcher.close()
    assert world.left() == {}


def test_a_zygote_killed_by_its_own_rank_leaves_nothing(world: World, launcher: ZygoteLauncher) -> None:
    with pytest.raises(LauncherFailed, match="signal SIGKILL"):
        run(launcher, rank_cases.kills_the_zygote, world=2)
    assert world.left() == {}


def test_a_zygote_that_died_idle_is_replaced(launcher: ZygoteLauncher) -> None:
    assert run(launcher, rank_cases.raises_on_every_rank).verdict is Verdict.RAISES
    assert launcher.pid is not None
    os.kill(launcher.pid, signal.SIGKILL)
    assert wait_for(lambda: (Path(f"/proc/{launcher.pid}/stat").read_text().split()[2]) == "Z")
    assert run(launcher, rank_cases.raises_on_every_rank).verdict is Verdict.RAISES


def test_the_next_start_clears_what_owner_and_zygote_left_when_both_were_killed(world: World) -> None:
    with owner(world) as (process, zygote):
        os.kill(process.pid, signal.SIGSTOP)  # lest one of them sees the other die
        os.kill(zygote, signal.SIGKILL)
        process.kill()
        process.wait()
    # The ranks themselves die with the zygote; what they started is there until the next start.
    ranks = world.told("littered")
    assert wait_for(lambda: not set(ranks) & set(world.strays()))
    assert set(world.left()) == {"processes", "shared memory", "files", "folders"}
    launcher = ZygoteLauncher()
    launcher.start()
    launcher.close()
    assert world.left() == {}


@pytest.mark.usefixtures("world")
def test_what_other_machines_and_people_own_is_left_alone() -> None:
    """A temporary folder may be shared; only what we can see to be dead is removed."""
    mine = new_scratch()
    dead, elsewhere = mine.with_name(f"1-2-{socket.gethostname()}"), mine.with_name("1-2-elsewhere")
    foreign = mine.with_name("notes")
    for folder in (dead, elsewhere, foreign):
        folder.mkdir()
    sweep()
    assert sorted(mine.parent.iterdir()) == sorted([mine, elsewhere, foreign])
    mine.rmdir()


def test_a_temporary_folder_made_by_someone_else_is_refused(world: World, launcher: ZygoteLauncher) -> None:
    """Through a link, whoever planted it could swap what we write."""
    (world.temporary / "aside").mkdir()
    (world.temporary / f"thawcheck-{os.getuid()}").symlink_to(world.temporary / "aside")
    with pytest.raises(LauncherFailed, match=r"no folder for the ranks can be made: .*this is no folder of ours"):
        launcher.start()


# -- signals to the zygote -------------------------------------------------------------------


def test_the_zygote_clears_up_when_asked_to_end(world: World, launcher: ZygoteLauncher) -> None:
    launcher.submit(request(rank_cases.litters_and_hangs, world=2))
    assert wait_for(lambda: littered(world))
    assert launcher.pid is not None
    os.kill(launcher.pid, signal.SIGTERM)
    assert wait_for(lambda: world.left() == {}), world.left()


def test_the_zygote_outlives_the_thread_that_started_it(launcher: ZygoteLauncher) -> None:
    """The kernel tells children of the end of a thread as of a process."""
    thread = threading.Thread(target=launcher.start)
    thread.start()
    thread.join()
    before = launcher.pid
    time.sleep(0.2)  # the signal would be there by now
    assert run(launcher, rank_cases.raises_on_every_rank).verdict is Verdict.RAISES
    assert launcher.pid == before


# -- the list of modules to import -----------------------------------------------------------


def kept_lists(world: World) -> list[Path]:
    return list((world.environment / "share" / "thawcheck").glob("*"))


def imported_before() -> bool:
    """Whether a new zygote has a library before the first case asks for it."""
    launcher = ZygoteLauncher()
    there = answer(run(launcher, rank_cases.imports_einops))
    launcher.close()
    assert launcher.warnings == []
    assert isinstance(there, bool)
    return there


def test_what_the_first_case_imports_the_next_zygote_has(world: World) -> None:
    world.plant("einops/__init__.py", "")
    launcher = ZygoteLauncher()
    assert answer(run(launcher, rank_cases.imports_einops)) is False
    assert answer(run(launcher, rank_cases.imports_einops)) is True
    launcher.close()
    assert imported_before() is True
    assert [path.suffix for path in kept_lists(world)] == [".json"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"import": 1, "avoid": [], "try": []}',
        b'{"import": [1, "", ".", "no.such"], "avoid": "", "try": [null]}',
        b'{"import": ["einops"',
    ],
    ids=["empty", "binary", "list", "no keys", "wrong types", "wrong names", "cut off"],
)
def test_a_damaged_list_only_costs_its_warm_up(world: World, content: bytes) -> None:
    world.plant("einops/__init__.py", "")
    assert imported_before() is False
    (path,) = kept_lists(world)
    path.write_bytes(content)
    assert imported_before() is False
    assert imported_before() is True


def test_an_unreadable_list_that_cannot_be_written_either_only_costs_its_warm_up(world: World) -> None:
    world.plant("einops/__init__.py", "")
    (world.environment / "share").write_text("no folder")
    for _ in range(2):
        launcher = ZygoteLauncher()
        assert answer(run(launcher, rank_cases.imports_einops)) is False
        assert answer(run(launcher, rank_cases.imports_einops)) is True
        launcher.close()


def test_a_library_that_starts_a_thread_is_left_to_the_ranks(world: World) -> None:
    world.plant(
        "einops/__init__.py",
        "import threading, time\nthreading.Thread(target=time.sleep, args=[600], daemon=True).start()\n",
    )
    launcher = ZygoteLauncher()
    for _ in range(2):
        record = run(launcher, rank_cases.imports_einops)
        assert answer(record) is False
        assert record.launcher == "zygote"
    launcher.close()
    assert imported_before() is False


def test_ranks_are_spawned_once_the_zygote_has_a_thread_after_all(world: World) -> None:
    """A library that starts its thread only when it is imported for the third time."""
    world.plant(
        "einops/__init__.py",
        f"""\
import os, threading, time
from pathlib import Path
with Path({str(world.notes / "imports")!r}).open("a") as file:
    file.write("x")
    file.flush()
    if file.tell() == 3:
        threading.Thread(target=time.sleep, args=[600], daemon=True).start()
""",
    )
    launcher = ZygoteLauncher()
    assert answer(run(launcher, rank_cases.imports_einops)) is False
    record = run(launcher, rank_cases.raises_on_every_rank, world=2)
    launcher.close()
    assert record.verdict is Verdict.RAISES
    assert launcher.warnings == [
        "ranks are spawned from here on, not forked: the process that would fork has 2 threads"
    ]


def test_closing_does_not_wait_for_what_is_being_learned(world: World) -> None:
    """The first case of a new environment may be the only one; the next start learns instead."""
    gate = world.notes / "gate"
    world.plant(
        "einops/__init__.py",
        f"import os, time\nwhile os.path.exists({str(gate)!r}): time.sleep(0.01)\n",
    )
    launcher = ZygoteLauncher()
    ticket = launcher.submit(request(rank_cases.imports_einops_and_shuts, deadline=60))
    assert answer(launcher.result(ticket).record) is False
    launcher.close()
    assert world.left() == {}
    gate.unlink()
    assert imported_before() is True


# -- a full disk -----------------------------------------------------------------------------


def test_a_full_disk_is_no_verdict_and_no_traceback(world: World, launcher: ZygoteLauncher) -> None:
    """Here a limit on the size of files stands for the disk: nobody needs to be root for it."""
    run(launcher, rank_cases.raises_on_every_rank)
    assert launcher.pid is not None
    usual = resource.prlimit(launcher.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(launcher.pid, resource.RLIMIT_FSIZE, (4096, usual[1]))
    record = run(launcher, rank_cases.raises_on_every_rank)
    assert record.verdict is Verdict.NOT_RUN
    assert re.fullmatch(
        r"not run: the ranks could not be started in .*: File too large; "
        r"free some space there, or name another folder by TMPDIR",
        record.headline,
    )
    resource.prlimit(launcher.pid, resource.RLIMIT_FSIZE, usual)
    assert run(launcher, rank_cases.raises_on_every_rank).verdict is Verdict.RAISES
    launcher.close()
    assert world.left() == {}


#: A launcher whose temporary folder fills up, and then has space again.
FULL: Final = """
import os
from pathlib import Path
import rank_cases
from rank_world import run
from harness.cell.ranks._launch import ZygoteLauncher

filler = Path(os.environ["TMPDIR"], "filler")
launcher = ZygoteLauncher()
print(run(launcher, rank_cases.raises_on_every_rank).headline)
with filler.open("wb", buffering=0) as file:
    try:
        while True:
            file.write(bytes(1 << 12))
    except OSError:
        print("full")
print(run(launcher, rank_cases.raises_on_every_rank).headline)
filler.unlink()
print(run(launcher, rank_cases.raises_on_every_rank).headline)
launcher.close()
print([one.name for one in filler.parent.glob("*/*")])
"""


@pytest.mark.usefixtures("world")
def test_a_full_file_system_is_no_verdict_and_no_traceback() -> None:
    """A real one, where the kernel lets us mount one for ourselves."""
    shell = 'mount -t tmpfs -o size=4m none "$TMPDIR" && exec "$@"'
    own_mounts = ["unshare", "--mount", "--map-root-user", "sh", "-c", shell, "sh"]
    if subprocess.run([*own_mounts, "true"], check=False, capture_output=True).returncode != 0:
        return  # the test above is all there can be
    script = [sys.executable, "-c", FULL]
    said = subprocess.run(
        [*own_mounts, *script], env=os.environ | import_path(), check=True, capture_output=True, text=True
    )
    raises = "rank 0 raised on the way to 'start': ValueError: everywhere"
    first, full, not_run, again, left = said.stdout.splitlines()
    assert (first, full, again, left) == (raises, "full", raises, "[]")
    assert re.fullmatch(
        r"not run: the ranks could not be started in .*: No space left on device; "
        r"free some space there, or name another folder by TMPDIR",
        not_run,
    )
    assert said.stderr == ""


def test_a_missing_temporary_folder_is_named(world: World, launcher: ZygoteLauncher) -> None:
    world.patch.setattr(tempfile, "tempdir", "/no/such/folder")
    with pytest.raises(LauncherFailed, match=r"cannot be started: .*No such file or directory.*/no/such/folder"):
        launcher.start()


def test_a_temporary_folder_that_takes_no_folder_is_named(world: World, launcher: ZygoteLauncher) -> None:
    (world.temporary / f"thawcheck-{os.getuid()}").write_text("a file")
    with pytest.raises(LauncherFailed) as caught:
        launcher.start()
    assert re.fullmatch(
        r"the process that imports the libraries did not start: exit status 1; "
        r"no folder for the ranks can be made: .*File exists: .*",
        str(caught.value),
    )
