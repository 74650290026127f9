"""Settings that are known to bite on what is installed: what was measured, looked up by what a plan says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harness.cell._catalog import find
from harness.cell._kinds import CONTROL
from harness.cell._options import Options
from harness.cell.outcome._expect import Expectation, Expectations, default_folder
from harness.cell.outcome._verdict import Verdict
from harness.preflight._finding import Finding, Level
from harness.preflight._plan import Plan

__all__ = ["known_to_bite"]


@dataclass(frozen=True)
class _Situation:
    """:ivar holds: whether a plan is in it; asked with what trains and all names.
    :ivar cases: what was measured of it.
    :ivar where: what in the plan makes it so, as told to people.
    """

    where: str
    cases: tuple[str, ...]
    holds: Callable[[Plan, frozenset[str], Sequence[str]], bool]
    level: Level = Level.WRONG


def _stage(plan: Plan) -> int:
    return plan.deepspeed.stage if plan.deepspeed else 0


def _partly(trained: frozenset[str], names: Sequence[str]) -> bool:
    return 0 < len(trained) < len(names)


def _mixed_block(trained: frozenset[str], names: Sequence[str]) -> bool:
    """Whether some layer has what trains beside what does not."""
    flags: dict[tuple[str, ...], set[bool]] = {}
    for name in names:
        parts = name.split(".")
        number = next((at for at, part in enumerate(parts) if part.isdigit()), None)
        if number is not None:
            flags.setdefault(tuple(parts[: number + 1]), set()).add(name in trained)
    return any(len(one) > 1 for one in flags.values())


def _first_frozen(trained: frozenset[str], names: Sequence[str]) -> bool:
    return bool(names) and names[0] not in trained and bool(trained)


_SITUATIONS: Final = (
    _Situation(
        "freezing before the engine, by deepspeed.initialize",
        ("freeze_except_before_engine",),
        lambda plan, trained, names: plan.tool == "deepspeed" and plan.adapter is None and _partly(trained, names),
    ),
    _Situation(
        "freezing before the Trainer",
        ("trainer_freeze_except_before",),
        lambda plan, trained, names: plan.tool == "trainer" and plan.adapter is None and _partly(trained, names),
    ),
    _Situation(
        "unfrozen_parameters",
        ("axolotl_freeze_layers_except",),
        lambda plan, trained, names: plan.tool == "axolotl" and plan.adapter is None and _partly(trained, names),
    ),
    _Situation(
        "LoRA and the Trainer",
        ("trainer_with_lora",),
        lambda plan, *_: plan.adapter is not None and plan.tool != "deepspeed",
    ),
    _Situation(
        "non-reentrant checkpointing of layers that are frozen in part",
        ("frozen_norms_in_checkpoint", "frozen_linears_in_checkpoint"),
        lambda plan, trained, names: plan.checkpointing == "non_reentrant" and _mixed_block(trained, names),
    ),
    _Situation(
        "reentrant checkpointing behind frozen layers",
        ("reentrant_without_input_grads",),
        # Where an adapter is, transformers and PEFT make the input require gradients.
        lambda plan, trained, names: (
            plan.checkpointing == "reentrant" and plan.adapter is None and _first_frozen(trained, names)
        ),
        Level.CAUTION,
    ),
    _Situation(
        "bf16 and freezing",
        ("freeze_except_in_bf16",),
        lambda plan, trained, names: plan.precision == "bf16" and _partly(trained, names),
    ),
    _Situation(
        "an offloaded optimizer and freezing",
        ("freeze_except_offloaded",),
        lambda plan, trained, names: (
            plan.deepspeed is not None and plan.deepspeed.offload == "cpu" and _partly(trained, names)
        ),
    ),
    _Situation(
        "saving without stage3_gather_16bit_weights_on_model_save",
        ("trainer_saves_not_gathered",),
        lambda plan, *_: plan.tool != "deepspeed" and plan.deepspeed is not None and not plan.deepspeed.gathers_on_save,
        Level.CAUTION,
    ),
)


def known_to_bite(
    plan: Plan,
    trained: frozenset[str],
    names: Sequence[str],
    versions: Mapping[str, str],
    expectations: Expectations | None = None,
) -> Iterator[Finding]:
    """What the shipped expectations say of such settings on these versions.

    :param trained: names of what is meant to train.
    :param names: all, in the model's order.
    """
    if expectations is None:
        folder = default_folder()
        expectations = Expectations.load(folder) if folder else Expectations()
    for situation in _SITUATIONS:
        if not situation.holds(plan, trained, names):
            continue
        for name in situation.cases:
            case = find(name)
            bitten = next(
                (
                    (options, entry)
                    for options in case.variants
                    if _alike(options, plan)
                    for entry in expectations.entries
                    if entry.case == name and _speaks(entry, options, versions)
                ),
                None,
            )
            if bitten is None:
                continue
            options, entry = bitten
            # What could not run there says nothing of the recipe.
            if entry.verdict in (Verdict.NOT_RUN, Verdict.UNSOLVABLE):
                continue
            text = f"measured on these versions at stage {options.stage}: {_told(entry)}"
            # What a recipe that works does where all is well says nothing of where it does not; the entry's note may.
            because = entry.note.partition("; ")[2] if case.kind == CONTROL else case.happens.rstrip(".")
            if because:
                text += f" ({because})"
            yield Finding(situation.level, "known", situation.where, text, case.instead.rstrip("."), (name,))
            break


def _alike(options: Options, plan: Plan) -> bool:
    """Whether a variant has the settings of a plan that decide."""
    return options.stage == _stage(plan) and options.checkpointing in ("none", plan.checkpointing)


def _speaks(entry: Expectation, options: Options, versions: Mapping[str, str]) -> bool:
    return (
        entry.speaks_of(options)
        and entry.holds_on(versions)
        # What was measured on CPU alone, such as a gradient type's name, is of no concern to a GPU; and the other way
        # round nothing is known, so only what is said of every device counts.
        and entry.device is None
        and "CPU ranks only" not in entry.note
    )


def _told(entry: Expectation) -> str:
    if entry.type:
        return f"{entry.verdict} {entry.type} at {entry.moment or 'some moment'}"
    return str(entry.verdict)
