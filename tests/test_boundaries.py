"""Where verdicts change along a package's releases, and whether a documented fix is there."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from harness.cell import Case, Fix, Options, Verdict, case
from harness.cell.outcome._observed import Observed, Outcome
from harness.cell.outcome._record import Failure
from harness.control.boundaries import Agreement, axes_of, changes_along, check_fix
from harness.control.stacks import Stack

ONE, OTHER = Options(model="mlp", stage=1), Options(model="mlp", stage=3)
RELEASES = ("0.9.0", "0.10.0", "0.11.0", "0.12.0")
T, N, R, X = Verdict.TRAINS, Verdict.NO_UPDATE, Verdict.RAISES, Verdict.NOT_RUN


def made() -> Case:
    @case(kind="P", variants=[ONE, OTHER])
    def some(run: object) -> None:
        """Nothing."""

    return some


def stack(release: str, *, sweep: str = "deepspeed", moves: str = "deepspeed") -> Stack:
    return Stack(f"{sweep}-{release}", "", (), ("3.11",), (), None, sweep=sweep, moves=moves, at=release)


STACKS = [stack(release) for release in reversed(RELEASES)]


def seen(verdicts: Mapping[str, Verdict | Outcome], sweep: str = "deepspeed") -> dict[str, Observed]:
    """By release, what the first variant did."""
    return {
        f"{sweep}-{release}": Observed(
            f"{sweep}-{release}",
            "1.0",
            "2026-11-30",
            "cpu",
            "0",
            {},
            (one if isinstance(one, Outcome) else Outcome("some", one, (ONE,), 2),),
        )
        for release, one in verdicts.items()
    }


def test_an_axis_has_the_stacks_of_one_sweep_by_release() -> None:
    others = [stack("2.2", sweep="torch", moves="torch"), stack("0.13.0", sweep="on-an-old-torch")]

    axes = axes_of([*STACKS, *others], "deepspeed")

    assert [(axis.sweep, [one.at for one in axis.stacks]) for axis in axes] == [
        ("deepspeed", list(RELEASES)),
        ("on-an-old-torch", ["0.13.0"]),
    ]


def test_a_change_is_between_neighbours_that_did_not_do_the_same() -> None:
    axis = axes_of(STACKS, "deepspeed")[0]

    [change] = changes_along(made(), axis, seen(dict(zip(RELEASES, (N, N, T, T), strict=True))))

    assert (str(change.last), str(change.first), change.unknown) == ("0.10.0", "0.11.0", ())
    assert (change.before.verdict, change.after.verdict) == (N, T)
    assert change.options == ONE


def test_what_was_not_run_is_no_change_and_is_named_as_unknown() -> None:
    axis = axes_of(STACKS, "deepspeed")[0]

    [change] = changes_along(made(), axis, seen({"0.9.0": N, "0.10.0": X, "0.12.0": T}))

    assert (str(change.last), str(change.first)) == ("0.9.0", "0.12.0")
    assert [str(one) for one in change.unknown] == ["0.10.0", "0.11.0"]


@pytest.mark.parametrize(
    ("moment", "error", "changes"),
    [("engine", "IndexError", 0), ("backward", "IndexError", 1), ("engine", "KeyError", 1)],
)
def test_failing_otherwise_is_a_change(moment: str, error: str, changes: int) -> None:
    axis = axes_of(STACKS, "deepspeed")[0]
    one = Outcome("some", R, (ONE,), 2, failure=Failure("engine", "IndexError", "list index 3 out of range"))
    other = Outcome("some", R, (ONE,), 2, failure=Failure(moment, error, "in other words"))

    assert len([*changes_along(made(), axis, seen({"0.9.0": one, "0.10.0": other}))]) == changes


@pytest.mark.parametrize(
    ("release", "verdicts", "agreement"),
    [
        ("0.11.0", (N, N, T, T), Agreement.EQUAL),
        ("0.11.0", (N, X, T, T), Agreement.WITHIN),
        ("0.10.5", (N, N, T, T), Agreement.WITHIN),
        ("0.11.0", (N, T, T, T), Agreement.ELSEWHERE),
        ("0.11.0", (N, N, N, T), Agreement.ELSEWHERE),
        ("0.11.0", (N, N, N, N), Agreement.NOWHERE),
        ("0.11.0", (T, T, N, N), Agreement.NOWHERE),  # a fault that begins is no fix
        ("0.11.0", (X, X, N, T), Agreement.UNMEASURED),
        ("0.11.0", (N, T, X, X), Agreement.UNMEASURED),
        ("0.8.0", (N, N, T, T), Agreement.UNMEASURED),
        ("0.13.0", (N, N, T, T), Agreement.UNMEASURED),
    ],
)
def test_a_fix_is_held_against_what_was_measured(
    release: str, verdicts: tuple[Verdict, ...], agreement: Agreement
) -> None:
    fix = Fix("deepspeed", release, "a/b#1")

    finding = check_fix(made(), fix, STACKS, seen(dict(zip(RELEASES, verdicts, strict=True))))

    assert finding.agreement is agreement
    assert bool(finding.changes) == (agreement not in (Agreement.NOWHERE, Agreement.UNMEASURED))


def test_one_axis_that_changes_there_is_enough() -> None:
    """A fault may need an old torch, and show on no other axis."""
    both = [*STACKS, *(stack(release, sweep="old") for release in RELEASES)]
    observed = seen(dict.fromkeys(RELEASES, T)) | seen(dict(zip(RELEASES, (N, N, T, T), strict=True)), "old")

    finding = check_fix(made(), Fix("deepspeed", "0.11.0", "a/b#1"), both, observed)

    assert finding.agreement is Agreement.EQUAL
    assert [one.axis.sweep for one in finding.changes] == ["old"]
    assert check_fix(made(), Fix("torch", "0.11.0", "a/b#1"), both, observed).agreement is Agreement.UNMEASURED
