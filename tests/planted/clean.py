"""Nothing planted: what stands beside every fault and must give TRAINS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from harness.cell import Group, Hyper, Options, case, freeze_except
from harness.cell.oracle._twin import Twin
from planted.scene import COMPOSED, EVERYWHERE, FEW, SGD, block_engine, engine_given, head_apart

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.cell._run import Run

#: For numbers of ranks other than two: partitions of other sizes, with padding.
WORLDS = (
    Options(stage=0, model="mlp"),
    Options(stage=2),
    Options(stage=3, init="zero_init"),
    Options(stage=3, precision="bf16", persistence="default", model="mlp"),
)

_STAGE_0_BF16 = Options(stage=0, precision="bf16")


@case(kind="CONTROL", variants=[*EVERYWHERE, *(one for one in FEW if one not in EVERYWHERE), *COMPOSED])
def adamw(run: Run) -> None:
    """AdamW, exclusion freezing before the engine."""
    run.train(block_engine(run), intent=run.part("block"), steps=3)


@case(kind="CONTROL", variants=[Options(stage=1), *COMPOSED])
def sgd(run: Run) -> None:
    """SGD with momentum."""
    run.train(block_engine(run, hyper=SGD), intent=run.part("block"), steps=3)


@case(kind="CONTROL", variants=FEW)
def two_groups(run: Run) -> None:
    """Two optimizer groups with equal settings."""
    model = run.model()
    parts = run.part("block") + run.part("head")
    freeze_except(model, parts)
    run.train(engine_given(run, model, head_apart(run, model)), intent=parts)


@case(kind="CONTROL", variants=FEW)
def groups_of_their_own(run: Run) -> None:
    """Two optimizer groups whose rate and decay differ, under a schedule."""
    model = run.model()
    freeze_except(model, run.part("block") + run.part("head"))
    head = Group(run.part("head"), lr=3e-3, weight_decay=0.0)
    engine = run.engine(model, hyper=Hyper(split=(head,), schedule=lambda step: 1 / (1 + step)))
    run.train(engine, intent=run.part("block") + run.part("head"), steps=3)


@case(
    kind="CONTROL",
    variants=[
        Options(stage=0, checkpointing="reentrant"),
        Options(stage=3, init="zero_init", checkpointing="non_reentrant"),
        Options(stage=3, model="mlp", checkpointing="non_reentrant", offload="cpu", accumulation=2),
        Options(stage=1, model="mlp", precision="bf16", offload="cpu"),
        Options(stage=2, offload="cpu", clipping=0.01),
    ],
)
def checkpointed_or_offloaded(run: Run) -> None:
    """Settings that change how a gradient or a step comes about, and not which it is."""
    run.train(block_engine(run), intent=run.part("block"), steps=3)


@case(kind="CONTROL", variants=[Options(model="mlp", stage=3, precision=p) for p in ("fp32", "bf16")])
def small_steps(run: Run) -> None:
    """Steps far below what a bf16 weight can show, so that only its fp32 master moves."""
    run.train(block_engine(run, hyper=Hyper(lr=1e-6)), intent=run.part("block"))


@case(kind="CONTROL", variants=[_STAGE_0_BF16])
def stage_0_bf16_sgd(run: Run) -> None:
    """SGD without decay takes no harm from the step that DeepSpeed takes when it makes the optimizer."""
    hyper = Hyper(optimizer="SGD", lr=0.1, momentum=0.9, weight_decay=0.0)
    run.train(block_engine(run, hyper=hyper), intent=run.part("block"))


@case(kind="CONTROL", variants=[_STAGE_0_BF16])
def stage_0_bf16_adamw(run: Run) -> None:
    """AdamW does: its first real step is corrected as if it were the second."""
    run.train(block_engine(run), intent=run.part("block"))


@case(kind="CONTROL", variants=[_STAGE_0_BF16])
def stage_0_bf16_adamw_with_that_step(run: Run) -> None:
    """The same with a twin that takes a step on zero gradients first, as DeepSpeed does."""
    update = Twin._update

    def update_after_zero(self: Twin, intent: frozenset[str], found: Mapping[str, torch.Tensor]) -> None:
        if self._optimizer is None:
            own, self.grads = self.grads, {name: torch.zeros_like(self.masters[name]) for name in intent}
            update(self, intent, {})
            self.grads = own
        update(self, intent, found)

    Twin._update = update_after_zero  # type: ignore[method-assign]
    run.train(block_engine(run), intent=run.part("block"))
