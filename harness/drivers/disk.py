"""What DeepSpeed writes to disk, read back as its users read it.

Everything here is called on all ranks alike.  Files lie in ``run.folder``, which is gone afterwards.
"""

from __future__ import annotations

import argparse
import contextlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cell._case import LibraryMissing

if TYPE_CHECKING:
    import torch

    from harness.cell._run import Run

__all__ = [
    "GATHER",
    "another_model",
    "file_of_16bit_model",
    "gathered_state",
    "resume",
    "save_checkpoint",
    "to_universal",
    "weights_in",
    "zero_to_fp32",
]

State = Mapping[str, "torch.Tensor"]

#: Merged into ``zero_optimization``: without it ``save_16bit_model`` writes nothing at stage 3.
GATHER = {"stage3_gather_16bit_weights_on_model_save": True}


def file_of_16bit_model(run: Run, engine: Any, **settings: Any) -> State:
    """What ``engine.save_16bit_model`` wrote; nothing where it wrote no file.

    :param settings: of that method.
    """
    import torch
    import torch.distributed as dist

    path = run.folder / "16bit" / "pytorch_model.bin"
    run.reach("saved")
    wrote = engine.save_16bit_model(str(path.parent), path.name, **settings)
    dist.barrier()
    if not path.exists():
        run.note(f"save_16bit_model wrote no file, and returned {wrote}")
        return {}
    state: State = torch.load(path, map_location="cpu")
    return state


def gathered_state(run: Run, engine: Any) -> State:
    """The model's whole state dict, as accelerate and the Trainer get it before they save; empty
    but on rank 0 at stage 3."""
    run.reach("saved")
    if run.options.stage == 3:
        return engine._zero3_consolidated_16bit_state_dict() or {}  # noqa: SLF001
    return engine.module.state_dict()  # type: ignore[no-any-return]


def weights_in(run: Run, folder: Path) -> State:
    """What a model's ``save_pretrained`` wrote into ``folder``; nothing where that is no weights."""
    import torch.distributed as dist
    from safetensors.torch import load_file

    dist.barrier()
    run.reach("reloaded")
    path = folder / "model.safetensors"
    if path.exists():
        state: State = load_file(path)
        return state
    run.note(f"no weights in {', '.join(sorted(one.name for one in folder.iterdir()))}")
    return {}


def save_checkpoint(run: Run, engine: Any, **settings: Any) -> None:
    """``engine.save_checkpoint`` into the folder that the others here read.

    :param settings: of that method.
    """
    run.reach("saved")
    engine.save_checkpoint(str(_folder(run)), **settings)


def another_model(run: Run, **settings: Any) -> Any:
    """As ``run.model`` and built anew, but with other weights everywhere: what is right in it
    after a checkpoint was loaded came from the checkpoint.

    :param settings: of ``run.model``.
    """
    import torch

    from harness.cell.oracle._engine_facts import is_partitioned

    model = run.model(**settings)
    with torch.no_grad():
        for one in model.parameters():
            held = one.ds_tensor if is_partitioned(one) else one
            held.copy_(0.01 - held)
    return model


def resume(run: Run, engine: Any, **settings: Any) -> None:
    """``engine.load_checkpoint`` from that folder; the engine must then have what was trained.

    :param settings: of that method.
    """
    run.reach("resumed")
    found, _ = engine.load_checkpoint(str(_folder(run)), **settings)
    assert found is not None, "DeepSpeed found no checkpoint to load"
    run.saved(run.weights())


def zero_to_fp32(run: Run, **settings: Any) -> State:
    """What ``zero_to_fp32.py`` makes of the checkpoint.

    :param settings: of the function behind it.
    """
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    run.reach("converted")
    with contextlib.redirect_stdout(io.StringIO()):
        state: State = get_fp32_state_dict_from_zero_checkpoint(str(_folder(run)), **settings)
    return state


def to_universal(run: Run, **settings: Any) -> None:
    """Convert the checkpoint with ``ds_to_universal.py``, into the same folder.

    Load it into an engine that was made with ``checkpoint={"load_universal": True}``.

    :param settings: of that script, in place of those that suit a model with no parallelism of its own.
    :raises LibraryMissing: where this DeepSpeed has no such converter, as those up to 0.12 have not.
    """
    import torch.distributed as dist

    try:
        from deepspeed.checkpoint import ds_to_universal
    except ImportError as error:
        raise LibraryMissing("this DeepSpeed has no ds_to_universal") from error
    run.reach("converted")
    folder = _folder(run)
    if run.rank == 0:
        step = folder / (folder / "latest").read_text()
        arguments = {
            "input_folder": str(step),
            "output_folder": f"{step}_universal",
            "num_extract_workers": 1,
            "num_merge_workers": 1,
            "keep_temp_folder": False,
            "strict": True,
            "inject_missing_state": True,
            **settings,
        }
        with contextlib.redirect_stdout(io.StringIO()):
            ds_to_universal.main(argparse.Namespace(**arguments))
    dist.barrier()


def _folder(run: Run) -> Path:
    return run.folder / "checkpoint"
