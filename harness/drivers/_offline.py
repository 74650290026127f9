"""Nothing may reach the network: whoever tries fails, and is told of."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import sys
import threading
from collections.abc import Iterator

from harness.cell._case import JudgeFailed

__all__ = ["NetworkTried", "offline"]


class NetworkTried(RuntimeError):
    """A library reached for the network.  No OSError: those mean a poor connection, and are tried again."""


#: What Python's own sockets ask for, and where among the arguments the address stands.
_EVENTS = {
    "socket.connect": 1,
    "socket.sendto": 1,
    "socket.sendmsg": 1,
    "socket.getaddrinfo": 0,
    "socket.gethostbyname": 0,
}

_lock = threading.Lock()
#: A hook cannot be taken out again, so there is one, which does nothing while this is empty.
_told: list[list[str]] = []
_hooked = False


@contextlib.contextmanager
def offline() -> Iterator[None]:
    """While it lasts, what leaves this machine raises :exc:`NetworkTried` in whatever thread tries it.

    Those who try often carry on without a word, so it is raised again behind them, as a :exc:`JudgeFailed`: a run
    that might have depended on what was there, or told others of itself, is no finding.
    """
    global _hooked  # noqa: PLW0603  # of the interpreter there is one, too
    tried: list[str] = []
    with _lock:
        if not _hooked:
            sys.addaudithook(_hear)
            _hooked = True
        _told.append(tried)
    try:
        yield
    except Exception as error:
        if tried:  # what it led to is not what it is
            raise JudgeFailed(_text(tried)) from error
        raise
    finally:
        with _lock:
            # By identity: two that have heard nothing are equal.
            _told[:] = [one for one in _told if one is not tried]
    if tried:
        raise JudgeFailed(_text(tried))


def _text(tried: list[str]) -> str:
    return f"the network was tried, and nothing may depend on it: {', '.join(dict.fromkeys(tried))}"


def _hear(event: str, args: tuple[object, ...]) -> None:
    place = _EVENTS.get(event)
    if place is None or not _told:
        return
    asked = args[place]
    by_name = event.startswith("socket.get")
    if not by_name and not isinstance(asked, tuple):
        return  # a socket in the file system, or one that is connected already
    host = asked if by_name else asked[0]  # type: ignore[index]  # narrowed above
    if isinstance(host, (bytes, bytearray)):
        host = host.decode(errors="replace")
    if not isinstance(host, str) or _is_here(host):
        return
    with _lock:
        for tried in _told:
            tried.append(f"{event} to {host}")
    raise NetworkTried(f"{event} to {host}, while nothing may reach the network")


def _is_here(host: str) -> bool:
    """Whether it is this machine."""
    if host in ("", "localhost", "0.0.0.0", socket.gethostname()):  # noqa: S104  # nothing is bound to it
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    return False
