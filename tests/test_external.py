"""Ranks that something else started: the same verdicts as under a zygote, and told by one rank.

Also a program, which :func:`told` runs under torchrun: every job of :func:`jobs`, in order.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import external_cases
import pytest
import rank_cases
from rank_world import answer, new_world

from harness.cell import Case, CaseRecord, Verdict
from harness.cell.__main__ import main
from harness.cell._catalog import find
from harness.cell.external._launcher import ExternalLauncher
from harness.cell.external._meeting import Meeting
from harness.cell.external._place import NoPlace, Place, first_host
from harness.cell.external._watch import State, Watch
from harness.cell.outcome._results import read_results
from harness.cell.ranks import _limits
from harness.cell.ranks._launch import Request, ZygoteLauncher

#: A launch imports the libraries once per rank; nothing takes this long unless it never happens.
LAUNCH: Final = 400.0

#: Seconds without progress that make a HANG here.
SHORT: Final = 3.0

TORCHRUN: Final = (sys.executable, "-m", "torch.distributed.run")

#: What a zygote is asked as well.
_COMPARED: Final = (
    external_cases.trains_a_block,
    find("unfreeze_more_after_engine"),
    rank_cases.raises_on_the_last_rank,
    rank_cases.raises_on_every_rank,
    rank_cases.finds_the_disk_full,
    rank_cases.blocks_in_a_collective,
    rank_cases.is_killed,
    rank_cases.reads_address_zero,
    rank_cases.leaves_with_status_3,
    rank_cases.exits,
    external_cases.trains_a_part_that_is_not_there,
    external_cases.needs_what_is_not_there,
    external_cases.shares_a_folder,
)

_ALONE: Final = (
    external_cases.makes_a_group_of_its_own,
    rank_cases.litters_and_raises,
    rank_cases.litters_and_is_killed,
)


def request(case: Case) -> Request:
    return Request(case, case.choose(model="mlp"), 2, deadline=SHORT)


def _drive(folder: Path) -> NoReturn:
    """One rank of the program: runs all cases, and notes what it was told."""
    place = Place.find(os.environ)
    launcher = ExternalLauncher(place)
    launcher.start()
    with (folder / f"rank{place.rank}").open("w", encoding="utf-8") as file:
        for case in _COMPARED + _ALONE:
            outcome = launcher.result(launcher.submit(request(case)))
            told = {"record": outcome.record.as_dict(), "malformed": outcome.malformed, "speaks": launcher.speaks}
            print(json.dumps(told), file=file)
    launcher.close()
    os._exit(0)  # as a rank does; to end with torch loaded in the usual way may abort


@dataclass
class Told:
    """What the ranks were told of each case, by its name, and what was left when all was over."""

    ranks: list[dict[str, dict[str, Any]]]
    left: dict[str, Any]

    def record(self, case: Case) -> CaseRecord:
        return CaseRecord.from_dict(self.ranks[0][case.name]["record"])


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder = tmp_path_factory.mktemp("external")
    with new_world(folder) as world:
        launch = [*TORCHRUN, "--nproc-per-node", "2", __file__, str(folder)]
        done = subprocess.run(launch, capture_output=True, text=True, timeout=LAUNCH, check=False)
        assert done.returncode == 0, done.stderr
        lines = [(folder / f"rank{rank}").read_text(encoding="utf-8").splitlines() for rank in range(2)]
        cases = _COMPARED + _ALONE
        ranks = [dict(zip([case.name for case in cases], map(json.loads, one), strict=True)) for one in lines]
        return Told(ranks, world.left())


@pytest.mark.parametrize("case", _COMPARED, ids=lambda case: case.name)
def test_the_verdict_is_that_of_a_zygote(told: Told, launcher: ZygoteLauncher, case: Case) -> None:
    forked = launcher.result(launcher.submit(request(case)))
    record = told.ranks[0][case.name]["record"]
    wanted = json.loads(json.dumps(forked.record.as_dict()))
    same = ["verdict", "headline", "failure", "parameters"]
    if record["verdict"] != "CRASH":  # peers of a dead rank may fail themselves before they are ended
        same.append("notes")
        assert sorted(record.get("stacks", ())) == sorted(wanted.get("stacks", ()))
    assert {key: record.get(key) for key in same} == {key: wanted.get(key) for key in same}
    assert told.ranks[0][case.name]["malformed"] == forked.malformed
    assert (record["launcher"], wanted["launcher"]) == ("torchrun", "zygote")


def test_verdicts_are_those_that_the_cases_were_made_for(told: Told) -> None:
    """Lest both launchers be wrong alike."""
    wanted = {
        "trains_a_block": Verdict.TRAINS,
        "unfreeze_more_after_engine": Verdict.NO_UPDATE,
        "raises_on_the_last_rank": Verdict.RAISES,
        "blocks_in_a_collective": Verdict.HANG,
        "is_killed": Verdict.CRASH,
        "trains_a_part_that_is_not_there": Verdict.NOT_RUN,
        "needs_what_is_not_there": Verdict.NOT_RUN,
    }
    assert {name: Verdict(told.ranks[0][name]["record"]["verdict"]) for name in wanted} == wanted


def test_stacks_are_those_of_the_code_under_test(told: Told) -> None:
    hang = told.record(rank_cases.blocks_in_a_collective)
    assert "in wait_for_others" in hang.stacks["0"]
    assert "in sleep_for_ever" in hang.stacks["1"]
    blocked = told.record(rank_cases.raises_on_the_last_rank)
    assert "in wait_for_others" in blocked.stacks["0"]


def test_every_rank_is_told_and_one_speaks(told: Told) -> None:
    for name, first in told.ranks[0].items():
        assert told.ranks[1][name]["record"] == first["record"]
        assert (first["speaks"], told.ranks[1][name]["speaks"]) == (True, False)


def test_code_under_test_can_meet_at_the_address_it_finds(told: Told) -> None:
    assert answer(told.record(external_cases.makes_a_group_of_its_own)) == 2


def test_nothing_is_left(told: Told) -> None:
    assert told.record(rank_cases.litters_and_is_killed).verdict is Verdict.CRASH
    assert told.left == {}


def test_the_command_on_two_nodes(tmp_path: Path) -> None:
    """Two agents of torchrun with a rank each, as on two machines."""
    meeting = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
    command = ["-m", "harness.cell", "literal_loop_before_engine", "--model", "mlp", "--stage", "3"]
    agents = [
        subprocess.Popen(
            [*TORCHRUN, *meeting, "--rdzv-id", "test", *command, "--json", str(tmp_path / "results.jsonl")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    told = [agent.communicate(timeout=LAUNCH) for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], told
    silent, shown = sorted(out for out, _ in told)
    assert silent == ""
    assert "world 2, cpu: TRAINS" in shown
    assert "layers.2.weight" in shown
    (line,) = read_results(tmp_path / "results.jsonl")
    assert (line["verdict"], line["world"], line["as_expected"]) == ("TRAINS", 2, True)


def test_rank_1_tells_that_rank_0_is_lost(tmp_path: Path) -> None:
    """Started as by SLURM, where rank 0 serves what the ranks meet at."""
    case = f"{external_cases.__file__}::loses_the_keeper_of_rank_0"
    told = in_slurm(["-m", "harness.cell", case, "--json", str(tmp_path / "results.jsonl")])
    assert [code for code, _, _ in told] == [-9, 1], told
    assert "world 2, cpu: CRASH" in told[1][1]
    assert "rank 0 vanished" in told[1][1]
    (line,) = read_results(tmp_path / "results.jsonl")
    assert (line["verdict"], line["failure"]["ranks"], line["launcher"]) == ("CRASH", [0], "srun")


def in_slurm(arguments: list[str]) -> list[tuple[int, str, str]]:
    """Two ranks of a step on one node; status, output and errors of each."""
    port = str(free_port())
    tasks = []
    for rank in range(2):
        step = {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_STEP_NUM_TASKS": "2"}
        step |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        tasks.append(
            subprocess.Popen(
                [sys.executable, *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, **step},
            )
        )
    said = [task.communicate(timeout=LAUNCH) for task in tasks]
    return [(task.returncode, *one) for task, one in zip(tasks, said, strict=True)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# -- bad input, before anything is imported --------------------------------------------------

_TORCH: Final = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "node1", "MASTER_PORT": "29500"}
_SLURM: Final = {"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1"}


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The environment of a command run in this process."""
    plain = dict(_TORCH)
    monkeypatch.setattr(os, "environ", plain)
    yield plain
    assert "torch" not in sys.modules or plain == os.environ


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["freeze_excpt_before_engine"], "did you mean 'freeze_except_before_engine'"),
        (["nowhere.py::trains"], "there is no file 'nowhere.py'"),
        ([f"{external_cases.__file__}::trains_a_blok"], "has no case of that name"),
        (["freeze_except_before_engine", "--stage", "7"], "no variant has stage=7; there is: "),
        (["freeze_except_before_engine", "--variant", "mlp-z4"], "no variant 'mlp-z4'; did you mean"),
        (["freeze_except_before_engine", "--variant", "mlp-z1", "--stage", "1"], "--stage cannot be given as well"),
        (["freeze_except_before_engine", "--deadline", "0"], "--deadline must be positive, found 0"),
        (["freeze_except_before_engine", "--expected", "nowhere"], "there is no folder nowhere"),
        (["freeze_except_before_engine", "--device", "tpu"], "invalid choice: 'tpu'"),
        ([], "the following arguments are required: CASE"),
    ],
    ids=lambda value: " ".join(value)[-40:] if isinstance(value, list) else "",
)
@pytest.mark.usefixtures("environ")
def test_bad_usage_is_told_in_a_line(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert text in err
    assert len(err.splitlines()) == 1


def test_without_a_launcher_it_says_how_to_launch(environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    environ.clear()
    assert main(["freeze_except_before_engine"]) == 2
    err = capsys.readouterr().err
    assert "torchrun --nproc-per-node 2 -m harness.cell CASE" in err
    assert "srun --ntasks 2 python -m harness.cell CASE" in err


def test_only_the_first_rank_of_a_machine_complains(
    environ: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    environ["LOCAL_RANK"] = "1"
    assert main(["no_such_case"]) == 2
    assert capsys.readouterr().err == ""
    environ["LOCAL_RANK"] = "0"
    assert main(["no_such_case"]) == 2
    assert capsys.readouterr().err.startswith("thawcheck: rank 1: no case is called 'no_such_case'")


# -- who we are ------------------------------------------------------------------------------


def test_torchrun_says_which_rank_this_is() -> None:
    own = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "a"}
    attempt = {"TORCHELASTIC_RESTART_COUNT": "2", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    place = Place.find(_TORCH | own | attempt)
    assert place == Place("torchrun", 1, 4, "node1", 29500, True, 0, 1, "a/2")


def test_the_deepspeed_launcher_says_which_rank_this_is() -> None:
    place = Place.find(_TORCH | {"LOCAL_RANK": "1", "LOCAL_SIZE": "2"})
    assert (place.rank, place.local_rank, place.local_world, place.served) == (1, 1, 2, False)


def test_slurm_says_which_rank_this_is() -> None:
    step = {"SLURM_JOB_ID": "100", "SLURM_STEP_ID": "3", "SLURM_NTASKS": "64"}
    place = Place.find(_SLURM | step | {"SLURM_STEP_NODELIST": "gpu[07-09],gpu12"})
    assert (place.launcher, place.rank, place.world, place.local_rank) == ("srun", 5, 8, 1)
    assert (place.address, place.port) == ("gpu07", 21603)
    other = Place.find(_SLURM | step | {"MASTER_ADDR": "head", "MASTER_PORT": "1234"})
    assert (other.address, other.port) == ("head", 1234)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("n1", "n1"),
        ("n1,n2", "n1"),
        ("n[01-03]", "n01"),
        ("n[5,7-9].site,m1", "n5.site"),
        ("rack[2-3]node[10-19]", "rack2node10"),
        ("", ""),
    ],
)
def test_the_first_host_of_a_slurm_list(nodes: str, first: str) -> None:
    assert first_host(nodes) == first


@pytest.mark.parametrize(
    ("environ", "faults"),
    [
        ({"RANK": "1"}, ["WORLD_SIZE is not set", "MASTER_ADDR is not set", "MASTER_PORT is not set"]),
        (_TORCH | {"RANK": "4"}, ["rank 4 is not below the number of ranks, 4"]),
        (_TORCH | {"RANK": "one", "WORLD_SIZE": "0"}, ["RANK must be a number", "WORLD_SIZE must be a number from 1"]),
        (_TORCH | {"MASTER_PORT": "70000"}, ["MASTER_PORT must be below 65536, found 70000"]),
        (_SLURM, ["MASTER_ADDR is not set"]),
    ],
)
def test_every_fault_of_the_environment_is_told(environ: dict[str, str], faults: list[str]) -> None:
    with pytest.raises(NoPlace) as caught:
        Place.find(environ)
    for fault in faults:
        assert fault in str(caught.value)


def test_ranks_of_one_machine_share_the_folder_that_all_of_them_see(tmp_path: Path) -> None:
    """Ranks 0 and 2 run elsewhere, and their folders are not to be seen here."""
    hellos = [{"machine": "ab"[rank % 2], "folder": str(tmp_path / str(rank))} for rank in range(4)]
    for rank in (1, 3):
        (tmp_path / str(rank)).mkdir()
    for rank, local in ((1, 0), (3, 1)):
        meeting = Meeting(Place("environment", rank, 4, "node1", 29500), hellos)
        assert meeting.folder == tmp_path / "1"
        assert meeting.local == (local, 2)


def test_a_launcher_knows_better_which_ranks_share_a_machine() -> None:
    place = Place("environment", 1, 2, "node1", 29500, local_rank=0, local_world=1)
    assert Meeting(place, [{"machine": "a"}, {"machine": "a"}]).local == (0, 1)


def test_ranks_of_other_versions_are_named() -> None:
    place = Place("environment", 0, 2, "node1", 29500)
    meeting = Meeting(place, [{"versions": {"torch": version, "peft": "1"}} for version in ("2.12", "2.13")])
    assert meeting.odd_versions() == ["rank 1 runs torch 2.13, rank 0 2.12"]


# -- when a job is over ----------------------------------------------------------------------


class Clock:
    """Drives a watch of two ranks, whose keepers speak at every tenth of a second unless silenced."""

    def __init__(self) -> None:
        self.now = 100.0
        self.states = [State(job=1, ticks=1, joined=True) for _ in range(2)]
        self.silent: set[int] = set()
        self.watch = Watch(1, 2, deadline=10.0, now=self.now, start_deadline=60.0)

    def over(self, seconds: float = 0.1) -> str:
        """What the watch says in the coming seconds, at the first time that it says anything."""
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            for rank in {0, 1} - self.silent:
                self.states[rank].beat += 1
            self.watch.see([State(**vars(state)) for state in self.states], self.now)
            if how := self.watch.over(self.now):
                return how
        return ""


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_job_goes_on_while_any_rank_makes_progress(clock: Clock) -> None:
    for _ in range(5):
        assert clock.over(9.0) == ""
        clock.states[1].ticks += 1
    assert clock.over(9.0) == ""
    assert clock.over(1.5) == "hang"


def test_joining_has_a_deadline_of_its_own(clock: Clock) -> None:
    clock.states[0].joined = False
    assert clock.over(59.0) == ""
    assert clock.over(1.5) == "hang"


def test_all_reported_ends_a_job(clock: Clock) -> None:
    clock.states[0].kind = "done"
    assert clock.over(1.0) == ""
    clock.states[1].kind = "done"
    assert clock.over() == "reported"
    assert clock.watch.reported[0] < clock.watch.reported[1]


def test_peers_of_a_rank_that_raised_have_a_moment_to_report(clock: Clock) -> None:
    clock.states[1].kind = "raised"
    assert clock.over(_limits.PEER_GRACE - 0.1) == ""
    assert clock.over(0.3) == "raised"


def test_a_dead_rank_ends_a_job_at_once(clock: Clock) -> None:
    clock.states[0].kind = "raised"
    clock.states[1].dead = True
    assert clock.over() == "died"


def test_a_silent_keeper_is_gone_before_its_peers_seem_to_hang(clock: Clock) -> None:
    clock.over(3.0)
    clock.silent = {1}
    assert clock.over(_limits.GONE - 0.2) == ""
    assert clock.over(0.5) == "died"
    assert clock.watch.gone(clock.now) == [1]


def test_the_keeper_of_a_rank_that_reported_may_be_silent(clock: Clock) -> None:
    clock.states[1].kind = "done"
    clock.over()
    clock.silent = {1}
    assert clock.over(9.0) == ""


def test_a_launcher_that_ends_all_ranks_interrupts(clock: Clock) -> None:
    clock.states[0].stopped = True
    assert clock.over(_limits.STOPPING - 0.2) == ""
    assert clock.over(0.5) == "cancelled"


def test_a_launcher_that_ends_the_rest_has_lost_a_rank(clock: Clock) -> None:
    clock.silent = {1}
    clock.states[0].stopped = True
    assert clock.over(_limits.STOPPING + 0.3) == "died"
    assert clock.watch.gone(clock.now) == [1]


def test_what_keepers_say_of_the_job_before_does_not_count(clock: Clock) -> None:
    clock.states = [State(job=0, kind="done") for _ in range(2)]
    assert clock.over(5.0) == ""


def test_a_job_that_cannot_start_says_why(clock: Clock) -> None:
    clock.states[1].cannot = "no GPU"
    assert clock.over(_limits.PEER_GRACE - 0.1) == ""
    assert clock.over(0.3) == "not_started"
    assert clock.watch.reason == "rank 1: no GPU"


def test_what_keeps_all_ranks_from_starting_is_said_once(clock: Clock) -> None:
    for state in clock.states:
        state.cannot = "no library"
    assert clock.over() == "not_started"
    assert clock.watch.reason == "no library"


if __name__ == "__main__":
    _drive(Path(sys.argv[1]))
