"""All that is done to Axolotl from outside so that it runs on these ranks: one place.

Importing it imports Axolotl.  None of this touches what decides who trains.  Read in 0.19.0.

- It has accelerate set up the ranks, and on CPU accelerate finds no backend, so that each rank would count as the only
  one; a world of one asks DeepSpeed for nccl outright (``setup_deepspeed_env`` in axolotl/utils/trainer.py).  Here the
  group exists already, and accelerate's state is made for it first; ``use_configured_state`` in the YAML keeps it.
- It asks the driver of the GPUs whether they reach each other (``prepare_optim_env``, the same file), which fails
  where there is none.
- It destroys the process group when it is done (``cleanup_distributed`` at the end of ``train``); ranks are compared
  after that.
- It writes the prepared data set by processes of its own (``save_to_disk`` with a number of them), which import all
  of this again, for a handful of rows.
- It keeps a copy of the data set in the user's cache, under a key that is new in every run.

Nor does it end at once where its telemetry is on and reaches nobody: at exit that waits until each event was tried four
times (``shutdown`` in axolotl/telemetry/manager.py; ``flush`` and ``request`` of posthog 6.7.11), up to minutes.  With
telemetry off it ends by itself; what it leaves running all the same is told in a note.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING
from unittest import mock

import axolotl.cli.train
import axolotl.train
import axolotl.utils.trainer
import datasets
from axolotl.telemetry.manager import TelemetryManager

from harness.cell._case import JudgeFailed

if TYPE_CHECKING:
    from pathlib import Path

    from harness.cell._run import Run

__all__ = ["settings_for", "train_as_the_command_does"]


def settings_for(run: Run) -> dict[str, object]:
    """What stands in the YAML for these ranks' sake."""
    if run.device != "cpu":
        return {}
    return {"accelerator_config": {"use_configured_state": True}}


def train_as_the_command_does(run: Run, config: Path) -> None:
    """What each rank of ``axolotl train config.yml`` does."""
    if TelemetryManager.get_instance().enabled:
        raise JudgeFailed("Axolotl's telemetry is on, though AXOLOTL_DO_NOT_TRACK is set before anything is imported")
    with _steered(run):
        axolotl.cli.train.do_cli(config=str(config))
    for one in threading.enumerate():
        if not one.daemon and one is not threading.main_thread():
            run.note(f"Axolotl left a thread running that would keep the process from ending: {one.name}")


@contextlib.contextmanager
def _steered(run: Run) -> Iterator[None]:
    interrupted = signal.getsignal(signal.SIGINT)
    streams = sys.stdout, sys.stderr
    save = datasets.Dataset.save_to_disk
    with contextlib.ExitStack() as stack:
        # It leaves a dozen variables behind, accelerate's among them.
        stack.enter_context(mock.patch.dict(os.environ))
        stack.enter_context(mock.patch.object(sys, "argv", ["axolotl"]))
        stack.enter_context(mock.patch.object(axolotl.train, "cleanup_distributed", _nothing))
        stack.enter_context(mock.patch.object(datasets.config, "HF_DATASETS_CACHE", run.folder / "datasets"))
        alone = functools.partialmethod(_save_alone, save)
        stack.enter_context(mock.patch.object(datasets.Dataset, "save_to_disk", alone))
        if run.device == "cpu":
            from harness.drivers._on_cpu import deepspeed_on_cpu

            deepspeed_on_cpu()
            stack.enter_context(
                mock.patch.object(axolotl.utils.trainer, "check_cuda_p2p_ib_support", return_value=True)
            )
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, interrupted)
            sys.stdout, sys.stderr = streams  # it copies them into a file


def _nothing() -> None: ...


def _save_alone(dataset: object, save: object, *args: object, num_proc: object = None, **kwargs: object) -> None:
    del num_proc
    save(dataset, *args, **kwargs)  # type: ignore[operator]  # the real method
