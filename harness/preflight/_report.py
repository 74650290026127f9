"""What is told of a plan: a page for people, or the same as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from harness.preflight._check import Result
from harness.preflight._finding import Level
from harness.preflight._inventory import Parameter
from harness.preflight._memory import bytes_text, count_text, optimizer_bytes
from harness.preflight._plan import Plan
from harness.preflight._static import Static, samples

__all__ = ["as_dict", "as_text"]

_BYTES: Final = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}
_TOOLS: Final = {"deepspeed": "DeepSpeed", "trainer": "the Trainer", "axolotl": "Axolotl"}


def as_text(result: Result, world: int) -> str:
    """One screen: what there is, what trains, what was found, the answer last."""
    lines: list[str] = []
    if result.plan is not None and result.static is not None:
        lines += _facts(result.plan, result.static, world)
        lines += _patterns(result.plan, result.static)
    if result.rehearsal is not None:
        lines += result.rehearsal.lines
    for level in Level:
        lines += [f"{level}: {one}" for one in result.findings if one.level is level]
    return "\n".join([*lines, "", *answer(result)])


def answer(result: Result) -> Iterator[str]:
    """The last lines: the answer, why, and what to change."""
    level = result.level
    ran = result.rehearsal is not None and result.rehearsal.trains
    how = "it trains on two ranks" if ran else "no rank was asked"
    if level is Level.INPUT:
        yield "bad input: nothing can be said until it is put right"
    elif level is Level.NOTE:
        yield f"safe: nothing was found, and {how}"
    elif level is Level.UNKNOWN:
        first = next(one for one in result.findings if one.level is level)
        yield f"not known: {first}"
    elif level is Level.CAUTION:
        count = sum(one.level is level for one in result.findings)
        yield f"safe but: see the {count} thing{'s' if count > 1 else ''} above; {how}"
    else:
        first = next(one for one in result.findings if one.level is level)
        yield f"not safe: {first}"
        if result.cure is not None:
            seen = "seen to train on two ranks" if result.cure.rehearsal else "not seen on ranks yet"
            yield f"change: {result.cure.told} ({seen})"


def _facts(plan: Plan, static: Static, world: int) -> Iterator[str]:
    inventory = static.inventory
    size = sum(_bytes(plan, one) for one in inventory.parameters)
    total, trained = inventory.total, static.trained_count
    said = plan.deepspeed
    built = inventory.model_class or "names in its files"
    count = f"{len(inventory.parameters)} parameters of {count_text(total)} elements"
    yield f"model      {built}: {count}, {bytes_text(size)}"
    stage = f"ZeRO stage {said.stage}" if said else "no DeepSpeed"
    checkpointing = f"checkpointing: {plan.checkpointing}"
    yield f"tool       {_TOOLS[plan.tool]}, {stage}, {plan.precision}, {plan.optimizer}, {checkpointing}"
    if plan.adapter is not None:
        targets = ", ".join(plan.adapter.targets) or "the defaults"
        yield f"adapter    {plan.adapter.kind} of rank {plan.adapter.rank} on {targets}"
        return
    share = 100 * trained / total if total else 0
    count = f"{len(static.trained)} of {len(inventory.parameters)} parameters"
    yield f"trains     {count}, {count_text(trained)} elements, {share:.3g} % of the model"
    held = optimizer_bytes(plan, trained, world)
    yield f"optimizer  {bytes_text(held)} on each of {world} ranks"


def _patterns(plan: Plan, static: Static) -> Iterator[str]:
    if not static.matched:
        return
    yield f"{plan.key}:"
    width = max(len(one.pattern) for one in static.matched) + 2
    for one in static.matched:
        found = static.inventory.of(one.names)
        size = sum(_bytes(plan, each) for each in found)
        count = count_text(sum(each.count for each in found))
        told = (
            f"{len(found):4} parameters  {count:>8}  {bytes_text(size):>8}  {samples(found, 2)}"
            if found
            else "   nothing"
        )
        shown = f"'{one.pattern}'"
        yield f"  {shown:{width}}  {told}"


def as_dict(result: Result, world: int) -> dict[str, Any]:
    """The same as plain data."""
    level = result.level
    plain: dict[str, Any] = {
        "answer": "safe" if level is Level.NOTE else str(level),
        "why": [*answer(result)],
        "findings": [one.as_dict() for one in result.findings],
    }
    plan, static = result.plan, result.static
    if plan is not None and static is not None:
        plain |= {
            "tool": plan.tool,
            "stage": plan.deepspeed.stage if plan.deepspeed else None,
            "model": static.inventory.model_class,
            "parameters": len(static.inventory.parameters),
            "elements": static.inventory.total,
            "trained": [one.name for one in static.inventory.of(static.trained)],
            "trained_elements": static.trained_count,
            "optimizer_bytes_per_rank": optimizer_bytes(plan, static.trained_count, world),
            "world": world,
            "patterns": [{"pattern": one.pattern, "rows": one.rows, "names": [*one.names]} for one in static.matched],
        }
    if result.rehearsal is not None:
        plain["rehearsal"] = result.rehearsal.as_dict()
    if result.cure is not None:
        plain["change"] = {"told": result.cure.told, "seen": result.cure.rehearsal is not None}
    return plain


def _bytes(plan: Plan, one: Parameter) -> int:
    """In what training keeps it in: 16 bits below fp32, whatever its file has."""
    return one.count * (2 if plan.precision != "fp32" else _BYTES.get(one.dtype, 2))
