"""Hold what an engine did against the twin: one verdict per parameter, and where they part."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch

from harness.cell.oracle._observer import Micro, Step
from harness.cell.oracle._tolerance import Tolerance
from harness.cell.oracle._twin import Twin
from harness.cell.outcome._record import ParameterVerdict
from harness.cell.outcome._verdict import PRECEDENCE, Verdict

__all__ = ["Finding", "bit_equal", "judge", "judge_saved"]


#: Integers of the same size, since only those can be seen in any tensor, whatever its strides.
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Finding:
    """A verdict on one parameter, and the evidence in words."""

    verdict: Verdict
    moment: str
    expected: str
    found: str
    #: number of the optimizer step at which it showed; 0: before the first; None: afterwards
    step: int | None = None


def bit_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Same shape, dtype and bits; NaNs equal themselves and zeros keep their sign."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    bits = _BITS[one.element_size()]
    return torch.equal(one.view(bits), other.view(bits))


def relative_error(found: torch.Tensor, wanted: torch.Tensor, scale: torch.Tensor | None = None) -> float:
    """L2 norm of the difference over that of ``scale`` (``wanted`` unless given)."""
    difference = torch.linalg.vector_norm(found.float() - wanted.float())
    size = torch.linalg.vector_norm((wanted if scale is None else scale).float())
    if difference == 0:
        return 0.0
    return float("inf") if size == 0 else float(difference / size)


def judge(
    steps: Sequence[Step],
    shards: Sequence[Sequence[Sequence[Micro]]],
    *,
    first: Mapping[str, torch.Tensor],
    start: Mapping[str, torch.Tensor],
    shapes: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]],
    twin: Twin,
    tolerance: Tolerance,
    apart: Sequence[Mapping[str, str]] = (),
) -> list[ParameterVerdict]:
    """Verdicts of this rank on every parameter of the engine's module.

    :param shards: per step, per rank, the micro-batches seen.
    :param apart: per step, what of a parameter differs between ranks: ``gradient`` or ``weight``.
    :param first: weights when training began.
    :param start: the weights every rank and the twin were given.

    Where parameters have other shapes than the twin's, theirs are the only verdicts: nothing else
    can be compared.
    """
    if misshapen := [name for name, one in first.items() if name in start and one.shape != start[name].shape]:
        return [_misshapen(name, tuple(start[name].shape), steps[-1], shapes[name]) for name in misshapen]
    progress = {name: _Parameter(name, one, start.get(name)) for name, one in first.items()}
    for number, (step, seen) in enumerate(zip(steps, shards, strict=True), 1):
        masters = steps[number - 2].masters if number > 1 else {}
        twin.follow({**step.before, **masters})
        before = {name: master.detach().clone() for name, master in twin.masters.items()}
        twin.step(seen, step.intent, step.grads, step.rows)
        for name in step.weights:
            if name not in progress:  # a module attached while training went on
                progress[name] = _Parameter(name, step.before.get(name, step.weights[name]), None)
            progress[name].see(number, step, twin, before.get(name), tolerance)
        for name, what in apart[number - 1].items() if apart else ():
            progress[name].see_apart(number, what)
        for name in progress.keys() - step.weights.keys():
            progress[name].see_gone(number, step)
    last = steps[-1]
    return [one.verdict(last, shapes[name]) for name, one in progress.items()]


def _misshapen(
    name: str, wanted: tuple[int, ...], last: Step, shapes: tuple[tuple[int, ...], tuple[int, ...]]
) -> ParameterVerdict:
    intended = name in last.intent
    return ParameterVerdict(
        name=name,
        verdict=Verdict.WRONG_UPDATE if intended else Verdict.FROZEN_DRIFT,
        intended=intended,
        flag=last.flags.get(name, False),
        local_shape=list(shapes[0]),
        full_shape=list(shapes[1]),
        group=last.groups.get(name),
        moment="engine",
        expected=f"shape {wanted}, as the twin's",
        found=f"shape {shapes[1]}",
        step=0,
    )


class _Parameter:
    """The running judgement on one parameter; the first fault that outranks others stays."""

    def __init__(self, name: str, first: torch.Tensor, start: torch.Tensor | None) -> None:
        self.name = name
        self.start = first
        self.intended = False
        self.moved = 0.0
        self.twin_moved = 0.0
        self.grad_error: float | None = None
        self.update_error: float | None = None
        self.findings: list[Finding] = []
        self._wrong_start = start is not None and not bit_equal(first, start.to(first))
        self._last = first
        self._last_master = first.float()
        self._still = True
        #: the rows that are meant to train in the step that is looked at, where not all are
        self._rows: slice | None = None
        #: masks over the rows: meant to train in the last such step, and moved in any of them
        self._meant_rows: torch.Tensor | None = None
        self._moved_rows: torch.Tensor | None = None

    def see(self, number: int, step: Step, twin: Twin, before: torch.Tensor | None, tolerance: Tolerance) -> None:
        """Take one more step into account; ``before`` is the twin's master before it."""
        weight = step.weights[self.name]
        self.moved = max(self.moved, _largest(weight.float() - self.start.float()))
        if self._wrong_start and number == 1:
            verdict = Verdict.WRONG_UPDATE if self.name in step.intent else Verdict.FROZEN_DRIFT
            self._add(verdict, 0, "engine", "the starting weights it was given", "other weights")
        last, self._last = self._last, weight
        # Kept while it trains, too: frozen later, it must stay where training left it.
        last_master, self._last_master = self._last_master, step.masters.get(self.name, self._last_master)
        if self.name not in step.intent:
            self._see_frozen(number, step, last, last_master)
            return
        self.intended = True
        if before is None:
            whole = "a part of the model from the start"
            self._add(Verdict.NO_UPDATE, number, f"step {number}", whole, "attached later")
            return
        wanted = twin.masters[self.name].detach()
        self.twin_moved = max(self.twin_moved, _largest(wanted - self.start.float()))
        self._rows = step.rows.get(self.name)
        if self._rows is not None:
            self._see_other_rows(number, step, last, last_master)
        self._see_gradient(number, step, twin, tolerance)
        self._see_update(number, step, before, wanted, tolerance)

    def see_apart(self, number: int, what: str) -> None:
        """Ranks hold different bits of what is one and the same."""
        if self.intended:
            verdict = Verdict.WRONG_GRAD if what == "gradient" else Verdict.WRONG_UPDATE
            # Counts after the step, so that the rank that shows a fault of its own in it speaks first.
            self._add(verdict, number + 1, f"step {number}", f"the same {what} on every rank", "ranks differ")

    def see_gone(self, number: int, step: Step) -> None:
        """The module that held it was taken out of the model."""
        verdict = Verdict.NO_UPDATE if self.intended or self.name in step.intent else Verdict.FROZEN_DRIFT
        self._add(verdict, number, f"step {number}", "still a part of the model", "gone from it")

    def _see_other_rows(self, number: int, step: Step, last: torch.Tensor, last_master: torch.Tensor) -> None:
        """Those of a parameter that trains in part; they must keep still, whatever its flag says."""
        weight, master, grad = step.weights[self.name], step.masters.get(self.name), step.grads.get(self.name)
        moved, what = _rows_that_differ(weight, last), ""
        self._meant_rows = torch.zeros_like(moved)
        self._meant_rows[self._rows] = True
        if master is not None:
            if not (moved & ~self._meant_rows).any():
                # As for what is frozen as a whole: it shows in the master first.
                what, weight, last = " in their fp32 master", master, last_master
            moved = moved | _rows_that_differ(master, last_master)
        self._moved_rows = moved if self._moved_rows is None else self._moved_rows | moved
        strayed = moved & ~self._meant_rows
        if strayed.any():
            trained = grad is not None and bool(grad[strayed].any())
            by = _largest(weight[strayed].float() - last[strayed].float())
            self._add(
                Verdict.EXTRA_TRAINED if trained else Verdict.FROZEN_DRIFT,
                number,
                f"step {number}",
                f"bit-equal weights outside rows {_ranges(self._meant_rows)}",
                f"rows {_ranges(strayed)} moved by {by:.2e}{what}, with {'a' if trained else 'no'} gradient",
            )

    def _within(self, whole: torch.Tensor) -> torch.Tensor:
        """The rows that are meant to train; all of them unless a case says otherwise."""
        return whole if self._rows is None else whole[self._rows]

    def _see_frozen(self, number: int, step: Step, last: torch.Tensor, last_master: torch.Tensor) -> None:
        """``last``: as last seen, so that what happened between two steps counts, too."""
        weight, master = step.weights[self.name], step.masters.get(self.name)
        moved = None if bit_equal(last, weight) else _largest(weight.float() - last.float())
        what = ""
        if master is not None and moved is None and not bit_equal(last_master, master):
            # It will show in the weight once it has gone far enough.
            moved, what = _largest(master - last_master), " in its fp32 master"
        if moved is None:
            return
        on = step.flags[self.name]
        self._add(
            Verdict.EXTRA_TRAINED if on else Verdict.FROZEN_DRIFT,
            number,
            f"step {number}",
            "bit-equal weights, since the intent does not name it",
            f"requires_grad={on} and moved by {moved:.2e}{what}",
        )

    def _see_gradient(self, number: int, step: Step, twin: Twin, tolerance: Tolerance) -> None:
        wanted = twin.grads.get(self.name)
        found = step.grads.get(self.name)
        wanted = None if wanted is None else self._within(wanted)
        found = None if found is None else self._within(found)
        moment = f"step {number} backward"
        if wanted is None or not wanted.any():
            if found is not None and found.any():
                self.grad_error = float("inf")
                self._add(Verdict.WRONG_GRAD, number, moment, "no gradient", f"one up to {_largest(found):.2e}")
            return  # the twin has none either; what the step then does is judged by the weights
        size = _largest(wanted)
        expected = f"a reduced gradient up to {size:.2e}"
        if found is None:
            self._see_no_reduced(number, step, wanted, expected)
            return
        error = relative_error(found, wanted)
        self.grad_error = _worse(self.grad_error or 0.0, error)
        if not found.any():
            self._add(Verdict.NO_GRAD, number, moment, expected, "all zero")
        elif not error <= tolerance.grad:  # NaN is a fault, too
            found_text = f"relative error {error:.2e}, largest {_largest(found):.2e}"
            self._add(Verdict.WRONG_GRAD, number, moment, f"{expected}, within {tolerance.grad:g}", found_text)

    def _see_no_reduced(self, number: int, step: Step, wanted: torch.Tensor, expected: str) -> None:
        moment = f"step {number} backward"
        flag, group, local = step.flags[self.name], step.groups[self.name], step.local.get(self.name)
        if local is not None:
            self.grad_error = relative_error(self._within(local), wanted)
            self._add(Verdict.WRONG_GRAD, number, moment, expected, "a local gradient, never reduced")
        elif not flag or group is None or self.name in step.asked:
            self._add(Verdict.NO_GRAD, number, moment, expected, f"none (requires_grad={flag})")
        # Else this rank trains it and another does not.  Reading it would hang; that other rank
        # reports the missing gradient and the weights tell the rest.

    def _see_update(
        self, number: int, step: Step, before: torch.Tensor, wanted: torch.Tensor, tolerance: Tolerance
    ) -> None:
        moment = f"step {number}"
        weight, was, start = map(self._within, (step.weights[self.name], step.before[self.name], self.start))
        before, wanted = map(self._within, (before, wanted))
        master = step.masters.get(self.name)
        master = None if master is None else self._within(master)
        if bit_equal(wanted, before):
            if not bit_equal(weight, was):
                self._still = False
                self._add(Verdict.WRONG_UPDATE, number, moment, "no move", f"moved by {self.moved:.2e}")
            return
        copy = wanted.to(weight.dtype)
        step_size = _largest(wanted - before)
        if bit_equal(copy, start):
            # Too small a step to show in the model's own precision: only the master tells.
            still = master is not None and bit_equal(master, start.float())
        else:
            still = bit_equal(weight, start)
        self._still = self._still and still
        if self._still:
            group = step.groups[self.name]
            where = "in no optimizer group" if group is None else f"in optimizer group {group}"
            found = f"bit-equal to the start; {where}"
            self._add(Verdict.NO_UPDATE, number, moment, f"moved by {step_size:.2e}", found)
            return
        travelled = wanted - before
        # The model's own copy follows its master and may be off by one rounding of its dtype.
        error = relative_error(weight, wanted, travelled) - 2 * relative_error(copy, wanted, travelled)
        if master is not None:
            error = _worse(error, relative_error(master, wanted, travelled))
        self.update_error = _worse(self.update_error or 0.0, error)
        if not error <= tolerance.update:
            moved = _largest(weight.float() - was.float())
            expected = f"moved by {step_size:.2e}, within {tolerance.update:g}"
            found = f"moved by {moved:.2e}, relative error {error:.2e}"
            self._add(Verdict.WRONG_UPDATE, number, moment, expected, found)

    def _add(self, verdict: Verdict, step: int, moment: str, expected: str, found: str) -> None:
        self.findings.append(Finding(verdict, moment, expected, found, step))

    def verdict(self, last: Step, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> ParameterVerdict:
        finding = self._settle()
        return ParameterVerdict(
            name=self.name,
            verdict=finding.verdict,
            intended=self.intended,
            flag=last.flags.get(self.name, False),
            local_shape=list(shapes[0]),
            full_shape=list(shapes[1]),
            group=last.groups.get(self.name),
            moment=finding.moment,
            expected=finding.expected,
            found=finding.found,
            step=finding.step,
            grad_error=self.grad_error,
            update_error=self.update_error,
            moved=self.moved,
            twin_moved=self.twin_moved if self.intended else None,
            rows="" if self._meant_rows is None else _ranges(self._meant_rows),
            moved_rows="" if self._moved_rows is None else _ranges(self._moved_rows),
        )

    def _settle(self) -> Finding:
        """Which fault the parameter is known by.

        Never moving outranks a wrong gradient (a local gradient without an update is the mark of
        naive unfreezing) but not a missing one.  It must hold to the last step: what stood still
        at first and moves later has taken a wrong step.
        """
        found = self.findings
        if not self._still:
            late = Verdict.WRONG_UPDATE
            found = [
                dataclasses.replace(one, verdict=late) if one.verdict is Verdict.NO_UPDATE else one for one in found
            ]
        if found and found[0].step == 0:
            # All that it did since began elsewhere than the twin; never set, it may even be no number.
            return found[0]
        if not found:
            return Finding(Verdict.TRAINS if self.intended else Verdict.FROZEN, "", "", "")
        worst = min(found, key=lambda one: PRECEDENCE.index(one.verdict))
        if worst.verdict is Verdict.NO_UPDATE:
            # What its gradient was like tells why: local, or NaN (DeepSpeed then skips the step).
            why = [one.found for one in found if one.verdict is Verdict.WRONG_GRAD]
            return dataclasses.replace(worst, found="; ".join([worst.found, *why[:1]]))
        return worst


def _worse(one: float, other: float) -> float:
    """The larger error; NaN is worse than any number, and ``max`` may drop it."""
    return other if other > one or math.isnan(other) else one


def _largest(tensor: torch.Tensor) -> float:
    return float(tensor.abs().max()) if tensor.numel() else 0.0


def _rows_that_differ(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """A mask over the rows of two tensors of one shape and dtype: where any bit differs."""
    bits = _BITS[one.element_size()]
    return (one.view(bits) != other.view(bits)).reshape(len(one), -1).any(1)


def _ranges(mask: torch.Tensor) -> str:
    """Rows of a mask as a user writes them: ``0:4, 9``."""
    rows = mask.nonzero().flatten().tolist()
    found: list[list[int]] = []
    for row in rows:
        if found and row == found[-1][1]:
            found[-1][1] += 1
        else:
            found.append([row, row + 1])
    return ", ".join(f"{first}:{end}" if end - first > 1 else str(first) for first, end in found) or "none"


def judge_saved(
    saved: Mapping[str, torch.Tensor],
    trained: Mapping[str, torch.Tensor],
    *,
    known: Collection[str] = (),
    other_names: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> dict[str, Finding]:
    """What of the trained weights does not come back from disk, by parameter name.

    :param known: all keys of the model's state dict; what came back beside them may be a renamed weight.
    :param other_names: of tied weights, which a strict load wants, too.
    """
    strange = [key for key in saved if key not in known and key not in trained]
    losses: dict[str, str] = {}
    for name, weight in trained.items():
        for key in (name, *other_names.get(name, ())):
            loss = _loss(saved.get(key), weight)
            if loss == "missing" and (renamed := _renamed(key, weight, strange, saved)):
                loss = f"missing, and {renamed!r} there instead"
            if loss:
                losses[name] = loss if key == name else f"as {key!r}: {loss}"
                break
    return {
        name: Finding(
            Verdict.SAVE_LOSS,
            "saved",
            f"{tuple(trained[name].shape)} {trained[name].dtype} as trained",
            loss,
        )
        for name, loss in losses.items()
    }


def _loss(back: torch.Tensor | None, weight: torch.Tensor) -> str:
    """How what came back differs from the weight; empty where it does not."""
    if back is None:
        return "missing"
    if tuple(back.shape) != tuple(weight.shape):
        return f"shape {tuple(back.shape)}"
    if back.dtype != weight.dtype:
        return f"dtype {back.dtype}"
    if not bit_equal(back.to(weight.device), weight):
        return f"off by up to {_largest(back.to(weight.device).float() - weight.float()):.2e}"
    return ""


def _renamed(name: str, weight: torch.Tensor, strange: Sequence[str], saved: Mapping[str, torch.Tensor]) -> str | None:
    """The key that no one asked for and that holds this weight under a longer or shorter name."""
    alike = [key for key in strange if key.endswith(f".{name}") or name.endswith(f".{key}")]
    return next((key for key in alike if not _loss(saved[key], weight)), None)
