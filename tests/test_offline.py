"""While nothing may reach the network, whoever tries fails and is told of."""

from __future__ import annotations

import contextlib
import socket
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path

import driver_cases
import pytest

from harness.cell import Options, Verdict
from harness.cell._case import JudgeFailed
from harness.cell.ranks._device import environment
from harness.cell.ranks._launch import Request, ZygoteLauncher
from harness.drivers._offline import NetworkTried, offline

#: Never assigned to anyone (RFC 5737), in case it does get out.
_AWAY = ("192.0.2.1", 9)


def _connect() -> None:
    with socket.socket() as one:
        one.settimeout(0.1)
        one.connect(_AWAY)


def _connect_ex() -> None:
    with socket.socket() as one:
        one.settimeout(0.1)
        one.connect_ex(_AWAY)


def _send() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as one:
        one.sendto(b"", _AWAY)


def _look_up() -> None:
    socket.getaddrinfo("host.invalid", 443)


def _look_up_as_of_old() -> None:
    socket.gethostbyname("host.invalid")


def _urllib() -> None:
    urllib.request.urlopen("https://host.invalid/")


def _quietly(reach: Callable[[], None]) -> None:
    with contextlib.suppress(Exception):
        reach()


@offline()
def _watched(what: Callable[[], object]) -> None:
    what()


@pytest.mark.parametrize("reach", [_connect, _connect_ex, _send, _look_up, _look_up_as_of_old, _urllib])
def test_who_reaches_for_the_network_fails(reach: Callable[[], None]) -> None:
    seen: list[BaseException] = []

    def look() -> None:
        with pytest.raises(NetworkTried) as caught:
            reach()
        seen.append(caught.value)

    with pytest.raises(JudgeFailed, match=r"the network was tried, .*: socket\.\w+ to (192\.0\.2\.1|host\.invalid)$"):
        _watched(look)
    assert seen


def test_who_carries_on_without_a_word_is_found_out() -> None:
    """In another thread, too, as telemetry does."""

    def elsewhere() -> None:
        other = threading.Thread(target=_quietly, args=(_connect,))
        other.start()
        other.join()

    with pytest.raises(JudgeFailed, match=r"the network was tried"):
        _watched(elsewhere)


def test_what_it_led_to_is_not_what_it_is() -> None:
    def fail() -> None:
        raise ValueError("no such model")

    def reach_and_fail() -> None:
        _quietly(_connect)
        fail()

    with pytest.raises(JudgeFailed, match=r"the network was tried"):
        _watched(reach_and_fail)
    with pytest.raises(ValueError, match="no such model"):
        _watched(fail)


def test_this_machine_may_be_reached(tmp_path: Path) -> None:
    with offline(), socket.socket() as server, socket.socket(socket.AF_UNIX) as local:
        server.bind(("127.0.0.1", 0))
        server.listen()
        socket.create_connection(("localhost", server.getsockname()[1])).close()
        socket.getaddrinfo("::1", 1)
        local.bind(str(tmp_path / "socket"))
        local.listen()
        with socket.socket(socket.AF_UNIX) as other:
            other.connect(str(tmp_path / "socket"))


def test_it_lasts_no_longer_than_it_is_asked_for() -> None:
    with offline(), offline():
        pass
    # Connects nothing: it only looks for a way there.
    with socket.socket(type=socket.SOCK_DGRAM) as one, contextlib.suppress(OSError):
        one.connect(_AWAY)


def test_a_rank_that_tries_is_no_finding(launcher: ZygoteLauncher) -> None:
    case = driver_cases.reaches_for_the_network
    record = launcher.result(launcher.submit(Request(case, Options(model="mlp", stage=0), world=2))).record

    assert record.verdict is Verdict.NOT_RUN
    assert "the network was tried, and nothing may depend on it: socket.connect to 192.0.2.1" in record.headline


def test_ranks_tell_nobody_and_download_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("AXOLOTL_DO_NOT_TRACK", "0")

    made = environment("cpu")
    assert (made["AXOLOTL_DO_NOT_TRACK"], made["HF_HUB_OFFLINE"]) == ("1", "1")

    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    assert environment("cuda")["HF_HUB_OFFLINE"] == "0", "a case of one's own may download"
