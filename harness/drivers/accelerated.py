"""The real ``accelerate.Accelerator`` with the real engine, as in accelerate's own examples.

Accelerator (before the model under ``zero.Init``), model, freezing, torch's optimizer over all parameters,
``prepare``, and a loop with ``accumulate`` and ``backward``; accelerate creates the engine inside ``prepare``,
and lets it step inside ``backward``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.cell._case import NoEngine

if TYPE_CHECKING:
    from harness.cell._run import Run
    from harness.drivers._script import Script

__all__ = ["train"]


def train(run: Run, script: Script) -> None:
    """Two lines more than a plain loop, and one object that stands in for the engine."""
    from torch.utils.data import DataLoader

    from harness.cell.oracle._observer import loss_of
    from harness.drivers._batches import batches_of_all_ranks, only
    from harness.drivers.pretrained import loader

    if script.hyper is not None:
        run.hyper = script.hyper
    # While an accelerator with a stage-3 JSON exists, transformers builds models under zero.Init.
    early = _accelerator(run) if run.options.init == "zero_init" else None
    model = run.model(wrap=script.wrap, load=loader(run))
    if script.freeze is not None:
        script.freeze(model)
    accelerator = early or _accelerator(run)
    optimizer = run.hyper.torch(dict(model.named_parameters()), empty=True)
    batches = batches_of_all_ranks(run, script.steps, script.batch)
    with run.watching():
        # accelerate hands each rank its share of the batches
        engine, optimizer, shares = accelerator.prepare(
            model,
            optimizer,
            DataLoader(batches, batch_size=1, collate_fn=only),  # type: ignore[arg-type]
        )
    if not run.has_engine:
        raise NoEngine("accelerate was to use DeepSpeed, has made no engine, and would train each rank by itself")
    if script.after_engine is not None:
        script.after_engine(model)
    run.intend(engine, script.intent)
    for batch in shares:
        with accelerator.accumulate(engine):
            accelerator.backward(loss_of(engine(**batch)))
            optimizer.step()
            optimizer.zero_grad()


def _accelerator(run: Run) -> Any:
    from accelerate import Accelerator, DeepSpeedPlugin

    from harness.drivers._on_cpu import deepspeed_on_cpu

    config = run.config()
    del config["optimizer"]  # the script makes its own, and accelerate wants one of them
    if run.device == "cpu":
        deepspeed_on_cpu()
    plugin = DeepSpeedPlugin(hf_ds_config=config, zero3_init_flag=run.options.init == "zero_init")
    return Accelerator(
        deepspeed_plugin=plugin,
        gradient_accumulation_steps=run.options.accumulation,
        mixed_precision="bf16" if run.options.precision == "bf16" else "no",
    )
