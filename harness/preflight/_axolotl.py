"""An Axolotl YAML: what of it decides what trains, and everything that is wrong with it at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from harness.cell._patterns import nearest
from harness.preflight._deepspeed import DeepSpeed, read_deepspeed, read_deepspeed_text
from harness.preflight._files import read_text
from harness.preflight._finding import Finding, Level
from harness.preflight._plan import Adapter, Checkpointing, Plan, checkpointing_kind
from harness.preflight._source import Source, find_source
from harness.preflight._yaml_text import read_yaml

__all__ = ["read_axolotl"]

#: What is read here, and what it must be.  Axolotl has some hundreds of keys; the others are none of our business.
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "base_model": (str,),
    "unfrozen_parameters": (list,),
    "adapter": (str,),
    "lora_r": (int,),
    "lora_target_modules": (list, str),
    "lora_target_linear": (bool,),
    "lora_modules_to_save": (list,),
    "gradient_checkpointing": (bool, str),
    "gradient_checkpointing_kwargs": (dict,),
    "optimizer": (str,),
    "learning_rate": (int, float, str),
    "weight_decay": (int, float),
    "gradient_accumulation_steps": (int,),
    "max_grad_norm": (int, float),
    "deepspeed": (str, dict),
    "trust_remote_code": (bool,),
}
#: Keys that people write beside or in place of those above, so that a slip is told from a key of other business.
_CLOSE: Final = 0.86


def read_axolotl(path: Path, *, trust: bool = False) -> tuple[Plan | None, list[Finding]]:
    """The plan; None where nothing can be said of it."""
    who = str(path)
    text, findings = read_text(path, "--axolotl")
    if findings:
        return None, findings
    config, broken, twice = read_yaml(text)
    findings += [Finding(Level.CAUTION, "key-twice", who, one) for one in twice]
    if broken:
        return None, [*findings, Finding(Level.INPUT, "yaml", who, f"it is no YAML: {broken}")]
    if not isinstance(config, dict):
        return None, [*findings, Finding(Level.INPUT, "yaml", who, f"it must be keys and values, found {config!r}")]
    findings += [*_types(config, who), *_slips(config, who), *_fights(config, who)]
    asked = _as(config, "base_model")
    source = Source()
    if asked is None:
        if "base_model" not in config:
            findings.append(Finding(Level.INPUT, "model", f"{who}: base_model", "it is missing; name a model's folder"))
    else:
        source, more = find_source(asked, f"{who}: base_model", path.parent)
        findings += more
    deepspeed, more = _deepspeed(config, path, who)
    findings += more
    return _plan(config, source, deepspeed, trust=trust), findings


def _plan(config: Mapping[str, Any], source: Source, deepspeed: DeepSpeed | None, *, trust: bool) -> Plan:
    patterns = _as(config, "unfrozen_parameters")
    clipping = _as(config, "max_grad_norm")
    return Plan(
        tool="axolotl",
        source=source,
        key="unfrozen_parameters",
        train=tuple(one for one in patterns if isinstance(one, str)) if patterns else None,
        dialect="axolotl",
        deepspeed=deepspeed,
        adapter=_adapter(config),
        optimizer=_as(config, "optimizer") or "adamw_torch_fused",
        lr=_number(config.get("learning_rate")),
        weight_decay=_number(config.get("weight_decay")) or 0.0,
        precision="bf16" if config.get("bf16") in (True, "auto", "full") else "fp16" if config.get("fp16") else "fp32",
        checkpointing=_checkpointing(config),
        accumulation=_as(config, "gradient_accumulation_steps") or 1,
        clipping=None if clipping is None else float(clipping),
        trust=trust,
        settings=config,
    )


def _as(config: Mapping[str, Any], key: str) -> Any:
    """The value where it is what it must be, else None."""
    value = config.get(key)
    return value if value is not None and _fits(value, _TYPES[key]) else None


def _fits(value: Any, wanted: tuple[type, ...]) -> bool:
    return isinstance(value, wanted) and (not isinstance(value, bool) or bool in wanted)


def _number(value: Any) -> float | None:
    """YAML takes ``2e-5`` for a text, and Axolotl for a number."""
    try:
        return None if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None


def _checkpointing(config: Mapping[str, Any]) -> Checkpointing:
    if not config.get("gradient_checkpointing"):
        return "none"
    kwargs = _as(config, "gradient_checkpointing_kwargs")
    if kwargs is None and config.get("unfrozen_parameters") is None:
        return "reentrant"  # axolotl/utils/config/__init__.py, 0.19.0: only then does it say so by itself
    return checkpointing_kind(kwargs)


def _adapter(config: Mapping[str, Any]) -> Adapter | None:
    kind = _as(config, "adapter")
    if not kind:
        return None
    targets = _as(config, "lora_target_modules") or ()
    if config.get("lora_target_linear"):
        targets = ("all-linear",)
    return Adapter(
        kind,
        _as(config, "lora_r") or 8,
        (targets,) if isinstance(targets, str) else tuple(map(str, targets)),
        tuple(map(str, _as(config, "lora_modules_to_save") or ())),
    )


def _deepspeed(config: Mapping[str, Any], path: Path, who: str) -> tuple[DeepSpeed | None, list[Finding]]:
    given = _as(config, "deepspeed")
    if given is None:
        return None, []
    if isinstance(given, dict):
        return read_deepspeed(given, f"{who}: deepspeed", "axolotl")
    text, findings = read_text(path.parent / Path(given).expanduser(), f"{who}: deepspeed")
    return (None, findings) if findings else read_deepspeed_text(text, given, "axolotl")


def _types(config: Mapping[str, Any], who: str) -> Iterator[Finding]:
    names = {bool: "true or false", dict: "a block", list: "a list", str: "a text", int: "a whole number"}
    for key, wanted in _TYPES.items():
        value = config.get(key)
        if value is not None and not _fits(value, wanted):
            what = " or ".join(dict.fromkeys(names.get(one, "a number") for one in wanted))
            yield Finding(Level.INPUT, "type", f"{who}: {key}", f"it must be {what}, found {value!r}")
    for one in _as(config, "unfrozen_parameters") or ():
        if not isinstance(one, str):
            text = f"its entries are texts, found {one!r}"
            yield Finding(Level.INPUT, "type", f"{who}: unfrozen_parameters", text)
    rate = config.get("learning_rate")
    if isinstance(rate, str) and _number(rate) is None:
        yield Finding(Level.INPUT, "type", f"{who}: learning_rate", f"it must be a number, found {rate!r}")


def _slips(config: Mapping[str, Any], who: str) -> Iterator[Finding]:
    import difflib

    for key in config:
        known = difflib.get_close_matches(str(key), _TYPES, n=1, cutoff=_CLOSE)
        if key not in _TYPES and known and known[0] not in config:
            text = f"it is not {known[0]!r}, so that is not set"
            yield Finding(Level.CAUTION, "unknown-key", f"{who}: {key}", text, nearest(str(key), _TYPES, count=1))


def _fights(config: Mapping[str, Any], who: str) -> Iterator[Finding]:
    """Settings that undo each other."""
    patterns = config.get("unfrozen_parameters")
    if patterns == []:
        yield Finding(
            Level.WRONG,
            "freezes-nothing",
            f"{who}: unfrozen_parameters",
            "it is empty, which freezes nothing",
            "leave it out, or name what is to train",
        )
    if patterns and _checkpointing(config) == "reentrant" and _as(config, "gradient_checkpointing_kwargs"):
        text = "use_reentrant is true, which Axolotl refuses beside unfrozen_parameters"
        where = f"{who}: gradient_checkpointing_kwargs"
        yield Finding(Level.WRONG, "checkpointing", where, text, "write use_reentrant: false")
    if patterns and config.get("adapter"):
        yield Finding(
            Level.WRONG,
            "adapter-and-freezing",
            f"{who}: adapter, unfrozen_parameters",
            "freezing comes after the adapter is put around the model, so the adapter is frozen as well, and its names "
            "have another prefix than the model's",
            "leave unfrozen_parameters out, and name what is to train beside the adapter in lora_modules_to_save",
        )
    if config.get("deepspeed") and (config.get("fsdp") or config.get("fsdp_config")):
        text = "fsdp is given as well, and Axolotl goes by only one of the two"
        yield Finding(Level.WRONG, "two-engines", f"{who}: deepspeed", text, "leave one out")
