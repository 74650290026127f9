"""What every planted case shares: one block trains, and one parameter inside or outside it suffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from harness.cell import Hyper, Options, freeze_except, grid

if TYPE_CHECKING:
    import torch

    from harness.cell._run import Run

#: Per model: the parameter of the trained block, and the frozen one, that the fault is planted in.
TRAINED: Final = {"tiny_llama": "model.layers.2.mlp.up_proj.weight", "mlp": "layers.2.weight"}
FROZEN: Final = {"tiny_llama": "model.layers.1.mlp.up_proj.weight", "mlp": "layers.1.weight"}

#: Plain and zero.Init, partitioned and persistent at stage 3; stages 0 to 2.
FP32: Final = tuple(grid(("tiny_llama",), (0, 1, 2, 3)))

#: Stages with fp32 masters beside bf16 weights.  Stage 0 is apart: DeepSpeed itself steps wrongly there.
BF16: Final = tuple(grid(("tiny_llama",), (1, 2, 3), precision="bf16"))

EVERYWHERE: Final = (*FP32, *BF16, *grid(("mlp",), (0, 3)))

#: Where a step is made of more than one micro-batch, or of a clipped gradient.
COMPOSED: Final = tuple(
    Options(stage=stage, precision=precision, accumulation=accumulation, clipping=clipping)
    for stage, precision in ((0, "fp32"), (1, "bf16"), (2, "fp32"), (3, "fp32"), (3, "bf16"))
    for accumulation, clipping in ((2, 0.0), (1, 0.01), (2, 0.01))
)

#: Adam hides the size of a gradient, so what clipping and momentum do shows under SGD alone.
SGD: Final = Hyper(optimizer="SGD", lr=0.1, momentum=0.9, weight_decay=0.1)


def block_engine(run: Run, *, hyper: Hyper | None = None, **config: Any) -> Any:
    """An engine whose model trains one block and was frozen elsewhere before the engine was made."""
    model = run.model()
    freeze_except(model, run.part("block"))
    # ZeRO takes SGD only when told that this is meant.
    return run.engine(model, hyper=hyper, zero_allow_untested_optimizer=True, **config)


def trained(run: Run, engine: Any) -> torch.nn.Parameter:
    """The trained parameter to plant a fault in."""
    return named(engine.module, TRAINED[run.options.model])


def frozen(run: Run, engine: Any) -> torch.nn.Parameter:
    """The frozen parameter to plant a fault in."""
    return named(engine.module, FROZEN[run.options.model])


def named(module: torch.nn.Module, name: str) -> torch.nn.Parameter:
    return dict(module.named_parameters())[name]
