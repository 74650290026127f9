"""JSON Lines over a stream socket: the one format between pytest, zygote and ranks."""

from __future__ import annotations

import json
import socket
from typing import Any

__all__ = ["Channel", "Message"]

Message = dict[str, Any]


class Channel:
    """A socket end that sends and receives whole messages.

    ``receive`` blocks; ``drain`` takes what has arrived (call it when a selector says so).
    A peer that is gone shows as ``None`` / ``closed``, never as an exception, since both ends
    outlive each other in every order when processes are killed.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.closed = False
        self._pending = b""

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(self, message: Message) -> bool:
        """Send one message; False when the peer is gone."""
        try:
            self.sock.sendall(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        except OSError:
            self.closed = True
            return False
        return True

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message, or None once the peer is gone.  Raises TimeoutError."""
        self.sock.settimeout(timeout)
        try:
            while b"\n" not in self._pending:
                if not self._read():
                    return None
        finally:
            self.sock.settimeout(None)
        return self._take()[0]

    def drain(self) -> list[Message]:
        """All messages that can be had from one read of a readable socket."""
        self._read()
        return self._take(everything=True)

    def _read(self) -> bool:
        try:
            chunk = self.sock.recv(1 << 16)
        except TimeoutError:
            raise
        except OSError:
            chunk = b""
        if not chunk:
            self.closed = True
            return False
        self._pending += chunk
        return True

    def _take(self, *, everything: bool = False) -> list[Message]:
        limit = -1 if everything else 1
        *lines, self._pending = self._pending.split(b"\n", limit)
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        self.closed = True
        self.sock.close()
