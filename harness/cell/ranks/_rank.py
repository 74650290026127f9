"""Inside one rank: join the group, run the case, send one outcome, leave.

Also a program, ``python -m harness.cell.ranks._rank FD RANK STACK``, for ranks started by spawn.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import importlib
import importlib.abc
import importlib.util
import os
import random
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

from harness.cell._case import Case, JudgeFailed, LibraryMissing, MalformedCase
from harness.cell._options import Options
from harness.cell._patterns import nearest
from harness.cell.ranks._device import DEVICES
from harness.cell.ranks._releases import apply_measures
from harness.cell.ranks._start import own_session
from harness.cell.ranks._wire import Channel, Message

if TYPE_CHECKING:
    from torch.distributed import Store

    from harness.cell._run import Run

__all__ = ["find_case", "perform", "rank_main"]

#: Collectives must outlast every deadline of ours, so that a hang is seen as one and not as a
#: time-out error of the backend.
_COLLECTIVE_TIMEOUT = timedelta(minutes=30)


class _ImportTicks(importlib.abc.MetaPathFinder):
    """Counts as progress that modules are being imported: the first engine imports for seconds."""

    def __init__(self, tick: Callable[[], object]) -> None:
        self._tick = tick
        self._last = 0.0
        self._seen: set[str] = set()

    def find_spec(self, name: str, *_: object, **__: object) -> None:
        if name in self._seen:  # a loop that tries the same import again makes no progress
            return
        self._seen.add(name)
        if time.monotonic() - self._last > 1.0:
            self._last = time.monotonic()
            self._tick()


def find_case(module: str, path: str, name: str) -> Case:
    """The case ``name`` of the file at ``path``.

    By import where that gives this very file, else by path: test files are often importable by
    nobody but pytest.
    """
    try:
        found: ModuleType | None = importlib.import_module(module)
    except ImportError:
        found = None
    if found is None or Path(getattr(found, "__file__", None) or "").resolve() != Path(path).resolve():
        found = _import_file(module, Path(path))
    case = getattr(found, name, None)
    if not isinstance(case, Case):
        hint = nearest(name, [key for key, value in vars(found).items() if isinstance(value, Case)])
        raise MalformedCase(f"case {name}", f"{path} has no case of that name; {hint}")
    return case


def _import_file(module: str, path: Path) -> ModuleType:
    """The file as a module.  Raises MalformedCase, or what the file itself raises."""
    *packages, last = module.split(".")
    root = path.parents[min(len(packages), len(path.parents) - 1)]
    if packages and packages[0] != __name__.partition(".")[0] and path == root.joinpath(*packages, f"{last}.py"):
        # Named after its folders, as pytest's importlib mode does: then it may import from beside
        # itself.  Another `tests` than the one it is in may have been found first.
        for known in [name for name in sys.modules if name.partition(".")[0] == packages[0]]:
            del sys.modules[known]
        sys.path.insert(0, str(root))
        try:
            return importlib.import_module(module)
        finally:
            sys.path.remove(str(root))
    # Never under a name that something else was imported by: a file may well be called json.py.
    name = f"thawcheck_{last}" if module in sys.modules else module
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise MalformedCase(f"file {path}", "it cannot be imported: is it Python?")
    found = importlib.util.module_from_spec(spec)
    sys.modules[name] = found
    try:
        spec.loader.exec_module(found)
    except BaseException:
        del sys.modules[name]
        raise
    return found


def set_environ(
    rank: int,
    world: int,
    port: int,
    folder: Path,
    *,
    local: Sequence[int] | None = None,
    address: str = "127.0.0.1",
) -> None:
    """What torch, DeepSpeed, accelerate and the Trainer read to know who they are.

    :param local: rank and number of ranks on this machine, where there are several machines.
    """
    local_rank, local_world = local or (rank, world)
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(local_rank),
        WORLD_SIZE=str(world),
        LOCAL_WORLD_SIZE=str(local_world),
        # DeepSpeed counts CPU "devices" by it (to 0.14 through numactl otherwise), and switches
        # its shared-memory op on only where it equals the world size.
        LOCAL_SIZE=str(world + 1),
        MASTER_ADDR=address,
        MASTER_PORT=str(port),
        TMPDIR=str(folder),
    )


def join_group(job: Message, rank: int, folder: Path) -> str:
    """Form the process group, after :func:`set_environ`; the torch device of this rank."""
    import torch

    device = DEVICES[job["device"]]
    place = device.enter(int(os.environ["LOCAL_RANK"]))
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        device.backend,
        store=_meeting_point(job, folder),
        rank=rank,
        world_size=job["world"],
        timeout=_COLLECTIVE_TIMEOUT,
    )
    adopt_group(device.backend)
    return place


def _meeting_point(job: Message, folder: Path) -> Store:
    """Where ranks exchange addresses: a file of this machine, else the server that the job names."""
    import torch.distributed as dist

    if "address" not in job:
        return dist.FileStore(str(folder / "rendezvous"), job["world"])
    server = dist.TCPStore(
        job["address"], job["port"], is_master=False, wait_for_workers=False, timeout=_COLLECTIVE_TIMEOUT
    )
    return dist.PrefixStore(f"group/{job['id']}", server)


def adopt_group(backend: str) -> None:
    """Have DeepSpeed take over the torch group that exists."""
    apply_measures("before_import", backend)
    import deepspeed

    apply_measures("after_import", backend)
    apply_measures("before_group", backend)
    deepspeed.init_distributed(dist_backend=backend, verbose=False)


def perform(job: Message, run: Run) -> Message:
    """Run the case on a joined rank and judge it; the outcome to report."""
    options = run.options
    case = find_case(job["module"], job["path"], job["case"])
    case.function(run)
    try:
        measured = run.finish()
    except (MalformedCase, JudgeFailed):
        raise
    except Exception as error:
        raise JudgeFailed(f"{type(error).__name__}: {error}") from error
    return {"t": "out", "kind": "done", "options": options.id, **measured}


def failure_outcome(error: BaseException, run: Run | None) -> Message:
    """An exception as the outcome it means.  The one place where that is decided."""
    kind = "raised"
    if isinstance(error, MalformedCase):
        kind = "malformed"
    elif isinstance(error, LibraryMissing):
        kind = "missing"
    elif isinstance(error, JudgeFailed):
        kind = "failed"
    elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        kind = "full"
    return {
        "t": "out",
        "kind": kind,
        "moment": run.moment if run else "start",
        "type": type(error).__name__,
        "message": str(error),
    }


def rank_main(job: Message, rank: int, channel: Channel, stack: Path) -> NoReturn:
    """The whole life of one rank; leaves by ``os._exit``."""
    run = None
    with stack.open("w") as stack_file:
        faulthandler.enable(stack_file)
        faulthandler.register(signal.SIGUSR1, stack_file, all_threads=True)
        at = {"moment": "start"}

        def tick(moment: str | None = None, **more: bool) -> None:
            at["moment"] = moment or at["moment"]
            if not channel.send({"t": "tick", "moment": at["moment"], **more}):
                os._exit(1)  # nobody watches over us any more

        before = set(sys.modules)
        me = os.getpid()
        said = ""
        try:
            tick()
            sys.meta_path.insert(0, _ImportTicks(tick))
            folder = Path(job["folder"])
            os.chdir(folder)
            here = {key: job[key] for key in ("local", "address") if key in job}
            set_environ(rank, job["world"], job["port"], folder, **here)
            tempfile.tempdir = None  # the zygote asked for it, so Python remembers another folder
            from harness.cell._run import Run

            random.seed(job["seed"])
            place = join_group(job, rank, folder)
            tick(joined=True)
            run = Run(Options(**job["options"]), rank, job["world"], place, folder, job["seed"], tick)
            outcome = perform(job, run)
        except BaseException as error:  # noqa: BLE001  # SystemExit of the code under test is a finding too
            outcome = failure_outcome(error, run)
            said = "".join(traceback.format_exception(error))
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # the code under test may have closed or replaced it
                stream.flush()
        with contextlib.suppress(OSError):
            os.write(2, said.encode(errors="replace"))
        if os.getpid() != me:
            # A child that the code under test forked came back through the case: not for us to hear.
            os._exit(outcome["kind"] != "done")
        if rank == 0:
            outcome["modules"] = sorted(set(sys.modules) - before)
        channel.send(outcome)
        # Sockets of the group stay open until the supervisor has heard every rank: a peer would
        # take our leaving for a failure of its own.
        channel.receive()
        os._exit(0)


def _main(descriptor: int, rank: int, stack: str) -> None:
    own_session()
    channel = Channel(socket.socket(fileno=descriptor))
    os.set_inheritable(descriptor, False)  # it has no name
    job = channel.receive()
    if job is not None:
        rank_main(job, rank, channel, Path(stack))


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
