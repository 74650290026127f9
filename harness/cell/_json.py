"""The DeepSpeed JSON of a variant."""

from __future__ import annotations

from typing import Any

from harness.cell._hyper import Hyper
from harness.cell._options import Options

__all__ = ["deepspeed_json"]

#: DeepSpeed's default of 5e8 elements reserves 2 GB of address space a rank; tiny models need
#: one bucket either way.
_BUCKET = 1_000_000


def deepspeed_json(options: Options, hyper: Hyper, **changes: Any) -> dict[str, Any]:
    """``changes`` replace top-level blocks; a mapping for ``zero_optimization`` is merged into it."""
    zero: dict[str, Any] = {"stage": options.stage, "reduce_bucket_size": _BUCKET}
    if options.stage == 3 and options.persistence == "zero":
        zero["stage3_param_persistence_threshold"] = 0
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": options.accumulation,
        "steps_per_print": 1_000_000,
        "optimizer": hyper.deepspeed(torch_adam=options.offload != "cpu_adam"),
        # Always given: a JSON that says nothing is clipped at a norm of 1.0 (0.19.8,
        # GRADIENT_CLIPPING_DEFAULT in deepspeed/runtime/constants.py).
        "gradient_clipping": options.clipping,
    }
    if hyper.optimizer == "SGD":
        # ZeRO takes it only when told that this is meant.
        config["zero_allow_untested_optimizer"] = True
    if options.precision == "bf16":
        config["bf16"] = {"enabled": True}
    if options.offload != "none":
        zero["offload_optimizer"] = {"device": "cpu"}
        # Unless told not to, ZeRO insists on its own CPU Adam, which is compiled on first use.
        config["zero_force_ds_cpu_optimizer"] = options.offload == "cpu_adam"
    if options.overlap != "default":
        zero["overlap_comm"] = options.overlap == "on"
    if options.gather_16bit:
        zero["stage3_gather_16bit_weights_on_model_save"] = True
    zero |= changes.pop("zero_optimization", {})
    return {**config, "zero_optimization": zero, **changes}
