"""All that can be said of a plan without a rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from harness.cell._patterns import nearest
from harness.preflight._finding import Finding, Level
from harness.preflight._inventory import Inventory, Parameter
from harness.preflight._known import known_to_bite
from harness.preflight._matched import Matched, match
from harness.preflight._plan import Plan

__all__ = ["Static", "look"]


@dataclass(frozen=True)
class Static:
    """:ivar trained: names of what the patterns choose; with an adapter, of what trains beside it."""

    inventory: Inventory
    matched: tuple[Matched, ...] = ()
    trained: frozenset[str] = frozenset()
    findings: tuple[Finding, ...] = field(default_factory=tuple)

    @property
    def trained_count(self) -> int:
        return sum(one.count for one in self.inventory.of(self.trained))


def look(plan: Plan, inventory: Inventory, versions: Mapping[str, str]) -> Static:
    """:param versions: what is installed."""
    stage = plan.deepspeed.stage if plan.deepspeed else 0
    matched: list[Matched] = []
    findings: list[Finding] = []
    if plan.train is not None:
        matched, findings = match(
            plan.train, inventory, dialect=plan.dialect, key=plan.key, stage=stage, stored=plan.source.stored
        )
        trained = frozenset(name for one in matched for name in one.names)
        if not trained and plan.adapter is None:
            text = "together the patterns choose nothing, so nothing would train"
            findings.append(Finding(Level.WRONG, "nothing-trains", plan.key, text))
    else:
        trained = frozenset(inventory.names) if plan.adapter is None else frozenset()
    if plan.adapter is not None:
        findings += _adapter(plan, inventory)
    findings += _fights(plan)
    findings += known_to_bite(plan, trained, inventory.names, versions)
    return Static(inventory, tuple(matched), trained, tuple(findings))


def _adapter(plan: Plan, inventory: Inventory) -> Iterator[Finding]:
    """Whether the targets name modules that the model has."""
    adapter = plan.adapter
    assert adapter is not None
    if adapter.targets in ((), ("all-linear",)):
        return
    modules = {one.name.rpartition(".")[0] for one in inventory.parameters}
    for target in (*adapter.targets, *adapter.whole):
        if any(name == target or name.endswith(f".{target}") for name in modules) or not target.isidentifier():
            continue
        fused = [one.name for one in inventory.parameters if len(one.shape) == 3 and target in one.name.split(".")[-1]]
        key = f"adapter target {target!r}" if target in adapter.targets else f"modules_to_save {target!r}"
        if fused:
            text = f"no module has that name; it is in {fused[0]!r}, a parameter of all experts of a layer"
            yield Finding(
                Level.WRONG, "fused", key, text, "PEFT reaches it by target_parameters", ("lora_target_parameters",)
            )
        else:
            ends = {name.rpartition(".")[2] for name in modules}
            yield Finding(Level.WRONG, "adapter-target", key, "no module has that name", nearest(target, ends))


#: Of the Trainer's arguments, where the DeepSpeed JSON says the same thing (transformers 5.16.1 and 4.36.2,
#: integrations/deepspeed.py: `fill_match` refuses two values that differ).
_SAME: Final[Sequence[tuple[str, str]]] = (
    ("lr", "optimizer.params.lr"),
    ("weight_decay", "optimizer.params.weight_decay"),
    ("accumulation", "gradient_accumulation_steps"),
    ("clipping", "gradient_clipping"),
)


def _fights(plan: Plan) -> Iterator[Finding]:
    """The JSON and the tool's own settings say different things."""
    said = plan.deepspeed
    if said is None or plan.tool == "deepspeed":
        return
    values: Mapping[str, Any] = vars(said)
    for key, name in _SAME:
        mine, theirs = getattr(plan, key), values[key]
        if theirs is not None and mine is not None and theirs != mine:
            text = f"the DeepSpeed JSON says {theirs:g} and the training arguments {mine:g}; transformers refuses that"
            yield Finding(Level.WRONG, "mismatch", name, text, "write `auto` in the JSON")
    if said.precision is not None and said.precision != plan.precision and "bf16.enabled" not in said.autos:
        text = f"the DeepSpeed JSON says {said.precision}, the training arguments {plan.precision}"
        yield Finding(Level.WRONG, "mismatch", "precision", text, "write `auto` for `enabled` in the JSON")
    if said.optimizer and said.optimizer.lower() not in plan.optimizer.lower().replace("_", ""):
        text = f"the JSON's {said.optimizer} is used, and {plan.optimizer} is not looked at"
        yield Finding(Level.CAUTION, "optimizer", "optimizer", text, "take one of them out")
    elif said.optimizer is None and said.offload == "cpu" and "adam" in plan.optimizer.lower():
        forced = said.said.get("zero_force_ds_cpu_optimizer", True)
        if forced:
            text = (
                f"with the optimizer offloaded, accelerate puts DeepSpeed's own CPU Adam in place of {plan.optimizer}"
            )
            yield Finding(Level.NOTE, "optimizer", "optimizer", text)


def samples(parameters: Sequence[Parameter], most: int = 3) -> str:
    """The first few names."""
    names = [one.name for one in parameters[:most]]
    return ", ".join(names) + (f" and {len(parameters) - most} more" if len(parameters) > most else "")
