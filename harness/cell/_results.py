"""The results file: JSON Lines, one writer, a line as soon as a case is done, nothing lost."""

from __future__ import annotations

import datetime
import fcntl
import json
import os
from pathlib import Path
from typing import IO, Any

__all__ = ["ResultsError", "ResultsFile", "read_results"]


class ResultsError(Exception):
    """Results cannot be written; says which file, why, and what is safe."""


class ResultsFile:
    """Opened before the first case runs, so that a long run does not end in a surprise.

    What an earlier run left in the file is kept beside it, under its date, once the first new
    line is there to write.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written = 0
        self._file: IO[bytes] | None = None
        self._lock_path = path.with_name(f".{path.name}.lock")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = self._lock_path.open("a+")
            if path.exists() and not os.access(path, os.W_OK):
                raise PermissionError(13, "Permission denied")
        except OSError as error:
            raise ResultsError(f"results cannot be written to {path}: {_why(error)}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.seek(0)
            owner = self._lock.read().strip() or "unknown"
            self._lock.close()
            raise ResultsError(
                f"another run (process {owner}) is writing {path}; wait for it, or give --results another file"
            ) from None
        self._lock.truncate(0)
        self._lock.write(str(os.getpid()))
        self._lock.flush()

    def write(self, record: dict[str, Any]) -> None:
        """Append one line and hand it to the system.  Raises ResultsError, the file still whole."""
        line = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        good = 0
        try:
            if self._file is None:
                self._keep_earlier()
                # Unbuffered: a line is in the file or it is not, and nothing waits in this
                # process to be lost with it.
                self._file = self.path.open("ab", buffering=0)
            good = self._file.tell()
            if self._file.write(line) != len(line):
                raise OSError(28, "No space left on device")
        except OSError as error:
            if self._file is not None:
                self._file.truncate(good)
            raise ResultsError(
                f"results cannot be written to {self.path}: {_why(error)}; the {self.written} lines before are whole"
            ) from None
        self.written += 1

    def _keep_earlier(self) -> None:
        if self.path.exists() and self.path.stat().st_size:
            made = datetime.datetime.fromtimestamp(self.path.stat().st_mtime)
            stamp = made.strftime("%Y%m%d-%H%M%S")
            self.path.rename(self.path.with_name(f"{self.path.stem}.{stamp}{self.path.suffix}"))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self._lock_path.unlink(missing_ok=True)
        self._lock.close()


def read_results(path: Path) -> list[dict[str, Any]]:
    """The lines of a results file; a last line cut off by a kill is left out."""
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    return [json.loads(line) for line in whole.splitlines() if line.strip()]


def _why(error: OSError) -> str:
    return error.strerror or str(error)
