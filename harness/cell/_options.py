"""The named settings of one variant of a case: what the matrix inside a stack varies."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from harness.cell._patterns import nearest
from harness.cell.models import MODELS

__all__ = ["Options", "Persistence", "grid"]

Init = Literal["plain", "zero_init"]
#: ``zero``: every parameter is partitioned, however small.  ``default``: DeepSpeed's own
#: threshold (100,000 elements), under which a tiny model's parameters all stay whole.
Persistence = Literal["zero", "default"]
Precision = Literal["fp32", "bf16"]
#: Of activations; each kind is torch's ``use_reentrant``.
Checkpointing = Literal["none", "reentrant", "non_reentrant"]
#: Where ZeRO keeps the optimizer's state and its fp32 weights, and who steps them there: torch's own
#: optimizer, or DeepSpeed's (``cpu_adam``), which is compiled on first use.
Offload = Literal["none", "cpu", "cpu_adam"]
#: Whether gradients are reduced while backward goes on; ``default``: as the release has it.
Overlap = Literal["default", "on", "off"]
#: By what the engine is reached; each is a module of :mod:`harness.drivers`.
Driver = Literal["engine", "accelerate", "trainer", "sft_trainer"]
#: What PEFT puts around the model: LoRA; and beside it a copy of the head that trains
#: (``modules_to_save``), or some rows of the embedding (``trainable_token_indices``).
Adapters = Literal["none", "lora", "lora_head", "lora_tokens"]
#: ``resized``: by ``resize_token_embeddings``, once the model exists.
Embeddings = Literal["as_built", "resized"]


_ID = re.compile(
    r"(?P<model>\w+)-z(?P<stage>\d)(?:-(?P<init>plain|zero_init)-persist_(?P<persistence>zero|default))?"
    r"(?:-(?P<precision>bf16))?(?:-ckpt_(?P<checkpointing>reentrant|non_reentrant))?(?:-offload_(?P<offload>cpu(?:_adam)?))?"
    r"(?:-accum(?P<accumulation>\d+))?(?:-clip(?P<clipping>[\d.e+-]+))?(?:-overlap_(?P<overlap>on|off))?"
    r"(?P<gather_16bit>-gather_16bit)?(?:-(?P<embeddings>resized))?(?:-by_(?P<driver>accelerate|trainer|sft_trainer))?"
    r"(?:-peft_(?P<adapters>lora(?:_head|_tokens)?))?"
)


#: How an id names what is not as usual, in this order.
_IN_AN_ID: Mapping[str, str] = {
    "precision": "{}",
    "checkpointing": "ckpt_{}",
    "offload": "offload_{}",
    "accumulation": "accum{}",
    "clipping": "clip{:g}",
    "overlap": "overlap_{}",
    "gather_16bit": "gather_16bit",
    "embeddings": "{}",
    "driver": "by_{}",
    "adapters": "peft_{}",
}

_DRIVERS_NEED: Mapping[Driver, tuple[str, ...]] = {
    "engine": (),
    "accelerate": ("accelerate",),
    "trainer": ("transformers", "accelerate"),
    "sft_trainer": ("transformers", "accelerate", "trl"),
}


@dataclass(frozen=True)
class Options:
    """One variant.  Fields at their default are left out of :attr:`id`, save model and stage."""

    model: str = "tiny_llama"
    stage: int = 3
    init: Init = "plain"
    persistence: Persistence = "zero"
    precision: Precision = "fp32"
    checkpointing: Checkpointing = "none"
    #: of the optimizer, stages 1 to 3
    offload: Offload = "none"
    #: micro-batches per optimizer step
    accumulation: int = 1
    #: gradient clipping by global norm; 0 is off
    clipping: float = 0.0
    #: DeepSpeed's ``overlap_comm``
    overlap: Overlap = "default"
    #: DeepSpeed's ``stage3_gather_16bit_weights_on_model_save``
    gather_16bit: bool = False
    embeddings: Embeddings = "as_built"
    driver: Driver = "engine"
    adapters: Adapters = "none"

    @property
    def id(self) -> str:
        parts = [self.model, f"z{self.stage}"]
        if self.stage == 3:
            parts += [self.init, f"persist_{self.persistence}"]
        for axis, text in _IN_AN_ID.items():
            if (value := getattr(self, axis)) != _DEFAULTS[axis]:
                parts.append(text.format(value))
        return "-".join(parts)

    @classmethod
    def from_id(cls, text: str) -> Options:
        """The variant that has this :attr:`id`.  Raises ValueError."""
        found = _ID.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is no variant, such as 'tiny_llama-z3-plain-persist_zero'")
        given = {key: value for key, value in found.groupdict().items() if value is not None}
        kinds = {"stage": int, "accumulation": int, "clipping": float, "gather_16bit": bool}
        made = cls(**{key: kinds.get(key, str)(value) for key, value in given.items()})
        if made.faults() or made.id != text:
            raise ValueError(f"{text!r} is no variant: {'; '.join(made.faults()) or f'it would be {made.id!r}'}")
        return made

    def faults(self) -> list[str]:
        """What makes no sense; the types alone stop nobody."""
        found = []
        choices = {
            "model": tuple(MODELS),
            "init": get_args(Init),
            "persistence": get_args(Persistence),
            "precision": get_args(Precision),
            "checkpointing": get_args(Checkpointing),
            "offload": get_args(Offload),
            "overlap": get_args(Overlap),
            "embeddings": get_args(Embeddings),
            "driver": get_args(Driver),
            "adapters": get_args(Adapters),
        }
        for axis, known in choices.items():
            value = getattr(self, axis)
            if value not in known:
                found.append(f"no {axis} is called {value!r}; {nearest(str(value), known)}")
        if self.stage not in (0, 1, 2, 3):
            found.append(f"ZeRO stages are 0 to 3, found {self.stage!r}")
        if self.offload != "none" and self.stage == 0:
            found.append("stage 0 has no optimizer state to offload; ZeRO stages 1 to 3 have")
        if self.gather_16bit and self.stage != 3:
            found.append(f"gather_16bit is a setting of stage 3, found stage {self.stage!r}")
        if not isinstance(self.accumulation, int) or self.accumulation < 1:
            found.append(f"accumulation must be 1 micro-batch or more, found {self.accumulation!r}")
        if not self.clipping >= 0:
            found.append(f"clipping must be a norm, 0 for none, found {self.clipping!r}")
        return found

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @property
    def needs(self) -> tuple[str, ...]:
        """Import names of what this variant needs beyond what its case and its model do."""
        return (*_DRIVERS_NEED[self.driver], *(("peft",) if self.adapters != "none" else ()))


_DEFAULTS: Mapping[str, Any] = {one.name: one.default for one in dataclasses.fields(Options)}


def grid(models: Sequence[str], stages: Sequence[int], **fixed: Any) -> Iterator[Options]:
    """The default variants: each model and stage; at stage 3 also init x persistence.

    ``zero.Init`` partitions only under stage 3 and the threshold is a stage-3 setting, so the
    lower stages have one variant each.
    """
    for model, stage in itertools.product(models, stages):
        if stage != 3:
            yield Options(model=model, stage=stage, **fixed)
            continue
        for init, persistence in itertools.product(("plain", "zero_init"), ("zero", "default")):
            yield Options(model=model, stage=stage, init=init, persistence=persistence, **fixed)  # type: ignore[arg-type]
