"""The results file: JSON Lines, one writer, a line as soon as a case is done, nothing lost."""

from __future__ import annotations

import datetime as dt
import errno
import fcntl
import itertools
import json
import math
import os
from pathlib import Path
from typing import IO, Any

__all__ = ["ResultsError", "ResultsFile", "as_line", "make_ready", "read_results"]


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
            make_ready(path)
            self._lock = self._locked()
        except OSError as error:
            raise ResultsError(f"results cannot be written to {path}: {error.strerror}") from None

    def write(self, record: dict[str, Any]) -> None:
        """Append one line and hand it to the system.  Raises ResultsError, the file still whole."""
        line = as_line(record).encode() + b"\n"
        try:
            if self._file is None:
                self._keep_earlier()
                # Unbuffered: a line is in the file or it is not, and nothing waits in this
                # process to be lost with it.
                self._file = self.path.open("ab", buffering=0)
            _append(self._file, line)
        except OSError as error:
            lines = "line before is" if self.written == 1 else "lines before are"
            raise ResultsError(
                f"results cannot be written to {self.path}: {error.strerror}; the {self.written} {lines} whole"
            ) from None
        self.written += 1

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self._lock_path.unlink(missing_ok=True)
        self._lock.close()

    def _locked(self) -> IO[str]:
        """The open lock file, with our process in it.

        :raises ResultsError: when another run has it.
        :raises OSError: when it cannot be made.
        """
        while True:
            lock = self._lock_path.open("a+")
            try:
                self._take(lock)
                # Whoever had it removed the file meanwhile: then another may have made a new one.
                if self._lock_path.exists() and os.path.samestat(os.fstat(lock.fileno()), self._lock_path.stat()):
                    lock.truncate(0)
                    lock.write(str(os.getpid()))
                    lock.flush()
                    return lock
            except BaseException:
                lock.close()
                raise
            lock.close()

    def _take(self, lock: IO[str]) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            owner = lock.read().strip() or "unknown"
            raise ResultsError(
                f"another run (process {owner}) is writing {self.path}; wait for it, or name another file"
            ) from None

    def _keep_earlier(self) -> None:
        if not self.path.exists() or not self.path.stat().st_size:
            return
        made = dt.datetime.fromtimestamp(self.path.stat().st_mtime, tz=dt.timezone.utc).astimezone()
        stamp = made.strftime("%Y%m%d-%H%M%S")
        names = itertools.chain([stamp], (f"{stamp}-{number}" for number in itertools.count(2)))
        kept = (self.path.with_name(f"{self.path.stem}.{name}{self.path.suffix}") for name in names)
        self.path.rename(next(one for one in kept if not one.exists()))


def make_ready(path: Path) -> None:
    """Make the folder of a file to come.  Raises OSError, which says why it could not be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, f"{path.parent} is no folder") from None
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def as_line(record: dict[str, Any]) -> str:
    """A record as strict JSON: whatever reads it need not be Python."""
    text = json.dumps(_finite(record), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # Half a surrogate pair, as in a file name that is no UTF-8, has no encoding; JSON's escape is this very one.
    return text.encode("utf-8", "backslashreplace").decode()


def read_results(path: Path) -> list[dict[str, Any]]:
    """The lines of a results file; a last line cut off by a kill is left out."""
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    return [json.loads(line) for line in whole.splitlines() if line.strip()]


def _finite(value: Any) -> Any:
    """Without NaN and infinities, for which JSON has no word; ``found`` tells of them in words."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _append(file: IO[bytes], line: bytes) -> None:
    """All of ``line`` or nothing of it.  Raises OSError."""
    good = file.tell()
    written = 0
    try:
        written = file.write(line)
    finally:
        if written < len(line):
            file.truncate(good)
    if written < len(line):  # what a disk does that becomes full in the middle
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
