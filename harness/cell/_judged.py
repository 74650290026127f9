"""From all that was observed of a run, on all ranks, to the verdict of each parameter."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from harness.cell._hyper import Hyper
from harness.cell._options import Options
from harness.cell._subject import Subject
from harness.cell.oracle._judge import judge, judge_saved
from harness.cell.oracle._observer import Observer
from harness.cell.oracle._tolerance import TOLERANCES
from harness.cell.oracle._twin import Twin
from harness.cell.outcome._record import ParameterVerdict

__all__ = ["CameBack", "judged"]


@dataclass(frozen=True)
class CameBack:
    """What came back from disk, what had been trained by then, and in how many optimizer steps."""

    state: Mapping[str, torch.Tensor]
    trained: Mapping[str, torch.Tensor]
    steps: int


def judged(
    observer: Observer,
    subject: Subject,
    saved: Sequence[CameBack],
    *,
    hyper: Hyper,
    options: Options,
    device: str,
    world: int,
    autocast: torch.dtype | None,
) -> list[ParameterVerdict]:
    """Every parameter's verdict, as this rank sees it.  Collective."""
    verdicts = judge(
        observer.steps,
        _all_shards(observer, world),
        first=observer.first_weights,
        start=subject.start,
        shapes=observer.shapes,
        twin=Twin(
            lambda: subject.reference,  # built already, and needed for nothing else any more
            subject.start,
            hyper=hyper,
            dtypes={name: one.dtype for name, one in observer.first_weights.items()},
            autocast=autocast,
            clipping=options.clipping,
            device=device,
            buffers=observer.buffers,
        ),
        tolerance=TOLERANCES[options.precision],
        apart=_apart(observer, world),
    )
    other_names = subject.other_names()
    for one in saved:
        lost = judge_saved(one.state, one.trained, known=subject.start, other_names=other_names)
        verdicts = [_worse(each, lost.get(each.name), one.steps) for each in verdicts]
    return verdicts


def _worse(verdict: ParameterVerdict, lost: Any, taken: int) -> ParameterVerdict:
    """What training on from there then does to a weight that came back wrong is no other fault."""
    so_far_well = verdict.verdict.value in ("TRAINS", "FROZEN")
    if lost is None or not (so_far_well or (verdict.step or 0) > taken):
        return verdict
    return dataclasses.replace(verdict, **vars(lost))


def _apart(observer: Observer, world: int) -> list[dict[str, str]]:
    """Per step, by parameter: which of its ``gradient`` and ``weight`` differs between ranks.  Collective."""
    mine = observer.fingerprints()
    theirs: list[Any] = [None] * world
    dist.all_gather_object(theirs, mine)
    return [
        {
            name: what
            for what in ("weight", "gradient")  # the gradient comes first, and is named where both differ
            for name, print_ in step[what].items()
            if any(print_ != ranks[number][what].get(name, print_) for ranks in theirs)
        }
        for number, step in enumerate(mine)
    ]


def _all_shards(observer: Observer, world: int) -> list[list[Any]]:
    """Per step, per rank: the micro-batches that each rank's engine saw.  Collective."""
    mine = [step.micros for step in observer.steps]
    theirs: list[Any] = [None] * world
    dist.all_gather_object(theirs, mine)
    return [[ranks[number] for ranks in theirs] for number in range(len(mine))]
