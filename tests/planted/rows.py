"""Faults in parameters that are meant to train in part: the head's rows 2 to 4."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.cell import Hyper, Options, case, freeze_except, train_rows

if TYPE_CHECKING:
    from harness.cell._run import Run

HEAD = "head.weight"
MEANT = slice(2, 5)

_STAGES = [Options(model="mlp", stage=stage) for stage in (0, 2, 3)] + [
    Options(model="mlp", init="zero_init", precision="bf16"),
]


def train_head(run: Run, hooked: slice, meant: slice = MEANT, weight_decay: float = 0.0) -> None:
    """The hook leaves ``hooked`` a gradient, and ``meant`` is what the run is judged by."""
    model = run.model()
    freeze_except(model, HEAD)
    train_rows(model.head.weight, hooked)
    engine = run.engine(model, hyper=Hyper(weight_decay=weight_decay))
    run.train(engine, intent=HEAD, rows={HEAD: meant})


@case(kind="CONTROL", variants=_STAGES)
def as_meant(run: Run) -> None:
    """Nothing is planted."""
    train_head(run, MEANT)


@case(kind="CONTROL", variants=_STAGES)
def one_too_many(run: Run) -> None:
    """Row 5 trains, too."""
    train_head(run, slice(2, 6))


@case(kind="CONTROL", variants=_STAGES)
def one_too_few(run: Run) -> None:
    """Row 4 does not."""
    train_head(run, slice(2, 4))


@case(kind="CONTROL", variants=_STAGES)
def none_of_them(run: Run) -> None:
    """The hook is off by three."""
    train_head(run, slice(5, 8))


@case(kind="CONTROL", variants=_STAGES)
def decayed(run: Run) -> None:
    """All rows decay."""
    train_head(run, MEANT, weight_decay=0.1)


@case(kind="CONTROL", variants=_STAGES[:1])
def none_meant(run: Run) -> None:
    """Rows that the head does not have."""
    train_head(run, MEANT, slice(8, 12))


@case(kind="CONTROL", variants=_STAGES[:1])
def of_what_is_not_meant(run: Run) -> None:
    """Rows of a parameter that the intent does not name."""
    run.train(run.engine(run.model()), intent="head.*", rows={"stem.weight": MEANT})
