"""In the place of tox and the suite, for tests of the sweep: results of every shipped variant, made up, at once.

Run by a checkout's ``toxw``.  What else it is to do, a file of the stack's name in the folder ``how`` says.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from harness.cell._catalog import shipped
from harness.cell.outcome._record import CaseRecord, Failure, ParameterVerdict
from harness.cell.outcome._results import as_line
from harness.cell.outcome._verdict import Verdict


def records(stack: str, versions: dict[str, str]) -> list[CaseRecord]:
    """The same for each stack whenever they are made, in another order each time."""
    made = []
    for number, case in enumerate(shipped()):
        for options in case.variants:
            record = CaseRecord(
                case=case.name,
                kind=case.kind,
                options=options.as_dict(),
                id=f"{case.name}[{options.id}]",
                verdict=Verdict.TRAINS,
                headline="all is well",
                world=case.world,
                device="cpu",
                launcher="zygote",
                versions=versions,
                stack=stack,
                harness="1.0",
                code=case.code,
                started="2026-11-30T12:00:00+00:00",
                seconds={"wall": random.random()},  # noqa: S311  (no secret)
            )
            if number == 1:
                record.verdict = Verdict.NO_UPDATE
                record.parameters = [
                    ParameterVerdict("late", Verdict.NO_UPDATE, True, True, [0], [8]),
                    ParameterVerdict("rest", Verdict.FROZEN, False, False, [0], [8]),
                ]
            elif number == 2:
                record.verdict = Verdict.RAISES
                where = f"/somewhere/{os.getpid()}/module.py at {hex(id(record))}"
                record.failure = Failure("engine", "IndexError", f"in {where}", [0, 1])
            made.append(record)
    random.shuffle(made)
    return made


def main(arguments: list[str]) -> int:
    root = Path.cwd()
    stack = arguments[arguments.index("-e") + 1]
    folder = Path(arguments[arguments.index("--workdir") + 1])
    (given,) = (one.partition("=")[2] for one in arguments if one.startswith("testenv.commands="))
    commands = [line.removeprefix("- ") for line in given.splitlines()]
    suites = [one.split() for one in commands if one.startswith("thawcheck suite ")]
    words = suites[0]
    assert {one[one.index("--stack") + 1] for one in suites} == {stack}
    results = Path(words[words.index("--results") + 1])
    assert Path(arguments[arguments.index("--installpkg") + 1]).is_file()
    some = [words[place + 1] for place, word in enumerate(words) if word == "--case"]
    with (root / "ran").open("a", encoding="utf-8") as file:
        file.write(":".join([stack, *some]) + "\n")
    todo = to_do(root / "how", stack)
    folder.mkdir(parents=True)  # an environment
    if todo == "fail":
        print("\n".join(f"line {number}" for number in range(1, 21)))
        return 7
    if todo == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if todo in ("hang", "deaf"):
        hang(root / "hanging" / (stack if (root / "how" / stack).exists() else "bisect"))
    lock = (Path(os.environ["THAWCHECK_MATRIX"]) / "locks" / f"{stack}.txt").read_text(encoding="utf-8").splitlines()
    versions = dict(line.split("==") for line in lock if not line.startswith("#"))
    lines = [
        as_line(one.as_dict())
        for one in records(stack, {**versions, "python": "3.11.7"})
        if one.case in some or not some
    ]
    if (script := root / "how" / "did.json").exists():
        bisected(script, versions, commands[0], [Path(one[one.index("--results") + 1]) for one in suites], lines)
        return 1
    if todo == "short":
        print("stopped early")
        lines = lines[:-3]
    if todo == "broken":
        lines[1] = lines[1][:50]
    if todo == "twice":  # a case that was run again: what it gave last counts
        lines.insert(0, lines[0].replace('"TRAINS"', '"HANG"'))
    if todo == "mixed":
        lines[0] = lines[0].replace('"torch":"', '"torch":"0.')
    results.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return 1  # as where a verdict is not the expected one


def to_do(how: Path, stack: str) -> str:
    """What a file of the stack's name says."""
    if (own := how / stack).exists():
        return own.read_text(encoding="utf-8")
    for what in ("fail", "hang"):  # of a bisection, whose stacks nobody can name before
        if (named := how / what).exists() and stack.endswith(named.read_text(encoding="utf-8")):
            return what
    return ""


def bisected(script: Path, versions: dict[str, str], first: str, files: list[Path], lines: list[str]) -> None:
    """What cases do by the release, or the commit, as the script says; of several things, one a run."""
    said = json.loads(script.read_text(encoding="utf-8"))
    at = next((one for one in said["does"] if one in first), versions[said["package"]])
    does = said["does"].get(at, ["TRAINS"])
    for number, path in enumerate(files):
        verdict, _, error = does[number % len(does)].partition(" ")
        changed = [json.loads(line) | {"verdict": verdict, "headline": f"{verdict} at {at}"} for line in lines]
        if error:
            failure = {"moment": "engine", "type": error, "message": "", "ranks": [0]}
            changed = [one | {"failure": failure} for one in changed]
        path.write_text("".join(f"{as_line(one)}\n" for one in changed), encoding="utf-8")


def hang(pids: Path) -> None:
    """Until the file is gone; with a child that does not listen, as ranks that hang do not."""
    deaf = [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"]
    ranks = [subprocess.Popen(deaf), subprocess.Popen(deaf, start_new_session=True)]
    pids.parent.mkdir(exist_ok=True)
    fresh = pids.with_suffix(".new")
    fresh.write_text(" ".join(map(str, [os.getpid(), *(one.pid for one in ranks)])), encoding="utf-8")
    fresh.replace(pids)
    while pids.exists():
        time.sleep(0.02)
    for one in ranks:
        one.kill()
        one.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
