"""One issue per case and package, through the command line of GitHub."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

__all__ = ["IssuesFailed", "Tracker"]


class IssuesFailed(Exception):
    """What `gh` could not do, in its own words."""


class Tracker:
    """The issues of the repository that `gh` is set up for."""

    def __init__(self) -> None:
        found = shutil.which("gh")
        if found is None:
            raise IssuesFailed("there is no gh on the PATH: install the command line of GitHub, or leave --issues out")
        self._gh = found

    def put(self, title: str, body: str) -> str:
        """Open the issue of that title, or give the one that is open this text; in words, which.

        :raises IssuesFailed: when `gh` cannot.
        """
        number = self._number(title)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "body.md"
            file.write_text(body, encoding="utf-8")
            if number is not None:
                self._run("edit", str(number), "--body-file", str(file))
                return f"updated issue {number}: {title}"
            self._run("create", "--title", title, "--body-file", str(file))
            return f"opened an issue: {title}"

    def _number(self, title: str) -> int | None:
        """Of the oldest open issue with just this title; the search finds similar ones, too."""
        asked = ("--state", "open", "--search", f'"{title}" in:title', "--limit", "100", "--json", "number,title")
        said = self._run("list", *asked)
        try:
            return min((int(one["number"]) for one in json.loads(said) if one["title"] == title), default=None)
        except (ValueError, KeyError, TypeError) as error:
            raise IssuesFailed(f"gh issue list answered {said[:200]!r}: {type(error).__name__}: {error}") from None

    def _run(self, *arguments: str) -> str:
        done = subprocess.run([self._gh, "issue", *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            said = " ".join((done.stderr or done.stdout).split())
            raise IssuesFailed(f"gh issue {arguments[0]} left with {done.returncode}: {said}")
        return done.stdout
