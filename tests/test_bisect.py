"""``thawcheck bisect`` on a made-up matrix, whose environments take a moment; see sweep_tox.py."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from small_matrix import STACKS, observed
from sweep_world import Checkout, Ran, finished

from harness.cell import Verdict
from harness.cell._catalog import shipped
from harness.cell.outcome._observed import Outcome
from harness.control._exit import Exit
from harness.control.locks import read_lock

CASE: Final = shipped()[0]
VARIANT: Final = CASE.choose()
DAY: Final = dt.date(2025, 1, 1)
EXCLUDE: Final = """[[exclude]]
where = {deepspeed = "==0.18.0"}
reason = "its wheel is empty"
"""
#: 40 of them
DEEPSPEED: Final = [f"0.{minor}.{patch}" for minor in range(17, 27) for patch in range(4)]
RELEASES: Final = "\n".join(
    [
        '[torch]\n"2.2.0" = 2024-01-30\n"2.2.1" = 2024-02-22\n"2.13.0" = 2026-07-08\n[deepspeed]',
        *(f'"{one}" = {DAY + dt.timedelta(days=10 * number)}' for number, one in enumerate(DEEPSPEED)),
        '[accelerate]\n"0.25.0" = 2023-12-01\n"1.15.0" = 2026-07-01',
    ]
)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "checkout")
    yield made
    made.checkout.close()


class World:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.checkout = Checkout(root, stacks=STACKS.replace(EXCLUDE, ""), releases=RELEASES)

    def does(self, package: str, does: Mapping[str, Sequence[str]]) -> None:
        """What the case does, by release or commit; TRAINS where nothing is said."""
        (self.root / "how" / "did.json").write_text(json.dumps({"package": package, "does": does}), encoding="utf-8")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return self.checkout.start(CASE.name, *arguments, command="bisect")

    def bisect(self, *arguments: str) -> Ran:
        return finished(self.start(*arguments))

    def among(self, *arguments: str) -> Ran:
        """All 40 releases."""
        return self.bisect("--package", "deepspeed", "--good", DEEPSPEED[0], "--bad", DEEPSPEED[-1], *arguments)

    def json(self, *arguments: str) -> dict[str, Any]:
        ran = self.among("--json", *arguments)
        found: dict[str, Any] = json.loads("\n".join(ran.out))
        return found

    def saw(self, release: str, verdict: Verdict, **fields: object) -> None:
        """In matrix/observed, on the stack that the sweep has for a release."""
        name = f"ds-{release}"
        lock, _ = read_lock(self.checkout.matrix.lock(name))
        assert lock is not None
        outcome = Outcome(CASE.name, verdict, CASE.variants, 2)
        head = {"lock": lock.answer, "versions": {"deepspeed": release, "torch": "2.13.0+cpu"}} | fields
        observed(name, outcome, **head).write(self.checkout.matrix.observed(name))  # type: ignore[arg-type]


def bad_from(number: int, verdict: str = "NO_UPDATE") -> dict[str, list[str]]:
    return {one: [verdict] for one in DEEPSPEED[number:]}


def test_a_boundary_among_forty_releases(world: World) -> None:
    world.does("deepspeed", bad_from(23))
    ran = world.among()

    assert ran.status == Exit.OK, ran
    assert ran.err == []
    assert ran.out[0] == (
        f"{CASE.name}[{VARIANT.id}] along 40 releases of deepspeed on latest; 0 were observed before, about 8 to run"
    )
    end = ran.out.index("")
    assert ran.out[end + 1 : -2] == [
        f"up to deepspeed {DEEPSPEED[22]} ({DAY + dt.timedelta(days=220)}): TRAINS",
        f"from  deepspeed {DEEPSPEED[23]} ({DAY + dt.timedelta(days=230)}): NO_UPDATE",
        f"what changed: https://github.com/deepspeedai/DeepSpeed/compare/v{DEEPSPEED[22]}...v{DEEPSPEED[23]}",
    ]
    made = re.fullmatch(r"(\d+) of 40 places run, (\d+) environments made; again: (.*)", ran.out[-1])
    assert made is not None
    assert made[1] == made[2]
    assert 2 < int(made[1]) <= 8
    assert len(world.checkout.ran()) == int(made[1])
    assert world.checkout.left() == [], "environments go"
    # Who asks again is told at once, by the command that was named.
    again = finished(world.checkout.start(*made[3].split()[2:], command="bisect"))
    assert world.checkout.ran() == []
    assert again.out[-4:-1] == ran.out[-4:-1]
    # The ends may be given the other way round: then it was mended.
    turned = world.bisect("--package", "deepspeed", "--bad", DEEPSPEED[0], "--good", DEEPSPEED[-1])
    assert turned.out[-4:-1] == ran.out[-4:-1]


def test_what_was_observed_is_used_and_both_sides_are_run(world: World) -> None:
    world.does("deepspeed", bad_from(23))
    for number, release in enumerate(DEEPSPEED):
        world.saw(release, Verdict.TRAINS if number < 23 else Verdict.NO_UPDATE)
    ran = world.bisect("--package", "deepspeed")

    assert ran.status == Exit.OK
    assert ran.out[0].endswith("40 were observed before, about 2 to run")
    assert [one.partition(":")[0].rpartition("-")[2] for one in world.checkout.ran()] == DEEPSPEED[22:24]
    assert any(line.startswith(f"from  deepspeed {DEEPSPEED[23]} ") for line in ran.out)


def test_what_was_observed_and_does_not_hold_is_not_used(world: World) -> None:
    world.does("deepspeed", bad_from(23))
    for number, release in enumerate(DEEPSPEED):
        world.saw(release, Verdict.TRAINS if number < 30 else Verdict.NO_UPDATE)
    found = world.json()

    assert [(one["last"]["at"], one["first"]["at"]) for one in found["boundaries"]] == [(DEEPSPEED[22], DEEPSPEED[23])]
    assert found["refuted"] == [DEEPSPEED[29]]
    assert DEEPSPEED[22] in found["run"]
    # By another lock, it says nothing of the stack as it is.
    for release in DEEPSPEED:
        world.saw(release, Verdict.TRAINS, lock="older")
    assert "0 were observed before" in world.among().out[0]
    assert "40 were observed before" not in world.among("--no-observed").out[0]


def test_ends_that_do_the_same_are_refused(world: World) -> None:
    world.does("deepspeed", {one: ["NO_UPDATE"] for one in DEEPSPEED[10:20]})
    ran = world.among()

    assert ran.status == Exit.DIFFERS
    told = f"deepspeed {DEEPSPEED[0]} and {DEEPSPEED[-1]} do the same, TRAINS"
    assert ran.out[-1] == f"{told}. --every looks between them."
    assert len(world.checkout.ran()) == 2, "the ends come first"
    world.saw(DEEPSPEED[15], Verdict.NO_UPDATE)
    assert f"{told}; observed to do otherwise: {DEEPSPEED[15]}, take one" in world.among().out[-1]

    every = world.json("--every")
    places = [(one["last"]["at"], one["first"]["at"]) for one in every["boundaries"]]
    assert places == [(DEEPSPEED[9], DEEPSPEED[10]), (DEEPSPEED[19], DEEPSPEED[20])]
    assert {*every["run"]} == {*DEEPSPEED} - {DEEPSPEED[15]}, "what was observed is trusted, where it is no side"


def test_another_failure_is_a_class_of_its_own(world: World) -> None:
    world.does("deepspeed", bad_from(23) | {one: ["RAISES KeyError"] for one in DEEPSPEED[15:23]})
    found = world.json()

    assert [(one["first"]["at"], one["after"]["verdict"], one["after"]["error"]) for one in found["boundaries"]] == [
        (DEEPSPEED[15], "RAISES", "KeyError"),
        (DEEPSPEED[23], "NO_UPDATE", ""),
    ]
    only = world.json("--verdict", "NO_UPDATE", "--times", "3", "--no-observed", "--every")
    assert only["command"].endswith(" --times 3 --verdict NO_UPDATE --every --no-observed")
    assert [one["first"]["at"] for one in only["boundaries"]] == [DEEPSPEED[23]]
    assert world.among("--verdict", "HANG").status == Exit.DIFFERS


def test_runs_that_differ_name_no_culprit(world: World) -> None:
    world.does("deepspeed", bad_from(23) | {DEEPSPEED[19]: ["TRAINS", "NO_UPDATE", "NO_UPDATE"]})
    ran = world.among()

    assert ran.status == Exit.DIFFERS
    assert not [line for line in ran.out if line.startswith(("up to", "from"))]
    at = ran.out.index("it does not do the same each time, so no release is to blame by this:")
    # Two runs, and four more to count.
    assert ran.out[at + 1 :] == [f"  deepspeed {DEEPSPEED[19]}: 3 times TRAINS, 3 times NO_UPDATE"]


def test_a_release_that_cannot_be_installed_or_imported_is_skipped(world: World) -> None:
    world.does("deepspeed", bad_from(23) | {DEEPSPEED[22]: ["NOT_RUN"], DEEPSPEED[21]: ["NOT_RUN"]})
    for number, name in enumerate(DEEPSPEED):
        if number == 19:
            fail_at(world, name)
    found = world.json()

    (one,) = found["boundaries"]
    assert (one["last"]["at"], one["first"]["at"], one["skipped"]) == (DEEPSPEED[20], DEEPSPEED[23], DEEPSPEED[21:23])
    assert found["unusable"][DEEPSPEED[22]] == f"NOT_RUN at {DEEPSPEED[22]}"
    assert "line 20" in found["unusable"][DEEPSPEED[19]]


def fail_at(world: World, release: str) -> None:
    """Whatever bisection it is."""
    (world.root / "how" / "fail").write_text(release, encoding="utf-8")


def test_where_no_environment_can_be_made_it_does_not_try_them_all(world: World) -> None:
    fail_at(world, "")
    ran = world.among()

    assert ran.status == Exit.FAILED
    assert len(world.checkout.ran()) == 4
    assert ran.err[-1].strip() == "line 20"


def test_one_that_was_killed_goes_on_where_it_was(world: World) -> None:
    world.does("deepspeed", bad_from(23))
    (world.root / "how" / "hang").write_text(DEEPSPEED[19], encoding="utf-8")
    started = world.start("--package", "deepspeed", "--good", DEEPSPEED[0], "--bad", DEEPSPEED[-1])
    assert world.checkout.hanging("bisect")
    os.kill(started.pid, signal.SIGKILL)
    started.communicate()
    before = world.checkout.ran()
    assert len(before) == 3

    (world.root / "how" / "hang").unlink()
    ran = world.among()
    assert ran.status == Exit.OK
    assert any(line.startswith(f"from  deepspeed {DEEPSPEED[23]} ") for line in ran.out)
    again = world.checkout.ran()
    assert not {*before[:2]} & {*again}, "the ends were seen before"
    assert before[2] in again


def test_another_package_that_matters_is_shown(world: World) -> None:
    world.does("deepspeed", bad_from(23, "RAISES KeyError"))
    last, first = DEEPSPEED[22], DEEPSPEED[23]
    world.saw(last, Verdict.TRAINS)
    for number, release in enumerate((last, first)):
        outcome = Outcome(CASE.name, Verdict.TRAINS, CASE.variants, 2)
        name = f"old-{number}"
        old = observed(name, outcome, versions={"deepspeed": release, "torch": "2.2.1", "python": "3.11.7"})
        old.write(world.checkout.matrix.observed(name))
    world.saw(first, Verdict.NO_UPDATE)
    ran = world.among()

    at = ran.out.index(f"torch matters, too; observed so far beside deepspeed {last} and {first}:")
    assert [line.split() for line in ran.out[at + 1 : at + 4]] == [
        ["torch", last, first],
        ["2.2.1", "TRAINS", "TRAINS"],
        ["2.13.0", "TRAINS", "NO_UPDATE"],
    ]


def test_commits_of_a_clone(world: World, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git = ["git", "-C", str(clone), "-c", "user.name=a", "-c", "user.email=a@b.example"]
    subprocess.run(["git", "init", "--quiet", str(clone)], check=True)
    for number in range(6):
        command = [*git, "commit", "--quiet", "--allow-empty", "-m", f"change {number}"]
        subprocess.run(command, check=True)
    told = subprocess.run([*git, "rev-list", "--reverse", "HEAD"], capture_output=True, text=True, check=True)
    commits = told.stdout.split()
    world.does("deepspeed", {one: ["NO_UPDATE"] for one in commits[4:]} | {one: ["TRAINS"] for one in commits[:4]})
    ran = world.bisect("--package", "deepspeed", "--clone", str(clone), "--good", "HEAD~5", "--bad", "HEAD")

    assert ran.status == Exit.OK
    day = dt.datetime.now(dt.timezone.utc).date()
    assert f"from  deepspeed {commits[4][:10]} ({day}) change 4: NO_UPDATE" in ran.out
    page = f"https://github.com/deepspeedai/DeepSpeed/compare/{commits[3]}...{commits[4]}"
    assert f"what changed: {page}" in ran.out
    sideways = [*git, "checkout", "--quiet", "--orphan", "other"]
    subprocess.run(sideways, check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "elsewhere"], check=True)
    apart = world.bisect("--package", "deepspeed", "--clone", str(clone), "--good", "HEAD", "--bad", commits[0])
    assert apart.status == Exit.USAGE
    assert "neither comes from the other" in apart.err[0]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--package", "deepspeeed"], "--package: 'deepspeeed' has no releases in releases.toml; did you mean"),
        (["--package", "deepspeed", "--good", "0.17.9", "--bad", "9"], "--good: deepspeed '0.17.9' is no release"),
        (["--package", "deepspeed", "--good", "0.17.9", "--bad", "9"], "--bad: deepspeed '9' is no release"),
        (["--package", "deepspeed", "--good", "0.17.0", "--bad", "0.17.0"], "there is nothing between them"),
        (["--package", "deepspeed"], "was observed on 0 releases of deepspeed beside latest: give --good and --bad"),
        (["--package", "deepspeed", "--stack", "lates"], "--stack: no stack is called 'lates'; did you mean"),
        (["--package", "deepspeed", "--stack", "dev-main"], "is a dev stack"),
        (["--package", "deepspeed", "--times", "0", "--verdict", "TRAIN"], "--times must be 1 or more, found 0"),
        (["--package", "deepspeed", "--times", "0", "--verdict", "TRAIN"], "--verdict: 'TRAIN' is no verdict"),
        (["--package", "deepspeed", "--clone", "."], "--clone: give --good and --bad"),
        (["--package", "deepspeed", "--clone", ".", "--good", "a", "--bad", "b"], "is no clone of a repository"),
        (["--package", "deepspeed", "--stage", "7"], "no variant has stage=7"),
    ],
)
def test_bad_input(world: World, arguments: list[str], told: str) -> None:
    ran = world.bisect(*arguments)

    assert ran.status == Exit.USAGE
    assert any(told in line for line in ran.err), ran.err
    assert world.checkout.ran() == []


def test_an_unknown_case(world: World) -> None:
    ran = finished(world.checkout.start("no_such", "--package", "deepspeed", command="bisect"))

    assert ran.status == Exit.USAGE
    assert "no case is called 'no_such'" in ran.err[0]


def test_a_folder_that_cannot_be_written(world: World) -> None:
    (world.root / ".tox").write_text("no folder")
    ran = world.among()

    assert ran.status == Exit.USAGE
    assert ".tox" in ran.err[0]


def test_a_half_written_line_is_dropped(world: World) -> None:
    world.does("deepspeed", bad_from(23))
    world.among()
    (path,) = (world.root / ".tox" / "bisect").glob("*/seen.jsonl")
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], lines[2][:40]]))
    world.checkout.ran()

    assert world.among().status == Exit.OK
    assert len(world.checkout.ran()) == len(lines) - 2


def test_the_variant_that_was_asked_for_is_the_one_that_is_looked_at(world: World) -> None:
    other = next(one for one in CASE.variants if one.stage != VARIANT.stage)
    ran = world.among("--stage", str(other.stage))

    assert f"[{dataclasses.replace(other).id}]" in ran.out[0] or f"-z{other.stage}" in ran.out[0]
