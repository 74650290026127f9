"""What every planted case shares: one block trains, and one parameter inside or outside it suffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from harness.cell import Hyper, Options, freeze_except
from harness.cell._patterns import matches

if TYPE_CHECKING:
    import torch

    from harness.cell._run import Run

#: Per model: the parameter of the trained block, and the frozen one, that the fault is planted in.
TRAINED: Final = {"tiny_llama": "model.layers.2.mlp.up_proj.weight", "mlp": "layers.2.weight"}
FROZEN: Final = {"tiny_llama": "model.layers.1.mlp.up_proj.weight", "mlp": "layers.1.weight"}

#: One variant for each way in which DeepSpeed keeps a parameter, reduces or steps it: whole (0),
#: the optimizer partitioned (1), gradients too (2), weights too (3), built plainly or under
#: zero.Init, each weight partitioned or kept whole for its size; with fp32 masters below fp32.
#: bf16 at stage 0 is apart: DeepSpeed itself steps wrongly there.
EVERYWHERE: Final = (
    Options(stage=0),
    Options(stage=1, model="mlp"),
    Options(stage=2),
    Options(stage=3),
    Options(stage=3, init="zero_init", persistence="default"),
    Options(stage=3, init="zero_init", model="mlp"),
    Options(stage=3, persistence="default", model="mlp"),
    Options(stage=1, precision="bf16"),
    Options(stage=3, precision="bf16", init="zero_init"),
    Options(stage=3, precision="bf16", persistence="default", model="mlp"),
)

#: The fewest that still cover stages and precisions, for faults whose mechanism is one.
FEW: Final = (
    Options(stage=0),
    Options(stage=2),
    Options(stage=3, init="zero_init"),
    Options(stage=3, precision="bf16"),
)

#: Where a step is made of more than one micro-batch, or of a clipped gradient.
COMPOSED: Final = (
    Options(stage=0, accumulation=2, clipping=0.01),
    Options(stage=1, accumulation=2, clipping=0.01, precision="bf16"),
    Options(stage=2, accumulation=2),
    Options(stage=2, accumulation=2, precision="bf16"),
    Options(stage=3, accumulation=2, clipping=0.01),
    Options(stage=3, accumulation=2, precision="bf16"),
)

#: Adam hides the size of a gradient, so what clipping and momentum do shows under SGD alone.
SGD: Final = Hyper(optimizer="SGD", lr=0.1, momentum=0.9, weight_decay=0.1)


def block_engine(run: Run, *, hyper: Hyper | None = None, **config: Any) -> Any:
    """An engine whose model trains one block and was frozen elsewhere before the engine was made."""
    model = run.model()
    freeze_except(model, run.part("block"))
    # ZeRO takes SGD only when told that this is meant.
    return run.engine(model, hyper=hyper, zero_allow_untested_optimizer=True, **config)


def engine_given(run: Run, model: torch.nn.Module, parameters: list[Any]) -> Any:
    """An engine that is given these parameters, or groups of them, and not simply all."""
    import deepspeed  # noqa: PLC0415  # pytest imports the cases, too, and has no need of it

    with run.watching():
        engine, *_ = deepspeed.initialize(model=model, model_parameters=parameters, config=run.config())
    return engine


def head_apart(run: Run, model: torch.nn.Module, **of_the_head: float) -> list[dict[str, Any]]:
    """Two optimizer groups, the second with the head and settings of its own."""
    groups: list[dict[str, Any]] = [{"params": []}, {"params": [], **of_the_head}]
    for name, one in model.named_parameters():
        groups[matches(name, run.part("head"))]["params"].append(one)
    return groups


def trained(run: Run, module: torch.nn.Module) -> torch.nn.Parameter:
    """The trained parameter to plant a fault in."""
    return module.get_parameter(TRAINED[run.options.model])


def frozen(run: Run, module: torch.nn.Module) -> torch.nn.Parameter:
    """The frozen parameter to plant a fault in."""
    return module.get_parameter(FROZEN[run.options.model])
