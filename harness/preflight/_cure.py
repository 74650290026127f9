"""The smallest change that makes a plan safe: tried one after another until one is seen to train."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.preflight._finding import Finding, Level
from harness.preflight._plan import Plan
from harness.preflight._rehearsal import Rehearsal, Stage
from harness.preflight._static import Static, look

__all__ = ["Cure", "candidates", "find_cure"]

#: Of changes that are tried; each takes seconds.
_MOST = 6


@dataclass(frozen=True)
class Cure:
    """:ivar told: what to change, as it is told to people.
    :ivar rehearsal: of the changed plan, which trains.
    """

    told: str
    plan: Plan
    rehearsal: Rehearsal | None = None


def candidates(plan: Plan, findings: Sequence[Finding]) -> Iterator[Cure]:
    """Changes to try, the smallest first: patterns as they were meant, then one setting each."""
    rewritten = _rewritten(plan, findings)
    start = rewritten.plan if rewritten else plan
    before = f"{rewritten.told}; " if rewritten else ""
    if rewritten:
        yield rewritten
    if plan.tool == "axolotl" and plan.adapter is not None and plan.train is not None:
        yield Cure("leave unfrozen_parameters out beside the adapter", dataclasses.replace(plan, train=None))
    if start.checkpointing != "none":
        other = "non_reentrant" if start.checkpointing == "reentrant" else "reentrant"
        said = "false" if other == "non_reentrant" else "true"
        changed = dataclasses.replace(start, checkpointing=other)  # type: ignore[arg-type]  # the other of two
        yield Cure(f"{before}gradient_checkpointing_kwargs: use_reentrant: {said}", changed)
        yield Cure(f"{before}no gradient checkpointing", dataclasses.replace(start, checkpointing="none"))
    if start.deepspeed is not None and start.deepspeed.offload != "none":
        without = dataclasses.replace(start.deepspeed, offload="none")
        yield Cure(f"{before}no offload_optimizer", dataclasses.replace(start, deepspeed=without))
    if start.precision == "fp16":
        yield Cure(f"{before}bf16 in place of fp16", dataclasses.replace(start, precision="bf16"))
    if start.deepspeed is not None:
        for stage in (2, 3):
            if stage != start.deepspeed.stage:
                moved = dataclasses.replace(start.deepspeed, stage=stage)
                yield Cure(f"{before}ZeRO stage {stage}", dataclasses.replace(start, deepspeed=moved))


def _rewritten(plan: Plan, findings: Sequence[Finding]) -> Cure | None:
    """With the patterns that were suggested, all at once."""
    if plan.train is None:
        return None
    instead = {one.pattern: one.rewrite for one in findings if one.rewrite}
    if not instead:
        return None
    told = ", ".join(f"{new!r} for {old!r}" for old, new in instead.items())
    patterns = tuple(instead.get(one, one) for one in plan.train)
    return Cure(f"write {told}", dataclasses.replace(plan, train=patterns))


def find_cure(
    plan: Plan,
    static: Static,
    findings: Sequence[Finding],
    versions: Mapping[str, str],
    stage: Stage | None,
    told: Callable[[str], object] = lambda _: None,
) -> Cure | None:
    """The first change with which nothing is wrong any more.

    :param stage: ranks to see it on; None: by looking alone.
    """
    # What no setting changes: a file that its reader refuses, say.
    fixed = {"pattern", "prefix", "dialect", "number", "bare-dot", "nothing-trains", "tied", "renamed", "nothing"}
    fixed |= {"known", "rehearsal", "adapter-and-freezing", "checkpointing", "rows"}
    others = [one for one in findings if one.level is Level.WRONG and one.code not in fixed]
    if others:
        return None
    for number, one in enumerate(candidates(plan, findings)):
        if number == _MOST:
            return None
        again = look(one.plan, static.inventory, versions)
        if any(found.level in (Level.INPUT, Level.WRONG) for found in again.findings):
            continue
        if stage is None:
            return one
        told(one.told)
        rehearsal = stage.rehearse(one.plan, again)
        if rehearsal.trains:
            return dataclasses.replace(one, rehearsal=rehearsal)
    return None
