"""The board: what the keepers of all ranks write for each other, on torch's key-value server.

No folder is shared between machines, and the process group belongs to the code under test; the
server that every launcher gives an address for is what is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn

from harness.cell.external._place import Place
from harness.cell.ranks import _limits
from harness.cell.ranks._start import own_session
from harness.cell.ranks._wire import Message

if TYPE_CHECKING:
    from torch.distributed import Store

__all__ = ["Board", "BoardLost", "Server"]

#: The server takes 8 MiB a value at most; the views of ranks with many parameters are longer.
_PART = 1 << 20

#: A server that does not answer so long is not there any more.
_ANSWER = timedelta(seconds=30)


class BoardLost(Exception):
    """The server is gone, or cannot be reached."""


@contextlib.contextmanager
def _reaching(place: Place) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # torch has several exceptions for it, all of this kind
        said = str(error).strip().splitlines()[0]
        raise BoardLost(f"the key-value server at {place.address}:{place.port}: {said}") from None


class Server:
    """Serves the board from rank 0 where the launcher does not, in a forked process of its own.

    Own, because its threads would make it unsafe for the keeper to fork ranks.  Where that is
    unsafe anyway the board serves itself.
    """

    def __init__(self, port: int) -> None:
        """:raises BoardLost: when it cannot serve there, e.g. since the port is taken."""
        self._line, theirs = socket.socketpair()
        self.pid = os.fork()
        if not self.pid:
            try:
                self._line.close()
                _serve(port, theirs)
            finally:
                os._exit(1)
        theirs.close()
        answer = self._line.recv(4096).decode()
        if answer != "ready":
            self.close()
            raise BoardLost(f"rank 0 cannot serve at port {port}: {answer or 'the server died'}")

    def fileno(self) -> int:
        return self._line.fileno()

    def close(self) -> None:
        self._line.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def _serve(port: int, line: socket.socket) -> NoReturn:
    """Until the keeper closes its end, even if a launcher tells all of us to end meanwhile."""
    from torch.distributed import TCPStore

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    own_session()
    try:
        server = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    except RuntimeError as error:
        line.sendall(str(error).strip().splitlines()[0].encode())
        os._exit(1)
    line.sendall(b"ready")
    line.recv(1)
    del server
    os._exit(0)


class Board:
    """One rank's view of the board.

    A plain value may change and must exist to be read; a published one is there for good, and
    can be asked for before it is.
    """

    def __init__(self, place: Place, *, serve: bool = False) -> None:
        """Waits for the server, or is it.  Raises BoardLost."""
        from torch.distributed import PrefixStore, TCPStore

        self._place = place
        with _reaching(place):
            server = TCPStore(
                place.address,
                place.port,
                is_master=serve,
                wait_for_workers=False,
                timeout=timedelta(seconds=_limits.MEET),
            )
            server.set_timeout(_ANSWER)
            self._store: Store = PrefixStore(f"thawcheck/{place.attempt}", server)

    def count(self, key: str, more: int = 0) -> int:
        """A counter, after adding ``more``."""
        with _reaching(self._place):
            return int(self._store.add(f"{key}#", more))

    def put(self, key: str, message: Message) -> None:
        text = json.dumps(message, separators=(",", ":"))
        parts = [text[start : start + _PART] for start in range(0, len(text), _PART)]
        with _reaching(self._place):
            for number, part in enumerate(parts[1:], 1):
                self._store.set(f"{key}+{number}", part)
            self._store.set(key, f"{len(parts)} {parts[0]}")

    def get(self, key: str) -> Message:
        with _reaching(self._place):
            count, _, text = self._store.get(key).decode().partition(" ")
            text += "".join(self._store.get(f"{key}+{number}").decode() for number in range(1, int(count)))
        message: Message = json.loads(text)
        return message

    def publish(self, key: str, message: Message) -> None:
        self.put(key, message)
        self.count(key, 1)

    def published(self, key: str) -> Message | None:
        return self.get(key) if self.count(key) else None
