"""A plan on two real ranks, with a tiny model of the same architecture, against the twin."""

from __future__ import annotations

import json
import pprint
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from harness.cell._options import Options
from harness.cell.outcome._record import CaseRecord
from harness.cell.outcome._verdict import Verdict
from harness.cell.plug._session import Session, Settings
from harness.cell.ranks._launch import LauncherFailed
from harness.cell.ranks._rank import find_case
from harness.preflight._finding import Finding, Level
from harness.preflight._grouped import grouped
from harness.preflight._layers import layers_to_keep
from harness.preflight._plan import Plan
from harness.preflight._static import Static

__all__ = ["Rehearsal", "Stage", "case_source"]

#: Until then nothing of the user's recipe has run, so that what fails is the model, or this program.
_BEFORE: Final = ("start", "constructed")
#: Of a library's message; some list every parameter.
_LONGEST: Final = 300
#: A case as anyone writes one, so that it can be kept and shown to others.
_SOURCE: Final = '''"""What `thawcheck check` had two ranks do: a tiny model, frozen as was planned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.cell import Options, case
from harness.preflight.rehearse import rehearse

if TYPE_CHECKING:
    from harness.cell._run import Run

PLAN = {plan}


@case(kind="CONTROL", variants=[{options}], deadline=60)
def {name}(run: Run) -> None:
    """The plan, in the order in which its tool does it."""
    rehearse(run, PLAN)
'''


@dataclass(frozen=True)
class Rehearsal:
    """:ivar record: what was seen; None where no rank could be had.
    :ivar findings: what follows from it.
    """

    record: CaseRecord | None
    findings: tuple[Finding, ...] = field(default_factory=tuple)

    @property
    def trains(self) -> bool:
        return self.record is not None and self.record.verdict is Verdict.TRAINS

    @property
    def lines(self) -> Iterator[str]:
        if self.record is None:
            return
        yield f"on two ranks: {self.record.verdict}"
        yield from (f"  {line}" for line in grouped(self.record.parameters))
        yield from (f"  {note}" for note in self.record.notes)

    def as_dict(self) -> dict[str, Any]:
        return {} if self.record is None else self.record.as_dict()


class Stage:
    """Two ranks for as many plans as are tried; starts nothing until the first."""

    def __init__(self, device: str = "cpu") -> None:
        self._session = Session(Settings(device=device, expected=None))
        self._folder = tempfile.TemporaryDirectory(prefix="thawcheck-check-")
        self._count = 0

    def close(self) -> None:
        self._session.close()
        self._folder.cleanup()

    def rehearse(self, plan: Plan, static: Static) -> Rehearsal:
        """Run the plan; never raises for what goes wrong there."""
        self._count += 1
        name = f"plan_{self._count}"
        file = Path(self._folder.name) / f"check_{name}.py"
        options = options_of(plan)
        file.write_text(case_source(plan, static, name), encoding="utf-8")
        case = find_case(file.stem, str(file), name)
        try:
            outcome, _ = self._session.run(case, options)
        except LauncherFailed as error:
            text = f"it could not be run on two ranks: {error}"
            return Rehearsal(None, (Finding(Level.UNKNOWN, "not-run", "two ranks", text),))
        if outcome.malformed:
            text = f"it could not be run on two ranks: {outcome.malformed}"
            return Rehearsal(outcome.record, (Finding(Level.UNKNOWN, "not-run", "two ranks", text),))
        record = outcome.record
        # The variant's model stands for settings alone; what ran is the user's.
        record.options = {**record.options, "model": str((plan.source.config or {}).get("model_type", ""))}
        record.id = record.case = "as planned"
        return Rehearsal(record, (*_found(record), *_unlike(plan)))


def _found(record: CaseRecord) -> Iterator[Finding]:
    if record.verdict is Verdict.TRAINS:
        return
    if record.verdict in (Verdict.NOT_RUN, Verdict.UNSOLVABLE):
        yield Finding(Level.UNKNOWN, "not-run", "two ranks", f"it could not be run: {record.headline}")
        return
    told = record.headline
    if record.failure is not None:
        message = " ".join(record.failure.message.split())
        told = f"{record.failure.type} at {record.failure.moment!r}: {message[:_LONGEST]}"
        if record.failure.moment in _BEFORE:
            text = f"the tiny model could not be made there: {told}"
            yield Finding(Level.UNKNOWN, "not-run", "two ranks", text)
            return
    yield Finding(Level.WRONG, "rehearsal", "two ranks", f"{record.verdict}: {told}")


def _unlike(plan: Plan) -> Iterator[Finding]:
    """What of the plan the two ranks did otherwise."""

    def other(text: str, level: Level = Level.NOTE) -> Finding:
        return Finding(level, "unlike", "two ranks", text)

    if plan.precision == "fp16":
        yield other("they ran in fp32, as CPUs do not train in fp16; loss scaling was not seen", Level.CAUTION)
    if not plan.optimizer.lower().startswith("adam"):
        yield other(f"they used AdamW, not {plan.optimizer}", Level.CAUTION)
    if plan.deepspeed is not None and plan.deepspeed.offload == "nvme":
        yield other("nothing was offloaded to NVMe", Level.CAUTION)
    towers = [key for key in plan.source.config or {} if key in ("vision_config", "audio_config")]
    if towers:
        seen = f"they were given text alone, so what only {' and '.join(towers)} build got no input"
        yield other(seen, Level.CAUTION)


def options_of(plan: Plan) -> Options:
    """The variant that is nearest to the plan."""
    said = plan.deepspeed
    stage = said.stage if said else 0
    return Options(
        stage=stage,
        # The Trainer builds models under zero.Init at stage 3, Axolotl through it; a loop of one's own need not.
        init="zero_init" if stage == 3 and plan.tool != "deepspeed" else "plain",
        # Real parameters are above the threshold, so tiny ones must not be below it.
        persistence="zero",
        precision="bf16" if plan.precision == "bf16" else "fp32",
        checkpointing=plan.checkpointing,
        offload="cpu" if said and said.offload == "cpu" and stage else "none",
        # What goes wrong between micro-batches shows with two of them.
        accumulation=min(plan.accumulation, 2),
        clipping=plan.clipping or 0.0,
    )


def case_source(plan: Plan, static: Static, name: str = "as_planned") -> str:
    """The file of a case that does what was planned."""
    options = options_of(plan)
    defaults = Options()
    changed = {
        key: value for key, value in options.as_dict().items() if value != getattr(defaults, key) or key == "stage"
    }
    told = ", ".join(f"{key}={value!r}" for key, value in changed.items())
    plain = pprint.pformat(_plain(plan, static), width=110, sort_dicts=False)
    return _SOURCE.format(plan=plain, options=f"Options({told})", name=name)


def _plain(plan: Plan, static: Static) -> dict[str, Any]:
    """What the ranks need to know, as plain data."""
    adapter = plan.adapter
    plain: dict[str, Any] = {
        "tool": plan.tool,
        "model": dict(plan.source.config or {}),
        "folder": str(plan.source.folder),
        "trust": plan.trust,
        "layers": layers_to_keep(static.matched, static.inventory.names),
        "train": None if plan.train is None else [*plan.train],
        "dialect": plan.dialect,
        "weight_decay": plan.weight_decay or 0.0,
        "config": _json_of(plan),
        "adapter": None,
    }
    if adapter is not None:
        plain["adapter"] = {"r": min(adapter.rank, 4), "targets": [*adapter.targets], "whole": [*adapter.whole]}
    return plain


#: Keys of the user's zero_optimization that are handed on; sizes of buckets and devices are set for tiny models.
_HANDED_ON: Final = (
    "contiguous_gradients",
    "round_robin_gradients",
    "reduce_scatter",
    "ignore_unused_parameters",
    "zero_hpz_partition_size",
    "stage3_gather_16bit_weights_on_model_save",
)


def _json_of(plan: Plan) -> dict[str, Any]:
    said = plan.deepspeed.said if plan.deepspeed else {}
    zero = said.get("zero_optimization", {})
    kept = {key: zero[key] for key in _HANDED_ON if isinstance(zero, dict) and key in zero and zero[key] != "auto"}
    # Through JSON, so that nothing but plain data can get into the file.
    return json.loads(json.dumps({"zero_optimization": kept} if kept else {}))  # type: ignore[no-any-return]
