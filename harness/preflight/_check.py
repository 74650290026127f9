"""From what was asked to an answer: read, look, rehearse."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.cell.ranks._stack import installed_versions
from harness.preflight._axolotl import read_axolotl
from harness.preflight._cure import Cure, find_cure
from harness.preflight._deepspeed import DeepSpeed, read_deepspeed_text
from harness.preflight._files import read_text
from harness.preflight._finding import Finding, Level, worst
from harness.preflight._inventory import Inventory, NoModel, take_inventory
from harness.preflight._plan import Plan
from harness.preflight._rehearsal import Rehearsal, Stage
from harness.preflight._source import find_source
from harness.preflight._static import Static, look
from harness.preflight._trainer import read_trainer

__all__ = ["Asked", "Result", "check"]


@dataclass(frozen=True)
class Asked:
    """What the command line says."""

    axolotl: Path | None = None
    model: str | None = None
    deepspeed: Path | None = None
    trainer: Path | None = None
    train: tuple[str, ...] | None = None
    dialect: str = "glob"
    world: int = 8
    trust: bool = False
    fast: bool = False
    device: str = "cpu"


@dataclass(frozen=True)
class Result:
    plan: Plan | None
    static: Static | None
    findings: tuple[Finding, ...]
    rehearsal: Rehearsal | None = None
    cure: Cure | None = None

    @property
    def level(self) -> Level:
        return worst(self.findings)


def check(asked: Asked) -> Result:
    """Never raises for bad input: all of it is findings."""
    plan, findings = _read(asked)
    if plan is None or (plan.source.config is None and not plan.source.stored):
        return Result(plan, None, tuple(findings))
    try:
        inventory = _inventory(plan)
    except NoModel as error:
        return Result(plan, None, (*findings, Finding(Level.INPUT, "model", "the model", str(error))))
    static = look(plan, inventory, installed_versions())
    findings += static.findings
    if worst(findings) is Level.INPUT:
        return Result(plan, static, tuple(findings))
    if asked.fast:
        wrong = worst(findings) is Level.WRONG
        cure = find_cure(plan, static, findings, installed_versions(), None) if wrong else None
        return Result(plan, static, tuple(findings), None, cure)
    return _on_ranks(plan, static, findings, asked.device)


def _on_ranks(plan: Plan, static: Static, findings: list[Finding], device: str) -> Result:
    """With what two ranks did, and where something is wrong, with a change that they show to help."""
    if plan.source.config is None:
        text = "the names come from its files, and a model to train is built from a configuration alone"
        return Result(plan, static, (*findings, Finding(Level.UNKNOWN, "not-run", "two ranks", text)))
    with contextlib.closing(Stage(device)) as stage:
        rehearsal = stage.rehearse(plan, static) if static.trained or plan.adapter else None
        if rehearsal is not None:
            findings += rehearsal.findings
        cure = None
        if worst(findings) is Level.WRONG:
            cure = find_cure(plan, static, findings, installed_versions(), stage)
    return Result(plan, static, tuple(findings), rehearsal, cure)


def _read(asked: Asked) -> tuple[Plan | None, list[Finding]]:
    if asked.axolotl is not None:
        return read_axolotl(asked.axolotl, trust=asked.trust)
    assert asked.model is not None
    source, findings = find_source(asked.model, "--model", Path())
    if asked.trainer is None:
        said, more = _json(asked.deepspeed, "deepspeed")
        plan = Plan(
            tool="deepspeed",
            source=source,
            key="--train",
            train=asked.train,
            dialect=asked.dialect,
            deepspeed=said,
            optimizer=said.optimizer or "AdamW",
            lr=said.lr,
            weight_decay=said.weight_decay,
            precision=said.precision or "fp32",
            accumulation=said.accumulation or 1,
            clipping=said.clipping,
            trust=asked.trust,
        )
        return plan, [*findings, *more]
    arguments, said_there, more = read_trainer(asked.trainer)
    findings += more
    if asked.deepspeed is not None:
        said_there, more = _json(asked.deepspeed, "trainer")
        findings += more
    plan = Plan(
        tool="trainer",
        source=source,
        key="--train",
        train=asked.train,
        dialect=asked.dialect,
        deepspeed=said_there,
        optimizer=arguments.optimizer,
        lr=arguments.lr,
        weight_decay=arguments.weight_decay,
        precision="bf16" if arguments.bf16 else "fp16" if arguments.fp16 else "fp32",
        checkpointing=arguments.checkpointing,
        accumulation=arguments.accumulation,
        clipping=arguments.clipping,
        trust=asked.trust,
        settings=arguments.given,
    )
    return plan, [*findings, *_without(said_there)]


def _without(said: DeepSpeed | None) -> Iterator[Finding]:
    if said is None:
        text = "neither it nor --deepspeed names a DeepSpeed JSON, so there is no ZeRO to check"
        yield Finding(Level.INPUT, "deepspeed", "--trainer", text)


def _json(path: Path | None, tool: str) -> tuple[DeepSpeed, list[Finding]]:
    assert path is not None
    text, findings = read_text(path, "--deepspeed")
    if findings:
        return DeepSpeed(), findings
    return read_deepspeed_text(text, str(path), tool)  # type: ignore[arg-type]  # one of two


def _inventory(plan: Plan) -> Inventory:
    """Built where there is a configuration, else what the headers of its files name.  Raises NoModel."""
    source = plan.source
    if source.config is None:
        return Inventory(source.stored)
    request = {"config": dict(source.config), "trust": plan.trust, "folder": str(source.folder)}
    return Inventory.from_dict(take_inventory(request))
