"""``python -m benchmarks.suite``: the slowest variants first, and a catalogue that takes too long is seen."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

# Behind everything else, so that an installed thawcheck still goes first.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarks import suite
from benchmarks.suite import WANTED_SECONDS, Took, main, render, run
from harness.cell._catalog import shipped

FOUND = [Took(f"case_{number}[mlp-z3]", "TRAINS", float(number)) for number in range(1, 13)]


def test_the_ten_slowest_are_named_slowest_first() -> None:
    lines = render(FOUND, WANTED_SECONDS).splitlines()

    named = [line.split()[0] for line in lines[2:12]]
    assert named == [f"case_{number}[mlp-z3]" for number in range(12, 2, -1)]
    assert "case_2[mlp-z3]" not in "\n".join(lines)
    assert f"{75 / 78:.0%}" in lines[-2]
    assert lines[-1] == "12 variants in 180 s, wanted 180: met"


def test_a_catalogue_that_takes_too_long_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = iter([0.0, WANTED_SECONDS + 1, 0.0, WANTED_SECONDS + 1, 0.0, WANTED_SECONDS])
    monkeypatch.setattr(time, "monotonic", lambda: next(now))

    assert main([], lambda _: FOUND) == 1
    assert capsys.readouterr().out.endswith("181 s, wanted 180: MISSED\n")
    assert main(["--no-assert"], lambda _: FOUND) == 0
    assert main([], lambda _: FOUND) == 0


def test_it_runs_every_variant_of_every_case(monkeypatch: pytest.MonkeyPatch) -> None:
    few = [one for one in shipped() if one.name in ("biases_alone_made_whole", "freeze_by_dimension")]
    monkeypatch.setattr(suite, "shipped", lambda: few)

    took = run(2)

    assert [one.id for one in took] == [f"{case.name}[{options.id}]" for case in few for options in case.variants]
    assert all(one.seconds > 0 for one in took)
    assert {one.id: one.verdict for one in took}["biases_alone_made_whole[mlp-z1]"] == "TRAINS"


def test_no_jobs_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as status:
        main(["--jobs", "0"])

    assert status.value.code == 2
    assert "--jobs must be 1 or more, found 0" in capsys.readouterr().err
