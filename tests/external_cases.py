"""Cases for ranks that something else started, beside those of :mod:`rank_cases`."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from rank_cases import answer, sleep_for_ever, wait_for_others

from harness.cell import Options, case, freeze_except

if TYPE_CHECKING:
    from harness.cell._run import Run

_MLP = [Options(model="mlp", stage=3)]


@case(kind="CONTROL", variants=_MLP)
def trains_a_block(run: Run) -> None:
    model = run.model()
    freeze_except(model, run.part("block"))
    run.train(run.engine(model), intent=run.part("block"))


@case(kind="CONTROL", variants=_MLP)
def trains_a_part_that_is_not_there(run: Run) -> None:
    run.part("tail")


@case(kind="CONTROL", variants=_MLP, needs=["no_such_library"])
def needs_what_is_not_there(run: Run) -> None:
    trains_a_block.function(run)


@case(kind="CONTROL", variants=_MLP)
def shares_a_folder(run: Run) -> None:
    """Tells how many ranks' files this rank finds."""
    (run.folder / f"was-here-{run.rank}").touch()
    wait_for_others()
    answer(len(list(run.folder.glob("was-here-*"))))


def meet_again() -> int:
    """Form the group anew by the address in the environment, as code does that knows nothing of ours."""
    from torch import distributed  # only ranks have it

    distributed.destroy_process_group()
    distributed.init_process_group("gloo", init_method="env://")
    return int(distributed.get_world_size())


@case(kind="CONTROL", variants=_MLP)
def makes_a_group_of_its_own(_: Run) -> None:
    answer(meet_again())


@case(kind="CONTROL", variants=_MLP)
def loses_the_keeper_of_rank_0(run: Run) -> None:
    meet_again()
    wait_for_others()
    if run.rank == 0:
        os.kill(os.getppid(), signal.SIGKILL)
    sleep_for_ever()
