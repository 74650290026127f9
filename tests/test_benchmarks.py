"""The benchmark's judgement, on made-up figures: a missed bound must be seen, and only that."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

# Behind everything else, so that an installed thawcheck still goes first.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarks._bounds import BOUNDS, check
from benchmarks._cli import main
from benchmarks._design import DesignError
from benchmarks._exchange import await_verdicts, reporting, write_verdicts
from benchmarks._figures import Figures
from benchmarks._memory import Memory, private_bytes, resident_bytes, thread_count
from benchmarks._table import render

if TYPE_CHECKING:
    from collections.abc import Callable

    Measured = Callable[[int, Callable[[str], None]], Figures]

#: Every bound is met exactly.
ON_THE_EDGE: Final = Figures(
    seconds={
        "zygote": [[0.5, 0.5], [0.25, 0.25]],
        "alive": [[0.0625], [0.03125]],
        "spawn": [[7.5], [3.75]],
        "forkserver": [[7.5], [3.75]],
        "torchrun": [[7.5], [3.75]],
    },
    labels={"zygote": "zygote", "alive": "alive", "spawn": "spawn", "forkserver": "forkserver", "torchrun": "torchrun"},
    zygote_start_seconds=5.25,
    memory=Memory(zygote_resident=450_000_000, zygote_threads=1, ranks_private=[30_000_000, 60_000_000]),
)


def with_seconds(**seconds: list[list[float]]) -> Figures:
    return dataclasses.replace(ON_THE_EDGE, seconds={**ON_THE_EDGE.seconds, **seconds})


def with_memory(*, resident: int = 1, threads: int = 1, private: tuple[int, ...] = (1, 1)) -> Figures:
    return dataclasses.replace(ON_THE_EDGE, memory=Memory(resident, threads, private))


def giving(figures: Figures) -> Measured:
    return lambda _rounds, _say: figures


#: Each misses one bound by little.
MISSES: Final = {
    "faster than spawn": with_seconds(spawn=[[7.4], [3.7]]),
    "faster than forkserver": with_seconds(forkserver=[[7.4], [3.7]]),
    "faster than torchrun": with_seconds(torchrun=[[7.4], [3.7]]),
    "slower than ranks kept alive": with_seconds(alive=[[0.06], [0.03]]),
    "zygote, resident": with_memory(resident=450_100_000),
    "zygote, threads": with_memory(threads=2),
    "largest rank, private": with_memory(private=(60_100_000, 1)),
}


def test_the_wanted_bounds_are_those_of_the_issue() -> None:
    assert {bound.what: f"{bound.sign} {bound.limit:g} {bound.unit}".strip() for bound in BOUNDS} == {
        "faster than spawn": ">= 15 x",
        "faster than forkserver": ">= 15 x",
        "faster than torchrun": ">= 15 x",
        "slower than ranks kept alive": "<= 8 x",
        "zygote, resident": "<= 450 MB",
        "zygote, threads": "== 1",
        "largest rank, private": "<= 60 MB",
    }


def test_a_bound_that_is_met_exactly_is_met(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--output", str(tmp_path / "bench.json")], giving(ON_THE_EDGE))

    assert status == 0
    assert "MISSED" not in capsys.readouterr().out


@pytest.mark.parametrize("what", MISSES)
def test_one_missed_bound_exits_1_and_is_named(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "results" / "bench.json"

    status = main(["--output", str(output)], giving(MISSES[what]))

    assert status == 1
    missed = [line for line in capsys.readouterr().out.splitlines() if line.endswith("MISSED")]
    assert [line.startswith(what) for line in missed] == [True]
    stored = json.loads(output.read_text())
    assert [one["what"] for one in stored["bounds"] if not one["met"]] == [what]


def test_no_assert_only_changes_the_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "bench.json"

    status = main(["--no-assert", "--output", str(output)], giving(MISSES["faster than spawn"]))

    assert status == 0
    assert "MISSED" in capsys.readouterr().out
    assert json.loads(output.read_text())["bounds"][0]["met"] is False


def test_every_bound_has_a_miss_here() -> None:
    assert set(MISSES) == {bound.what for bound in BOUNDS}
    for what, figures in MISSES.items():
        assert [one.bound.what for one in check(figures) if not one.met] == [what]


def test_ratios_are_taken_within_a_round() -> None:
    """A machine that is ten times slower in one round must not change a ratio."""
    figures = with_seconds(
        zygote=[[1.0, 1.0, 9.0], [10.0, 10.0, 10.0], [1.0, 1.0, 1.0]], spawn=[[20.0], [200.0], [21.0]]
    )

    assert figures.ratio("spawn", "zygote") == 20.0


def test_the_table_shows_what_was_measured() -> None:
    text = render(ON_THE_EDGE, check(ON_THE_EDGE)).splitlines()

    assert text[0].split() == ["design", "median", "s", "min", "s", "max", "s", "times", "the", "zygote"]
    assert [line.split() for line in text[2:7]] == [
        ["zygote", "0.38", "0.25", "0.50", "1.00"],
        ["alive", "0.05", "0.03", "0.06", "0.12"],
        ["spawn", "5.62", "3.75", "7.50", "15.00"],
        ["forkserver", "5.62", "3.75", "7.50", "15.00"],
        ["torchrun", "5.62", "3.75", "7.50", "15.00"],
    ]
    assert text[-1] == "The zygote started in 5.2 s, once for all cases."


def test_the_stored_file_has_every_sample(tmp_path: Path) -> None:
    output = tmp_path / "bench.json"

    main(["--output", str(output)], giving(ON_THE_EDGE))

    stored = json.loads(output.read_text())
    assert stored["seconds"] == ON_THE_EDGE.seconds
    assert stored["zygote_start_seconds"] == 5.25
    assert stored["memory_bytes"] == {
        "zygote_resident": 450_000_000,
        "zygote_threads": 1,
        "ranks_private": [30_000_000, 60_000_000],
    }
    assert list(tmp_path.iterdir()) == [output]


@pytest.mark.parametrize(("arguments", "rounds"), [([], 5), (["--quick"], 2), (["--rounds", "3"], 3)])
def test_how_many_rounds(arguments: list[str], rounds: int, tmp_path: Path) -> None:
    asked = []

    def measured(number: int, _say: Callable[[str], None]) -> Figures:
        asked.append(number)
        return ON_THE_EDGE

    main([*arguments, "--output", str(tmp_path / "bench.json")], measured)

    assert asked == [rounds]


def never(_rounds: int, _say: Callable[[str], None]) -> Figures:
    pytest.fail("minutes were to be spent on bad usage")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--rounds", "0"], "must be a whole number from 1, found '0'"),
        (["--rounds", "many"], "must be a whole number from 1, found 'many'"),
        (["--quick", "--rounds", "3"], "not allowed with argument"),
        (["--fast"], "unrecognized arguments: --fast"),
    ],
)
def test_bad_arguments_exit_2(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments, never)

    assert left.value.code == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("output", ["file/bench.json", "folder"])
def test_an_output_that_cannot_be_written_exits_2_at_once(
    output: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()

    status = main(["--output", str(tmp_path / output)], never)

    assert status == 2
    assert f"cannot be written to {tmp_path / output}" in capsys.readouterr().err


def test_a_design_that_fails_exits_1_and_keeps_earlier_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "bench.json"
    main(["--output", str(output)], giving(ON_THE_EDGE))
    earlier = output.read_text()

    def failing(_rounds: int, _say: Callable[[str], None]) -> Figures:
        raise DesignError("torchrun", "rank 1 ended without a verdict")

    status = main(["--output", str(output)], failing)

    assert status == 1
    assert "torchrun: rank 1 ended without a verdict" in capsys.readouterr().err
    assert output.read_text() == earlier


def test_an_interrupt_is_no_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(_rounds: int, _say: Callable[[str], None]) -> Figures:
        raise KeyboardInterrupt

    status = main(["--output", str(tmp_path / "bench.json")], interrupted)

    assert status == 130
    assert "interrupted" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def at_once(_seconds: float) -> bool:
    return True


def never_ends(_seconds: float) -> bool:
    return False


def test_verdicts_come_back_from_the_ranks(tmp_path: Path) -> None:
    for rank in range(2):
        write_verdicts(rank, tmp_path, {"head.weight": "TRAINS"})

    assert await_verdicts("spawn", tmp_path, at_once) == {"head.weight": "TRAINS"}


def raising_rank(folder: Path) -> None:
    with reporting(1, folder):
        os.write(1, b"on its way\n")  # as a library would, past pytest's own sys.stdout
        raise ZeroDivisionError("planted")


def test_a_rank_that_raised_is_not_waited_for(tmp_path: Path) -> None:
    rank = multiprocessing.get_context("fork").Process(target=raising_rank, args=(tmp_path,))
    rank.start()
    rank.join()

    with pytest.raises(DesignError, match=r"spawn: rank1 raised:(.|\n)*ZeroDivisionError: planted"):
        await_verdicts("spawn", tmp_path, never_ends)
    assert (tmp_path / "rank1.log").read_text() == "on its way\n"


def test_a_rank_that_died_is_told_with_what_it_printed(tmp_path: Path) -> None:
    write_verdicts(0, tmp_path, {"head.weight": "TRAINS"})
    (tmp_path / "rank1.log").write_text("Segmentation fault")

    with pytest.raises(DesignError, match=r"rank1 ended without a verdict; it had printed:\nSegmentation fault"):
        await_verdicts("spawn", tmp_path, at_once)


def test_ranks_that_never_end_are_given_up(tmp_path: Path) -> None:
    with pytest.raises(DesignError, match=r"had not ended after 0 s; it had printed nothing"):
        await_verdicts("spawn", tmp_path, never_ends, limit=0.0)


def test_ranks_that_differ_are_no_measurement(tmp_path: Path) -> None:
    write_verdicts(0, tmp_path, {"head.weight": "TRAINS"})
    write_verdicts(1, tmp_path, {"head.weight": "NO_GRAD"})

    with pytest.raises(DesignError, match="its ranks differ"):
        await_verdicts("spawn", tmp_path, at_once)


def test_memory_is_read_from_the_kernel() -> None:
    size = 64_000_000
    before = private_bytes()
    held = b"x" * size

    assert size <= private_bytes() - before < 2 * size
    assert resident_bytes(os.getpid()) >= private_bytes()
    assert thread_count(os.getpid()) >= 1
    del held
