"""A DeepSpeed JSON: what it says, and everything that is wrong with it at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from harness.cell._patterns import nearest
from harness.preflight._deepspeed_keys import BLOCKS, TYPES
from harness.preflight._finding import Finding, Level
from harness.preflight._json_text import read_json

__all__ = ["DeepSpeed", "read_deepspeed", "read_deepspeed_text"]

Tool = Literal["deepspeed", "trainer", "axolotl"]

#: They give the file to accelerate, whose reader is Python's own; DeepSpeed's takes Hjson.
_STRICT: Final = ("trainer", "axolotl")
#: What the Trainer and accelerate fill in, and DeepSpeed does not know.
_AUTO: Final = "auto"


@dataclass(frozen=True)
class DeepSpeed:
    """What matters to freezing.  A value that is left open is None: ``auto``, or not said.

    :ivar said: all of it, as read.
    """

    stage: int = 0
    precision: Literal["fp32", "bf16", "fp16"] | None = None
    optimizer: str | None = None
    lr: float | None = None
    weight_decay: float | None = None
    offload: str = "none"
    offload_param: str = "none"
    accumulation: int | None = None
    clipping: float | None = None
    persistence: float | None = None
    gathers_on_save: bool = False
    autos: frozenset[str] = frozenset()
    said: Mapping[str, Any] = field(default_factory=dict)


def read_deepspeed_text(text: str, who: str, tool: Tool) -> tuple[DeepSpeed, list[Finding]]:
    """:param who: the file, as it was named."""
    read = read_json(text)
    findings = []
    if read.lax:
        strict = tool in _STRICT
        findings.append(
            Finding(
                Level.WRONG if strict else Level.CAUTION,
                "lax-json",
                who,
                f"it is not strict JSON ({'; '.join(read.lax)})",
                "accelerate reads the file and refuses that; take it out"
                if strict
                else "DeepSpeed itself reads that, the Trainer and accelerate do not",
            )
        )
    findings += [Finding(Level.CAUTION, "key-twice", who, text) for text in read.twice]
    if read.broken:
        return DeepSpeed(), [*findings, Finding(Level.INPUT, "json", who, f"it is no JSON: {read.broken}")]
    settings, more = read_deepspeed(read.value, who, tool)
    return settings, [*findings, *more]


def read_deepspeed(block: Any, who: str, tool: Tool) -> tuple[DeepSpeed, list[Finding]]:
    """:param block: what is in the file, or is given in its place."""
    if not isinstance(block, dict):
        return DeepSpeed(), [Finding(Level.INPUT, "json", who, f"it must be an object with keys, found {block!r}")]
    findings = [*_misplaced(block, who), *_wrong_types(block, who), *_autos(block, who, tool)]
    autos = frozenset(key for key, value in _walk(block) if value == _AUTO)

    def get(key: str) -> Any:
        at: Any = block
        for part in key.split("."):
            at = at.get(part) if isinstance(at, dict) else None
        allowed = TYPES.get(key, (object,))
        fits = isinstance(at, allowed) and (not isinstance(at, bool) or bool in allowed or object in allowed)
        return at if fits and at != _AUTO else None

    stage = get("zero_optimization.stage")
    if stage is not None and stage not in range(4):
        where = f"{who}: zero_optimization.stage"
        findings.append(Finding(Level.INPUT, "stage", where, f"ZeRO stages are 0 to 3, found {stage}"))
        stage = None
    enabled = [kind for kind in ("bf16", "fp16") if get(f"{kind}.enabled")]
    if len(enabled) > 1:
        findings.append(
            Finding(Level.INPUT, "precision", f"{who}: bf16, fp16", "both are enabled; leave one of them on")
        )
    unsaid = any(f"{kind}.enabled" in autos for kind in ("bf16", "fp16"))
    threshold = "zero_optimization.stage3_param_persistence_threshold"
    settings = DeepSpeed(
        stage=stage or 0,
        precision=enabled[0] if enabled else None if unsaid else "fp32",  # type: ignore[arg-type]  # one of two
        optimizer=get("optimizer.type"),
        lr=_number(get("optimizer.params.lr")),
        weight_decay=_number(get("optimizer.params.weight_decay")),
        offload=get("zero_optimization.offload_optimizer.device") or "none",
        offload_param=get("zero_optimization.offload_param.device") or "none",
        accumulation=get("gradient_accumulation_steps"),
        clipping=get("gradient_clipping"),
        persistence=get(threshold),
        gathers_on_save=bool(get("zero_optimization.stage3_gather_16bit_weights_on_model_save")),
        autos=autos,
        said=block,
    )
    return settings, [*findings, *_sense(settings, who)]


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _walk(block: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in block.items():
        yield prefix + key, value
        if isinstance(value, dict):
            yield from _walk(value, f"{prefix}{key}.")


def _misplaced(block: Mapping[str, Any], who: str) -> Iterator[Finding]:
    """Keys that DeepSpeed would not read where they stand."""
    for key, _ in _walk(block):
        parent, _, name = key.rpartition(".")
        if parent not in BLOCKS or name in BLOCKS[parent]:
            continue
        homes = [f"{home}.{name}".lstrip(".") for home, keys in BLOCKS.items() if name in keys]
        if parent == "optimizer" and name in ("lr", "weight_decay", "betas", "eps", "momentum"):
            homes = [f"optimizer.params.{name}"]
        where = f"{who}: {key}"
        # The blocks that are checked by type refuse what they do not know; the top does not look.
        if homes:
            yield Finding(
                Level.WRONG, "misplaced", where, "it stands where nothing reads it", f"write {' or '.join(homes)}"
            )
        elif parent:
            text = f"DeepSpeed knows no such key in {parent}"
            yield Finding(Level.CAUTION, "unknown-key", where, text, nearest(name, BLOCKS[parent]))
        else:
            yield Finding(
                Level.CAUTION, "unknown-key", where, "nothing of DeepSpeed reads it", nearest(name, BLOCKS[""])
            )


def _wrong_types(block: Mapping[str, Any], who: str) -> Iterator[Finding]:
    for key, value in _walk(block):
        wanted = TYPES.get(key)
        if wanted is None or value == _AUTO or value is None:
            continue
        # To Python, True is a number.
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            names = {dict: "a block", str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
            yield Finding(Level.INPUT, "type", f"{who}: {key}", f"it must be {names[wanted[-1]]}, found {value!r}")


def _autos(block: Mapping[str, Any], who: str, tool: Tool) -> Iterator[Finding]:
    found = [key for key, value in _walk(block) if value == _AUTO]
    if found and tool == "deepspeed":
        text = "`auto` is for the Trainer and accelerate to fill in; DeepSpeed itself takes it for a value"
        text += f": {', '.join(found)}"
        yield Finding(Level.WRONG, "auto", who, text, "write numbers, or check it with the tool that fills them in")
    if "zero_optimization.stage" in found:
        text = "the stage is one of 0 to 3; nothing fills in `auto` here"
        yield Finding(Level.INPUT, "stage", f"{who}: zero_optimization.stage", text)


def _sense(settings: DeepSpeed, who: str) -> Iterator[Finding]:
    zero = f"{who}: zero_optimization"
    if settings.offload != "none" and settings.stage == 0:
        yield Finding(Level.WRONG, "offload", f"{zero}.offload_optimizer", "stage 0 offloads nothing", "use 1 to 3")
    if settings.offload_param != "none" and settings.stage != 3:
        text = f"only stage 3 offloads parameters, and the stage is {settings.stage}"
        yield Finding(Level.CAUTION, "offload", f"{zero}.offload_param", text)
    if settings.stage == 0 and "zero_optimization" not in settings.said:
        yield Finding(Level.CAUTION, "stage", who, "it has no zero_optimization block, so nothing is partitioned")
