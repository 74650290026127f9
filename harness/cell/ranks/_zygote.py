"""The zygote: one process per environment that has imported everything, and forks the ranks.

Started as ``python -m harness.cell.ranks._zygote FD``; serves jobs that come over the socket FD until
its other end closes, which is also how it learns that pytest was killed.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import selectors
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterable

from harness.cell.ranks import _limits
from harness.cell.ranks._device import Census
from harness.cell.ranks._preload import Preload, thread_count
from harness.cell.ranks._scratch import new_scratch
from harness.cell.ranks._stack import installed_versions
from harness.cell.ranks._start import Starter, fork_rank, own_session, spawn_rank
from harness.cell.ranks._supervisor import Supervisor
from harness.cell.ranks._wire import Channel, Message

__all__ = ["Zygote", "forking_is_unsafe", "main"]


def forking_is_unsafe() -> str:
    """Why this process must not fork ranks; empty when it may.

    A forked child has one thread: locks that others held stay locked for ever, and worker pools
    (OpenBLAS, OpenMP) are gone.  A CUDA context does not survive a fork at all.
    """
    threads = thread_count()
    if threads > 1:
        return f"the process that would fork has {threads} threads"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "CUDA is initialised in the process that would fork"
    return ""


class Zygote:
    """Imports, then serves.  ``config``: ``sys_path``, ``device``, ``force_spawn``."""

    def __init__(self, channel: Channel, config: Message) -> None:
        self._channel = channel
        self._selector = selectors.DefaultSelector()
        self._leaving = False
        self._parent = os.getppid()
        sys.path[:] = config["sys_path"]
        started = time.monotonic()
        census = Census(config["device"])
        self._preload = Preload(config["device"], stop=lambda: self._leaving)
        missing = {} if config.get("force_spawn") else self._preload.load()
        unsafe = config.get("force_spawn") or forking_is_unsafe()
        # Until here there is nothing to clear up, and both signals simply end us.
        signal.signal(signal.SIGTERM, self._leave)
        signal.signal(signal.SIGHUP, self._leave)
        self._scratch = new_scratch()
        fork: Starter = functools.partial(fork_rank, forget=self._descriptors)
        self._supervisor = Supervisor(fork, _limits.PROGRESS, self._scratch, self._selector, self._report)
        self._forking = not unsafe
        if unsafe:
            self._supervisor.start_with(spawn_rank, _limits.SPAWN_START)
        else:
            if not missing:
                import harness.cell._run
                import harness.cell.ranks._rank  # noqa: F401  # both in time for all ranks
            self._settle()
        self._channel.send(
            {
                "op": "ready",
                "mode": "zygote" if self._forking else "spawn",
                "why": unsafe,
                "missing": missing,
                "gpus": census.result(),
                "versions": installed_versions(),
                "pid": os.getpid(),
                "seconds": time.monotonic() - started,
            }
        )

    def serve(self) -> None:
        """Until the other end closes or asks to stop."""
        wake, self._woken = socket.socketpair()
        wake.settimeout(0)
        self._woken.settimeout(0)
        signal.set_wakeup_fd(self._woken.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only to be woken when a rank dies
        self._selector.register(wake, selectors.EVENT_READ, None)
        self._selector.register(self._channel, selectors.EVENT_READ, None)
        try:
            while not (self._channel.closed or self._leaving):
                timeout = self._supervisor.poll()
                for key, _ in self._selector.select(timeout):
                    if key.fileobj is wake:
                        wake.recv(4096)
                    elif key.fileobj is self._channel:
                        for message in self._channel.drain():
                            self._obey(message)
                    elif key.fileobj.fileno() >= 0:  # type: ignore[union-attr]  # not closed meanwhile
                        self._supervisor.readable(key.data)
        finally:
            self._leaving = True
            self._supervisor.cancel_all()
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _leave(self, number: int, _: object) -> None:
        # SIGHUP says that the thread that started us ended; its process may well live on.
        if number == signal.SIGTERM or os.getppid() != self._parent:
            self._leaving = True

    def _obey(self, message: Message) -> None:
        if message["op"] == "run":
            self._supervisor.run(message)
        elif message["op"] == "cancel":
            self._supervisor.cancel(message["id"])

    def _report(self, message: Message) -> None:
        if not self._channel.closed:
            self._channel.send(message)
        modules: set[str] = set()
        for rank in message["ranks"]:
            modules.update((rank["outcome"] or {}).pop("modules", ()))
        if not (self._forking and modules and self._preload.learn(modules)):
            return
        if unsafe := forking_is_unsafe():
            self._forking = False
            self._supervisor.start_with(spawn_rank, _limits.SPAWN_START)
            self._channel.send({"op": "spawning", "why": unsafe})
        else:
            self._settle()

    def _settle(self) -> None:
        """Move all that is loaded out of the collector's sight.

        ZeRO-3 collects garbage while it builds the optimizer: 0.2 s over the 365 MB that the
        libraries occupy, in every rank of every case; frozen objects cost nothing there and
        their pages stay shared.
        """
        gc.collect()
        gc.freeze()

    def _descriptors(self) -> Iterable[int]:
        """What a forked rank must not hold open: our sockets and those of other ranks."""
        yield from [key.fd for key in self._selector.get_map().values()]
        yield self._woken.fileno()
        if isinstance(self._selector, selectors.EpollSelector):
            yield self._selector.fileno()


def main(descriptor: int) -> None:
    own_session(signal.SIGHUP)
    # Ctrl-C reaches the whole foreground group; we end when pytest closes the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = Channel(socket.socket(fileno=descriptor))
    os.set_inheritable(descriptor, False)  # it has no name
    config = channel.receive()
    if config is not None:
        with contextlib.closing(channel):
            try:
                zygote = Zygote(channel, config)
            except OSError as error:
                sys.exit(f"no folder for the ranks can be made: {error}")
            zygote.serve()
    sys.stdout.flush()
    os._exit(0)  # interpreter shutdown with torch loaded aborts now and then


if __name__ == "__main__":
    main(int(sys.argv[1]))
