"""The command ``thawcheck``: sub-commands only; each lives in a module of its own."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence

from harness import __version__
from harness.control import (
    _bisect,
    _cases,
    _changes,
    _check,
    _diff,
    _discover,
    _expect,
    _explore,
    _lint,
    _lock,
    _merge,
    _pages,
    _report,
    _run,
    _stacks,
    _suite,
    _sweep,
    _table,
)
from harness.control._exit import Exit, Usage, help_texts

__all__ = ["main"]

_COMMANDS = (
    _cases,
    _run,
    _suite,
    _explore,
    _check,
    _bisect,
    _stacks,
    _discover,
    _lock,
    _sweep,
    _merge,
    _changes,
    _diff,
    _lint,
    _expect,
    _table,
    _pages,
    _report,
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="thawcheck",
        **help_texts("Does a freezing recipe train, under DeepSpeed ZeRO, what it is meant to train?"),
    )
    parser.add_argument("--version", action="version", version=f"thawcheck {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add_to(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one sub-command; the exit status."""
    given = list(sys.argv[1:] if argv is None else argv)
    # argparse has no word for "the rest is another program's" that leaves options in front alone.
    mine, rest = (given[: given.index("--")], given[given.index("--") + 1 :]) if "--" in given else (given, [])
    parser = _parser()
    args = parser.parse_args(mine)
    if rest and args.execute is not _suite.execute:
        parser.error(f"only `suite` passes arguments on to pytest, found {' '.join(rest)!r} after `--`")
    args.pytest_arguments = rest
    # A scheduler's or CI's way to cancel; what runs is ended and a line said, as on Ctrl-C.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        status: Exit = args.execute(args)
        sys.stdout.flush()
    except Usage as error:
        print(f"thawcheck: {error}", file=sys.stderr)
        return Exit.USAGE
    except KeyboardInterrupt:
        print("thawcheck: interrupted; nothing that it started is left running", file=sys.stderr)
        return Exit.INTERRUPTED
    except BrokenPipeError:  # the reader, e.g. `head`, has seen enough
        # What is still buffered goes nowhere; else Python would complain when it leaves.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if args.execute in (_cases.execute, _report.execute, _stacks.execute):
            return Exit.OK
        # Never 0 where verdicts were asked for and may not have been given.
        print("thawcheck: whoever read the output went away before its end", file=sys.stderr)
        return Exit.FAILED
    finally:
        signal.signal(signal.SIGTERM, before)
    return status


if __name__ == "__main__":
    sys.exit(main())
