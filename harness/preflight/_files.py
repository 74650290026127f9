"""Read a file that a user named: what cannot be read is a finding, never a traceback."""

from __future__ import annotations

from pathlib import Path

from harness.cell._patterns import nearest
from harness.preflight._finding import Finding, Level

__all__ = ["read_text"]


def read_text(path: Path, who: str) -> tuple[str, list[Finding]]:
    """The text, or why there is none.

    :param who: the option, or file and key, that named it.
    """

    def no(text: str) -> tuple[str, list[Finding]]:
        return "", [Finding(Level.INPUT, "file", who, text)]

    try:
        return path.read_text(encoding="utf-8-sig"), []
    except FileNotFoundError:
        try:
            beside = [one.name for one in path.parent.iterdir()]
        except OSError:
            return no(f"there is no folder {str(path.parent)!r}")
        return no(f"there is no file {str(path)!r}; in its folder, {nearest(path.name, beside)}")
    except IsADirectoryError:
        return no(f"{str(path)!r} is a folder; name a file")
    except UnicodeDecodeError as error:
        return no(f"{str(path)!r} is no text: byte {error.start} is none of UTF-8")
    except OSError as error:
        return no(f"{str(path)!r} cannot be read: {error.strerror}")
