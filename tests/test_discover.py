"""``thawcheck discover``: what an index has that the matrix has not, and the edit that takes it in."""

from __future__ import annotations

import base64
import http.server
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from small_matrix import RELEASES, make_matrix, solve

from harness.control._exit import Exit
from harness.control.cli import main
from harness.control.discover import _index
from harness.control.stacks import Matrix

JSON: Final = "application/vnd.pypi.simple.v1+json"

File = dict[str, Any]


def wheel(package: str, version: str, time: str = "2026-12-24T23:59:59.123456Z", **fields: Any) -> File:
    return {"filename": f"{package}-{version}-py3-none-any.whl", "upload-time": time, **fields}


class LocalIndex:
    """A package index that answers what a test puts into it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.files: dict[str, list[File]] = {}
        self.kind = JSON
        #: the whole body, where it is no list of files
        self.body: bytes | None = None
        #: where to send those who ask for this package
        self.moved: dict[str, str] = {}
        self.asked: list[tuple[str, str | None, str | None]] = []


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalIndex]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.asked.append((self.path, self.headers["Accept"], self.headers["Authorization"]))
            package = self.path.removeprefix("/simple/").removesuffix("/")
            if package in made.moved:
                self.send_response(302)
                self.send_header("Location", made.moved[package])
                self.end_headers()
                return
            if package not in made.files and made.body is None:
                self.send_error(404, "No such package")
                return
            body = made.body or json.dumps({"meta": {"api-version": "1.1"}, "files": made.files[package]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", made.kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the base's name)
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = LocalIndex(f"http://127.0.0.1:{server.server_address[1]}/simple")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL", "http_proxy", "HTTP_PROXY", "PIP_CERT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_DEFAULT_INDEX", made.url)
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def matrix(tmp_path: Path, index: LocalIndex, monkeypatch: pytest.MonkeyPatch) -> Matrix:
    """Solved; the index has just what it knows, and older releases."""
    monkeypatch.chdir(tmp_path)
    made = make_matrix(tmp_path)
    solve(made)
    for package, releases in made.releases.items():
        index.files[package] = [wheel(package, release, f"{day}T12:00:00Z") for release, day in releases.items()]
        index.files[package].append(wheel(package, "0.0.9", "2020-01-01T00:00:00Z"))
    return made


def discover(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["discover", *arguments]) == Exit.OK
    out, err = capsys.readouterr()
    assert err == ""
    return out


def failed(capsys: pytest.CaptureFixture[str], *arguments: str, status: Exit = Exit.FAILED) -> list[str]:
    assert main(["discover", *arguments]) == status
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()


# -- what is new -----------------------------------------------------------------------------


@pytest.mark.usefixtures("matrix")
def test_nothing_new(capsys: pytest.CaptureFixture[str], index: LocalIndex) -> None:
    assert discover(capsys) == "nothing new of torch, deepspeed, accelerate\n"
    assert {path for path, _, _ in index.asked} == {"/simple/torch/", "/simple/deepspeed/", "/simple/accelerate/"}
    assert {accept for _, accept, _ in index.asked} == {JSON}


def test_new_releases_their_stacks_and_the_edit(
    capsys: pytest.CaptureFixture[str], index: LocalIndex, matrix: Matrix
) -> None:
    index.files["torch"] += [
        # The day of a release is that of its first file, whatever came for it later.
        wheel("torch", "2.13.1", "2026-12-05T00:00:01Z"),
        wheel("torch", "2.13.1", "2026-12-03T23:59:59Z"),
        wheel("torch", "2.3.0", "2024-04-24T00:00:00Z"),
        wheel("torch", "2.14.0rc1"),
        wheel("torch", "2.15.0.dev20261129"),
        wheel("torch", "2.14.0", yanked="broken"),
        {"filename": "torch-9.tar.bz2", "upload-time": "2026-12-01T00:00:00Z"},
    ]
    index.files["accelerate"] += [{"filename": "accelerate-1.9.tar.gz", "upload-time": "2026-07-02T00:00:00Z"}]
    diff = (
        "--- a/matrix/releases.toml\n"
        "+++ b/matrix/releases.toml\n"
        "@@ -2,7 +2,9 @@\n"
        " [torch]\n"
        ' "2.2.0" = 2024-01-30\n'
        ' "2.2.1" = 2024-02-22  # the last of its minor\n'
        '+"2.3.0" = 2024-04-24\n'
        ' "2.13.0" = 2026-07-08\n'
        '+"2.13.1" = 2026-12-03\n'
        " \n"
        " [deepspeed]\n"
        ' "0.17.0" = 2025-06-02\n'
        "@@ -12,4 +14,5 @@\n"
        " \n"
        " [accelerate]\n"
        ' "0.25.0" = 2023-12-01\n'
        '+"1.9" = 2026-07-02\n'
        ' "1.15.0" = 2026-07-01\n'
    )
    assert discover(capsys) == (
        "torch 2.3.0 (2024-04-24): torch-2.3.0\n"
        "torch 2.13.1 (2026-12-03): torch-2.13.1\n"
        "accelerate 1.9 (2026-07-02): no sweep takes it\n"
        "no stacks any more, since newer releases take their place: torch-2.13.0\n"
        f"\n{diff}"
    )
    assert (matrix.folder / "releases.toml").read_text(encoding="utf-8") == RELEASES
    told = json.loads(discover(capsys, "--json"))
    assert told["new"] == [
        {"package": "torch", "version": "2.3.0", "day": "2024-04-24", "stacks": ["torch-2.3.0"]},
        {"package": "torch", "version": "2.13.1", "day": "2026-12-03", "stacks": ["torch-2.13.1"]},
        {"package": "accelerate", "version": "1.9", "day": "2026-07-02", "stacks": []},
    ]
    assert (told["stacks_gone"], told["stacks_changed"], told["diff"]) == (["torch-2.13.0"], [], diff)


def test_what_must_be_solved_again_is_named(
    capsys: pytest.CaptureFixture[str], index: LocalIndex, matrix: Matrix
) -> None:
    """An accelerate of the day when torch 2.2.1 came out, which the matrix overlooked."""
    del matrix
    index.files["accelerate"] += [wheel("accelerate", "0.27.0", "2024-02-09T00:00:00Z")]
    lines = discover(capsys, "accelerate").splitlines()
    assert lines[:2] == ["accelerate 0.27.0 (2024-02-09): no sweep takes it", "to be solved again: torch-2.2.1"]
    assert {path for path, _, _ in index.asked} == {"/simple/accelerate/"}


@pytest.mark.usefixtures("matrix")
def test_known_releases_that_went_away(capsys: pytest.CaptureFixture[str], index: LocalIndex) -> None:
    for file in index.files["deepspeed"]:
        if "0.17.0" in file["filename"]:
            file["yanked"] = "it trains\nnothing"
    # With one file left that is not, a release is taken still.
    index.files["deepspeed"] += [wheel("deepspeed", "0.18.0", yanked=True)]
    index.files["torch"] = [file for file in index.files["torch"] if "-2.2." not in file["filename"]]
    assert discover(capsys).splitlines() == [
        "torch: the index has no 2.2.0, 2.2.1 any more",
        "deepspeed 0.17.0 was yanked: it trains nothing",
        "nothing new of torch, deepspeed, accelerate",
    ]
    told = json.loads(discover(capsys, "--json"))
    assert told["yanked"] == [{"package": "deepspeed", "version": "0.17.0", "reason": "it trains\nnothing"}]
    assert [one["version"] for one in told["gone"]] == ["2.2.0", "2.2.1"]


# -- written ---------------------------------------------------------------------------------


def test_write_adds_lines_and_keeps_all_else(
    capsys: pytest.CaptureFixture[str], index: LocalIndex, matrix: Matrix
) -> None:
    index.files["deepspeed"] += [wheel("deepspeed", one) for one in ("0.19.2", "0.19.1")]
    path = matrix.folder / "releases.toml"
    # Line ends of another system, a table without lines, and none at the end of the file.
    # Nor are all releases in order.
    text = RELEASES.replace('"0.17.0" = 2025-06-02\n', "").replace(
        "# none after", '"0.17.0" = 2025-06-02\n# none after'
    )
    text = text.replace("\n", "\r\n") + "\r\n[peft]"
    path.write_bytes(text.encode())
    index.files["peft"] = [wheel("peft", "2.6.0")]
    lines = discover(capsys, "--write").splitlines()
    assert lines == [
        "deepspeed 0.19.1 (2026-12-24): ds-0.19.1",
        "deepspeed 0.19.2 (2026-12-24): ds-0.19.2",
        "peft 2.6.0 (2026-12-24): no sweep takes it",
        f"{path} is written; next: thawcheck lock",
    ]
    assert (
        path.read_bytes().decode()
        == text.replace(
            '"0.19.0" = 2026-05-06\r\n',
            '"0.19.0" = 2026-05-06\r\n"0.19.1" = 2026-12-24\r\n"0.19.2" = 2026-12-24\r\n',
        )
        + '\n"2.6.0" = 2026-12-24\n'
    )
    assert sorted(one.name for one in matrix.folder.iterdir()) == ["locks", "releases.toml", "stacks.toml"]
    assert discover(capsys, "--write") == "nothing new of torch, deepspeed, accelerate, peft\n"


def test_a_table_that_cannot_be_edited_is_named(
    capsys: pytest.CaptureFixture[str], index: LocalIndex, matrix: Matrix
) -> None:
    path = matrix.folder / "releases.toml"
    path.write_text(f'numpy = {{"2.5.5" = 2026-11-15}}\n{RELEASES}', encoding="utf-8")
    index.files["numpy"] = [wheel("numpy", "2.6.0")]
    assert failed(capsys, "--write", status=Exit.USAGE) == [
        f"thawcheck: {path}: numpy must be a table with the head [numpy], a line for each release"
    ]


# -- which index -----------------------------------------------------------------------------


def test_the_index_is_that_of_uv_or_pip(index: LocalIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def url() -> str:
        return _index.Index.configured(os.environ).url

    monkeypatch.setenv("PIP_INDEX_URL", "https://pip.example.org/simple/")
    monkeypatch.setenv("UV_INDEX_URL", "https://uv.example.org/simple")
    assert url() == index.url
    monkeypatch.setenv("UV_DEFAULT_INDEX", "mine=https://me:secret@uv2.example.org:8443/simple")
    assert url() == "https://uv2.example.org:8443/simple"
    monkeypatch.delenv("UV_DEFAULT_INDEX")
    assert url() == "https://uv.example.org/simple"
    monkeypatch.delenv("UV_INDEX_URL")
    assert url() == "https://pip.example.org/simple"
    monkeypatch.delenv("PIP_INDEX_URL")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setattr(_index, "_PIP", [str(fake_pip(tmp_path, "global.index-url='https://conf.example.org/simple'"))])
    assert url() == "https://conf.example.org/simple"
    monkeypatch.setattr(_index, "_PIP", [str(fake_pip(tmp_path, "global.timeout='60'"))])
    assert url() == "https://pypi.org/simple"


def fake_pip(folder: Path, says: str) -> Path:
    path = folder / "pip"
    path.write_text(f'#!/bin/sh\necho "{says}"\n', encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.usefixtures("matrix")
def test_a_password_is_sent_and_not_shown(
    capsys: pytest.CaptureFixture[str], index: LocalIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", index.url.replace("//", "//me:se%40cret@"))
    index.files.pop("torch")
    said = failed(capsys, "torch")
    assert said[0] == f"thawcheck: the package index {index.url}, asked for torch, answered 404 No such package"
    (asked,) = index.asked
    assert asked[2] == f"Basic {base64.b64encode(b'me:se@cret').decode()}"
    # Nor told to whom the index sends us on.
    index.moved["torch"] = f"{index.url.replace('127.0.0.1', 'localhost')}/accelerate/"
    assert discover(capsys, "torch", "--json").startswith("{")
    assert [(path, who) for path, _, who in index.asked[1:]] == [
        ("/simple/torch/", asked[2]),
        ("/simple/accelerate/", None),
    ]
    monkeypatch.setenv("UV_DEFAULT_INDEX", "ftp://me:secret@example.org/simple")
    said = failed(capsys, "torch")
    assert said[0] == (
        "thawcheck: the package index must be an http or https address, found 'ftp://example.org/simple'"
    )


# -- an index that fails ---------------------------------------------------------------------


@pytest.mark.usefixtures("matrix")
def test_an_index_that_is_not_there(
    capsys: pytest.CaptureFixture[str], index: LocalIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A port that nobody listens on: the one below those that anybody may have.
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:1/simple")
    assert failed(capsys, "torch", "accelerate", "--write") == [
        (
            "thawcheck: the package index http://127.0.0.1:1/simple, asked for torch, "
            "cannot be reached: [Errno 111] Connection refused"
        ),
        (
            "thawcheck: the package index http://127.0.0.1:1/simple, asked for accelerate, "
            "cannot be reached: [Errno 111] Connection refused"
        ),
        "thawcheck: UV_DEFAULT_INDEX or PIP_INDEX_URL names another index",
    ]
    assert index.asked == []


@pytest.mark.usefixtures("matrix")
def test_an_index_that_answers_something_else(capsys: pytest.CaptureFixture[str], index: LocalIndex) -> None:
    who = f"thawcheck: the package index {index.url}, asked for torch,"
    index.files["torch"][0].pop("upload-time")
    assert failed(capsys, "torch")[0] == f"{who} does not tell when 2.2.0 was uploaded: it must speak version 1.1"
    index.body = b"{"
    assert failed(capsys, "torch")[0].startswith(f"{who} answered no list of files: JSONDecodeError: ")
    index.kind = "text/html"
    assert failed(capsys, "torch")[0] == f"{who} answered text/html, and {JSON} is needed"


@pytest.mark.usefixtures("matrix")
def test_an_unknown_package(capsys: pytest.CaptureFixture[str], index: LocalIndex) -> None:
    assert failed(capsys, "deepsped", status=Exit.USAGE) == [
        "thawcheck: releases.toml has no 'deepsped'; did you mean 'deepspeed'?"
    ]
    assert index.asked == []
