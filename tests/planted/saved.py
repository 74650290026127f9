"""What comes back from a file that DeepSpeed wrote, and someone else spoilt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
import torch.distributed as dist

from harness.cell import Options, case
from planted.scene import FEW, FROZEN, TRAINED, block_engine

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.cell._run import Run

State = dict[str, torch.Tensor]


def save_and_read(run: Run, spoil: Callable[[State], object] | None = None, *, trained_only: bool = False) -> Any:
    """Train, save, let one rank spoil the file, read it back."""
    engine = block_engine(run, zero_optimization={"stage3_gather_16bit_weights_on_model_save": True})
    run.train(engine, intent=run.part("block"), steps=1)
    engine.save_16bit_model(str(run.folder), "model.bin", exclude_frozen_parameters=trained_only)
    path = run.folder / "model.bin"
    if spoil is not None and run.rank == 0:
        state = torch.load(path)
        spoil(state)
        torch.save(state, path)
    dist.barrier()
    run.saved(torch.load(path))
    return engine


@case(kind="CONTROL", variants=FEW)
def whole(run: Run) -> None:
    """Nothing is lost."""
    save_and_read(run)


@case(kind="CONTROL", variants=[Options(stage=3)])
def trained_on_afterwards(run: Run) -> None:
    """Nothing is lost, and training goes on after the file was written."""
    engine = save_and_read(run)
    run.train(engine, intent=run.part("block"), steps=1)


@case(kind="CONTROL", variants=FEW)
def tensor_dropped(run: Run) -> None:
    """A trained tensor is missing."""
    save_and_read(run, lambda state: state.pop(TRAINED[run.options.model]))


@case(kind="CONTROL", variants=FEW)
def renamed(run: Run) -> None:
    """A trained tensor comes back under the name that a wrapper around the model would give it."""
    name = TRAINED[run.options.model]
    save_and_read(run, lambda state: state.update({f"module.{name}": state.pop(name)}))


TIED: Final = (Options(model="tied_llama", stage=2), Options(model="tied_llama", init="zero_init"))


@case(kind="CONTROL", variants=TIED)
def both_names(run: Run) -> None:
    """A tied weight comes back under both its names."""
    save_and_read(run)


@case(kind="CONTROL", variants=TIED)
def other_name_dropped(run: Run) -> None:
    """A tied weight comes back under the first of its names only, and a strict load would miss the other."""
    save_and_read(run, lambda state: state.pop("lm_head.weight"))


@case(kind="CONTROL", variants=FEW)
def shape_changed(run: Run) -> None:
    """A trained tensor comes back flat."""
    name = TRAINED[run.options.model]
    save_and_read(run, lambda state: state.update({name: state[name].flatten()}))


@case(kind="CONTROL", variants=FEW)
def dtype_changed(run: Run) -> None:
    """A frozen tensor comes back in another precision."""
    name = FROZEN[run.options.model]
    save_and_read(run, lambda state: state.update({name: state[name].half()}))


@case(kind="CONTROL", variants=FEW)
def value_changed(run: Run) -> None:
    """One value of a trained tensor comes back one unit in the last place off."""

    def spoil(state: State) -> None:
        weights = state[TRAINED[run.options.model]].view(-1)
        weights[7] = torch.nextafter(weights[7], torch.tensor(float("inf"), dtype=weights.dtype))

    save_and_read(run, spoil)


@case(kind="CONTROL", variants=FEW)
def frozen_left_out(run: Run) -> None:
    """DeepSpeed itself leaves the frozen weights out, when asked to."""
    save_and_read(run, trained_only=True)
