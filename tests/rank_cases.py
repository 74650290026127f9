"""Cases that hang, die, raise and litter, in every way that ranks have been seen to."""

from __future__ import annotations

import ctypes
import functools
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from multiprocessing import shared_memory
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from harness.cell import Options, case

if TYPE_CHECKING:
    from harness.cell._run import Run

#: Environment variable: the folder where cases note what a dead rank cannot tell.
NOTES: Final = "RANK_CASES_NOTES"

#: Environment variable: there is another job to wait for.
BESIDE: Final = "RANK_CASES_BESIDE"

#: Environment variable: set in all that a test starts, so that strays are found whatever they are.
TRACE: Final = "RANK_CASES_TRACE"

_case = functools.partial(case, kind="CONTROL", variants=[Options(model="mlp", stage=0)])


#: Where the kernel keeps it.
SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108


class Answer(Exception):  # it is none
    """Ends a case, and carries what it was asked for."""


def answer(value: Any) -> NoReturn:
    raise Answer(json.dumps(value))


def note(kind: str, *values: Any) -> None:
    with Path(os.environ[NOTES], f"{kind}-{os.getpid()}").open("a", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(value)}\n" for value in values)


def train(run: Run) -> None:
    engine = run.engine(run.model())
    run.train(engine, intent="*")


def wait_for_others() -> None:
    """A collective that ends when all ranks are in it."""
    import torch.distributed  # as all below: only ranks have it

    torch.distributed.barrier()


def sleep_for_ever() -> NoReturn:
    while True:
        time.sleep(3600)


# -- that end well ---------------------------------------------------------------------------


@_case()
def trains(run: Run) -> None:
    train(run)


@_case()
def sums_ranks(run: Run) -> None:
    """Adds the ranks up over the group, and tells by which port it could have met."""
    import torch

    total = torch.tensor([run.rank + 1.0])
    torch.distributed.all_reduce(total)
    run.note(json.dumps({"sum": total.item(), "port": os.environ["MASTER_PORT"], "folder": str(run.folder)}))
    train(run)


@_case()
def trains_on_its_own_store(run: Run) -> None:
    """Uses the address in its environment, as a library that insists on it would."""
    from torch.distributed import TCPStore

    port = int(os.environ["MASTER_PORT"])
    store = TCPStore(os.environ["MASTER_ADDR"], port, run.world, is_master=run.rank == 0)
    store.set(f"rank {run.rank}", "was here")
    store.wait([f"rank {rank}" for rank in range(run.world)])
    wait_for_others()
    train(run)


@_case()
def trains_while_a_child_fails(run: Run) -> None:
    """A forked child comes back through the case; it is not the rank."""
    child = os.fork()
    if not child:
        message = "the child's, not the rank's"
        raise RuntimeError(message)
    _, status = os.waitpid(child, 0)
    run.note(f"the child left with {os.waitstatus_to_exitcode(status)}")
    train(run)


@_case()
def trains_with_closed_output(run: Run) -> None:
    sys.stdout.close()
    sys.stderr = None  # as daemons do
    train(run)


# -- that hang -------------------------------------------------------------------------------


@_case()
def blocks_in_a_collective(run: Run) -> None:
    """Rank 0 waits for a rank that never comes."""
    if run.rank == 0:
        wait_for_others()
    sleep_for_ever()


@_case()
def spins(run: Run) -> None:
    if run.rank == 0:
        wait_for_others()
    spin_for_ever()


def spin_for_ever() -> NoReturn:
    while True:
        pass


@_case()
def sleeps(_: Run) -> None:
    sleep_for_ever()


@_case()
def stops_itself(_: Run) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)
    sleep_for_ever()


@_case()
def ticks_and_sleeps(run: Run) -> None:
    """Makes progress for longer than its deadline, and only then none."""
    for _ in range(8):
        time.sleep(0.25)
        run.reach("stepped")
    run.reach("saved")
    sleep_for_ever()


@_case()
def ticks_until_told(run: Run) -> None:
    """Makes progress all the time, until the file is there."""
    note("ticking", os.getpid())
    while not Path(os.environ[NOTES], "go").exists():
        time.sleep(0.1)
        run.reach("stepped")
    answer("told")


# -- that die --------------------------------------------------------------------------------


@_case()
def reads_address_zero(run: Run) -> None:
    if run.rank == run.world - 1:
        ctypes.string_at(0)
    wait_for_others()


@_case()
def is_killed(run: Run) -> None:
    """The others sleep: they do not notice as those in a collective do."""
    asleep = run.folder / "asleep"
    if run.rank < run.world - 1:
        asleep.touch()
        sleep_for_ever()
    while run.world > 1 and not asleep.exists():
        time.sleep(0.01)
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)


@_case()
def gets_a_real_time_signal(run: Run) -> None:
    if run.rank == run.world - 1:
        os.kill(os.getpid(), signal.SIGRTMIN + 3)
    wait_for_others()


@_case()
def leaves_with_status_3(run: Run) -> None:
    if run.rank == run.world - 1:
        os._exit(3)
    wait_for_others()


# -- that raise ------------------------------------------------------------------------------


@_case()
def exits(run: Run) -> None:
    if run.rank == run.world - 1:
        sys.exit(3)
    wait_for_others()


@_case()
def runs_out_of_memory(run: Run) -> None:
    if run.rank == run.world - 1:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 32, resource.RLIM_INFINITY))
        bytearray(1 << 40)
    wait_for_others()


@_case()
def raises_on_the_last_rank(run: Run) -> None:
    if run.rank == run.world - 1:
        message = "only here"
        raise ValueError(message)
    wait_for_others()


@_case()
def raises_on_every_rank(_: Run) -> None:
    message = "everywhere"
    raise ValueError(message)


@_case()
def raises_in_two_ways(run: Run) -> None:
    if run.rank:
        message = "what rank 1 says"
        raise LookupError(message)
    message = "what rank 0 says"
    raise ValueError(message)


@_case()
def raises_with_two_messages(run: Run) -> None:
    message = f"what rank {run.rank} says"
    raise ValueError(message)


@_case()
def finds_the_disk_full(run: Run) -> None:
    """A write fails as on a full disk."""
    if run.rank == run.world - 1:
        with Path("/dev/full").open("wb", buffering=0) as file:
            file.write(b"weights")
    wait_for_others()


# -- that answer -----------------------------------------------------------------------------


@_case()
def tells_files(_: Run) -> None:
    """What this process has open, as the kernel names it."""
    files = {}
    for path in Path("/proc/self/fd").iterdir():
        try:
            files[path.name] = str(path.readlink())
        except FileNotFoundError:  # the listing itself
            continue
    note("files", files)
    answer("noted")


@_case()
def tells_its_surroundings(run: Run) -> None:
    """Where it is, and what it may not share with others."""
    answer(
        {
            "port": os.environ["MASTER_PORT"],
            "folder": str(run.folder),
            "temporary": tempfile.mkdtemp(),
            "parent": os.getppid(),
        }
    )


@_case()
def imports_einops(_: Run) -> None:
    """Tells whether a library was there before it asked for it."""
    there = "einops" in sys.modules
    importlib.import_module("einops")
    answer(there)


@_case()
def imports_einops_and_shuts(run: Run) -> None:
    """Whoever imports it from here on is kept waiting."""
    importlib.import_module("einops")
    while os.environ.get(BESIDE) and not list(Path(os.environ[NOTES]).glob("ticking-*")):
        run.reach("stepped")
        time.sleep(0.02)
    Path(os.environ[NOTES], "gate").touch()
    answer(value=False)


@_case()
def fills_its_log(_: Run) -> None:
    for number in range(100_000):
        print(f"line {number}")
    answer("printed")


# -- that litter -----------------------------------------------------------------------------


def litter(run: Run) -> None:
    """Start and make all that a rank could leave behind, and note it."""
    # First, so that the children hold open what would tell Python's resource tracker of our end.
    tracked = shared_memory.SharedMemory(create=True, size=64)
    wait = [sys.executable, "-c", "import time; time.sleep(3600)"]
    subprocess.Popen(wait)
    subprocess.Popen(wait, start_new_session=True)
    daemonise(lambda: os.execv(wait[0], wait))  # noqa: S606  # no shell is wanted
    # A daemon that has shed its environment and its folder as well.
    bare = {TRACE: os.environ[TRACE]}
    daemonise(lambda: os.execve("/usr/bin/env", ["env", "-C", "/", *wait], bare))  # noqa: S606
    if not os.fork():
        sleep_for_ever()
    tempfile.mkdtemp()
    Path("checkpoint").write_text("weights")
    known = [tracked.name, f"torch_{os.getpid()}_1_0"]
    known.append(f"deepspeed_allreduce_buffer_{os.getuid()}_127.0.0.1_{os.environ['MASTER_PORT']}_{run.rank}")
    for name in known[1:]:
        (SHARED_MEMORY / name).write_bytes(b"0")
    note("shared memory", *known)
    note("littered", os.getpid())


def daemonise(become: Any) -> None:
    """The double fork: the daemon's parent is gone, its session is its own."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    os.setsid()
    if not os.fork():
        become()
    os._exit(0)


@_case()
def litters_and_trains(run: Run) -> None:
    litter(run)
    train(run)


@_case()
def litters_and_raises(run: Run) -> None:
    litter(run)
    raise ValueError


@_case()
def litters_and_hangs(run: Run) -> None:
    litter(run)
    sleep_for_ever()


@_case()
def litters_and_is_killed(run: Run) -> None:
    litter(run)
    os.kill(os.getpid(), signal.SIGKILL)


@_case()
def litters_and_leaves(run: Run) -> None:
    litter(run)
    os._exit(3)


@_case()
def waits_for_its_daemon(_: Run) -> None:
    """A daemon of a running rank must not be taken for what another job left."""
    ready, told = os.pipe()

    def obey() -> None:
        note("daemon", os.getpid())
        while not Path(os.environ[NOTES], "go").exists():
            time.sleep(0.01)
        os.write(told, b"done")

    daemonise(obey)
    os.close(told)
    answer(os.read(ready, 4).decode())


@_case()
def kills_the_zygote(run: Run) -> None:
    litter(run)
    # A rank killed while Python makes shared memory leaves it to nobody: not what is tested here.
    while len(list(Path(os.environ[NOTES]).glob("littered-*"))) < run.world:
        time.sleep(0.02)
    os.kill(os.getppid(), signal.SIGKILL)
    sleep_for_ever()
