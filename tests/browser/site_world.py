"""A small atlas to look at: shipped cases, one of somebody's own with a hostile name, and a stack on two days."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from small_matrix import STACKS, make_matrix

from harness.cell import Failure, Options, Verdict
from harness.cell._catalog import find, shipped
from harness.cell.outcome._observed import Observed, Outcome
from harness.control.cli import main

__all__ = ["HOSTILE_CASE", "HOSTILE_MESSAGE", "NAIVE", "large", "make_site", "small"]

NAIVE: Final = "unfreeze_more_after_engine"
HOSTILE_CASE: Final = '<img src=x onerror="window.pwned=1">{{ 7*7 }}\'"'
HOSTILE_MESSAGE: Final = "</script><script>window.pwned=2</script> ${window.pwned=3} \u202e\u2028 <b>bold</b>"
_STEPS: Final = ("0.17.0", "0.18.0", "0.19.0")


def small() -> list[Observed]:
    """Along DeepSpeed the naive case begins to train at 0.19.0, and a control begins to fail."""
    made = []
    for version in _STEPS:
        late = version == "0.19.0"
        outcomes = [
            *_split(NAIVE, Verdict.TRAINS if late else Verdict.NO_UPDATE, ("layers.2.weight", "layers.2.bias")),
            *_split("freeze_except_before_engine", Verdict.FROZEN_DRIFT if late else Verdict.TRAINS, ("stem.weight",)),
            _raises("freeze_all_engine_unfreeze", "IndexError", "list index out of range"),
            Outcome("trainer_freeze_except_before", Verdict.TRAINS, find("trainer_freeze_except_before").variants, 2),
            _own(HOSTILE_CASE, Failure("engine", "RuntimeError", HOSTILE_MESSAGE)),
        ]
        made.append(_observed(f"ds-{version}", version, outcomes))
    made.append(_observed("latest", "0.19.0", made[-1].outcomes, day="2026-12-05"))
    made.append(_observed("latest", "0.19.0", made[0].outcomes, day="2026-11-01"))
    unsolvable = Observed("torch-2.2.1", "1", "2026-11-30", "cpu", "", {}, (), f"no wheel {HOSTILE_MESSAGE}")
    return [*made, unsolvable]


def large(stacks: int, cases: int) -> list[Observed]:
    """As many as a sweep gives, with a change now and then, as in life."""
    some = shipped()[:cases]
    made = []
    for place in range(stacks):
        outcomes = []
        for number, case in enumerate(some):
            faulty = (place // (5 + number % 17) + number) % 3 == 0
            verdict = list(Verdict)[number % 10] if faulty else Verdict.TRAINS
            names = tuple(f"model.layers.{layer}.self_attn.q_proj.weight" for layer in range(9))
            outcomes += _split(case.name, verdict, names)
        made.append(_observed(f"own-{place}", f"0.{place}.0", outcomes))
    return made


def _split(name: str, verdict: Verdict, parameters: tuple[str, ...]) -> list[Outcome]:
    """At stage 0 it trains."""
    variants = find(name).variants
    low = tuple(one for one in variants if one.stage == 0)
    high = tuple(one for one in variants if one.stage > 0)
    if verdict is Verdict.TRAINS or not low or not high:
        return [Outcome(name, Verdict.TRAINS, variants, 2)]
    failure = Failure("stepped", "RuntimeError", "it died") if verdict in _ENDS else None
    faults: dict[Verdict, tuple[str, ...]] = {} if failure else {verdict: parameters}
    return [Outcome(name, Verdict.TRAINS, low, 2), Outcome(name, verdict, high, 2, faults, failure)]


_ENDS: Final = (Verdict.CRASH, Verdict.HANG, Verdict.RAISES)


def _raises(name: str, kind: str, message: str) -> Outcome:
    return Outcome(name, Verdict.RAISES, find(name).variants, 2, {}, Failure("engine", kind, message))


def _own(name: str, failure: Failure) -> Outcome:
    return Outcome(name, Verdict.RAISES, (Options(model="mlp", stage=1),), 2, {}, failure)


def _observed(stack: str, deepspeed: str, outcomes: Sequence[Outcome], day: str = "2026-11-30") -> Observed:
    versions = {"torch": "2.13.0+cpu", "deepspeed": deepspeed, "python": "3.11.7", "transformers": "5.16.1"}
    return Observed(stack, "1.0", day, "cpu", "0123456789abcdef", versions, tuple(outcomes))


def make_site(folder: Path, stacks: Sequence[Observed]) -> Path:
    """The site of these, by the command; the folder that has it."""
    # Nothing is left out of the sweep here.
    make_matrix(folder, stacks=re.sub(r"(?s)\[\[exclude\]\].*?(?=\n\[)", "", STACKS))
    (folder / "matrix" / "expected").mkdir()
    sources = []
    for one in stacks:
        into = folder / one.measured
        one.write(into / f"{one.stack}.jsonl")
        sources += [str(into)] if str(into) not in sources else []
    assert main(["report", *sources, "--matrix", str(folder / "matrix"), "--site", str(folder / "site")]) == 0
    return folder / "site"
