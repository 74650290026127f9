"""``thawcheck discover``: releases that have come out and are not in the matrix yet."""

from __future__ import annotations

import argparse
import concurrent.futures
import difflib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.cell._patterns import nearest
from harness.control._exit import Exit, Usage, help_texts
from harness.control._matrix import add_folder, matrix_of
from harness.control.discover import Consequences, Index, IndexFailed, News, consequences, news_of, with_releases
from harness.control.stacks import Matrix, MatrixError

__all__ = ["add_to", "execute"]

_AT_ONCE = 4


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "discover",
        help="list releases that are not in the matrix yet",
        **help_texts(
            "Ask the package index that uv or pip is set up for which releases have come out since "
            "matrix/releases.toml was written, say which stacks they would give, and propose the edit. "
            "Pre-releases and yanked ones are left out.",
            {
                Exit.OK: "the index was asked, whether or not there is news",
                Exit.DIFFERS: "",
                Exit.FAILED: "the index failed",
            },
        ),
    )
    parser.add_argument("packages", metavar="PACKAGE", nargs="*", help="only these (default: all of releases.toml)")
    parser.add_argument("--write", action="store_true", help="make the edit")
    parser.add_argument("--json", action="store_true", help="as JSON, the edit in it as a diff")
    add_folder(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> Exit:
    matrix = matrix_of(args)
    if unknown := [one for one in args.packages if one not in matrix.releases]:
        raise Usage("; ".join(f"releases.toml has no {one!r}; {nearest(one, matrix.releases)}" for one in unknown))
    try:
        news = _ask(matrix, args.packages or list(matrix.releases))
    except IndexFailed as error:
        print(f"thawcheck: {error}", file=sys.stderr)
        print("thawcheck: UV_DEFAULT_INDEX or PIP_INDEX_URL names another index", file=sys.stderr)
        return Exit.FAILED
    path = matrix.folder / "releases.toml"
    before = path.read_bytes().decode()
    after = _edited(path, before, news)
    try:
        follows = consequences(matrix, after, news)
    except MatrixError as error:
        raise Usage(f"with the new releases the matrix would have faults:\n{error}") from None
    diff = _diff(path, before, after)
    if args.json:
        print(json.dumps(_plain(news, follows, diff), indent=2))
    else:
        print("\n".join(_told(news, follows)))
        if diff and not args.write:
            print(f"\n{diff}", end="")
    if args.write and diff:
        _write(path, after)
        if not args.json:
            print(f"{path} is written; next: thawcheck lock")
    return Exit.OK


def _ask(matrix: Matrix, packages: Sequence[str]) -> list[News]:
    """Raises IndexFailed, with all that failed."""
    index = Index.configured(os.environ)
    with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
        asked = [pool.submit(index.releases, package) for package in packages]
    found, faults = [], []
    for package, one in zip(packages, asked, strict=True):
        try:
            found.append(news_of(package, matrix.releases[package], one.result()))
        except IndexFailed as error:
            faults.append(str(error))
    if faults:
        raise IndexFailed("\nthawcheck: ".join(faults))
    return found


def _edited(path: Path, text: str, news: Sequence[News]) -> str:
    for one in news:
        try:
            text = with_releases(text, one.package, one.new)
        except ValueError as error:
            raise Usage(f"{path}: {error}") from None
    return text


def _diff(path: Path, before: str, after: str) -> str:
    name = f"{path.resolve().parent.name}/{path.name}"
    old, new = (text.splitlines(keepends=True) for text in (before, after))
    return "".join(difflib.unified_diff(old, new, f"a/{name}", f"b/{name}"))


def _write(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    try:
        fresh.write_bytes(text.encode())
        fresh.replace(path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise Usage(f"{path} cannot be written: {error.strerror}; it is as it was") from None


# -- shown -----------------------------------------------------------------------------------


def _told(news: Sequence[News], follows: Consequences) -> list[str]:
    lines = []
    for one in news:
        for release in one.new:
            stacks = ", ".join(follows.added[one.package, str(release.version)]) or "no sweep takes it"
            lines.append(f"{one.package} {release.version} ({release.day}): {stacks}")
        lines += [f"{one.package} {release.version} was yanked{_why(release.reason)}" for release in one.yanked]
        if one.gone:
            lines.append(f"{one.package}: the index has no {', '.join(one.gone)} any more")
    if not any(one.new for one in news):
        lines.append(f"nothing new of {', '.join(one.package for one in news)}")
    if follows.gone:
        lines.append(f"no stacks any more, since newer releases take their place: {', '.join(follows.gone)}")
    if follows.changed:
        lines.append(f"to be solved again: {', '.join(follows.changed)}")
    return lines


def _why(reason: str) -> str:
    return f": {' '.join(reason.split())}" if reason.strip() else ""


def _plain(news: Sequence[News], follows: Consequences, diff: str) -> dict[str, Any]:
    return {
        "new": [
            {
                "package": one.package,
                "version": str(release.version),
                "day": str(release.day),
                "stacks": list(follows.added[one.package, str(release.version)]),
            }
            for one in news
            for release in one.new
        ],
        "yanked": [
            {"package": one.package, "version": str(release.version), "reason": release.reason}
            for one in news
            for release in one.yanked
        ],
        "gone": [{"package": one.package, "version": version} for one in news for version in one.gone],
        "stacks_gone": list(follows.gone),
        "stacks_changed": list(follows.changed),
        "diff": diff,
    }
