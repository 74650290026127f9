"""Cases that read a model's weights in two ways, inside the ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.cell import Options, case, freeze_except

if TYPE_CHECKING:
    from harness.cell._run import Run

WAYS = [
    Options(init=init, persistence=persistence, precision=precision)
    for init in ("plain", "zero_init")
    for persistence in ("zero", "default")
    for precision in ("fp32", "bf16")
]


@case(kind="CONTROL", variants=WAYS)
def partitions_are_what_deepspeed_gathers(run: Run) -> None:
    """Before, between and after steps."""
    import deepspeed
    import torch

    from harness.cell.oracle import _partitions

    def compare() -> None:
        parameters = {name: one for name, one in engine.module.named_parameters() if hasattr(one, "ds_id")}
        assert len(parameters) == 39
        mine = _partitions.gather(parameters)
        with deepspeed.zero.GatheredParameters(list(parameters.values())):
            for name, one in parameters.items():
                assert mine[name].shape == one.shape, name
                assert torch.equal(mine[name], one), name

    model = run.model()
    freeze_except(model, run.part("block"))
    engine = run.engine(model)
    compare()
    run.train(engine, intent=run.part("block"), steps=1)
    compare()
    run.train(engine, intent=run.part("block"), steps=1)
    compare()


@case(kind="CONTROL", variants=[Options(persistence="default")])
def reading_changes_no_state(run: Run) -> None:
    """Statuses before and after the weights are read."""
    model = run.model()
    engine = run.engine(model, zero_optimization={"stage3_param_persistence_threshold": 100})
    run.train(engine, intent="*", steps=1)

    def statuses() -> list[str]:
        return [one.ds_status.name for one in engine.module.parameters()]

    before = statuses()
    assert set(before) == {"AVAILABLE", "NOT_AVAILABLE"}, before
    run._observer.weights()  # what a step does
    assert statuses() == before
    run.train(engine, intent="*", steps=1)
