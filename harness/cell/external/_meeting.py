"""The meeting: ranks that something else started find each other, and learn of their surroundings."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.cell.external._board import Board
from harness.cell.external._keeper import Keeper
from harness.cell.external._place import Place, this_machine
from harness.cell.external._watch import State
from harness.cell.ranks import _limits
from harness.cell.ranks._launch import LauncherFailed
from harness.cell.ranks._stack import installed_versions
from harness.cell.ranks._wire import Message

__all__ = ["Meeting", "Refused", "meet"]


class Refused(Exception):
    """Some rank cannot take part, and says why; all ranks know."""


@dataclass(frozen=True)
class Meeting:
    """What every rank said when it came."""

    place: Place
    hellos: Sequence[Message]

    @property
    def spawned(self) -> bool:
        """Whether any rank is not forked, and so has yet to import the libraries."""
        return any(hello["spawned"] for hello in self.hellos)

    @property
    def local(self) -> tuple[int, int]:
        """Rank on this machine and number of ranks here, counted where the launcher does not say."""
        rank, world = self.place.local_rank, self.place.local_world
        mine = self.hellos[self.place.rank]["machine"]
        here = [number for number, hello in enumerate(self.hellos) if hello["machine"] == mine]
        return here.index(self.place.rank) if rank is None else rank, world or len(here)

    @property
    def folder(self) -> Path:
        """That of the lowest rank whose folder can be seen here: ranks of one machine share it."""
        folders = [Path(hello["folder"]) for hello in self.hellos]
        return next(folder for folder in folders if folder.is_dir())

    def odd_versions(self) -> list[str]:
        """What makes the environments of other ranks differ from that of this one."""
        mine = self.hellos[self.place.rank]["versions"]
        return [
            f"rank {rank} runs {package} {version}, rank {self.place.rank} {mine.get(package, 'none')}"
            for rank, hello in enumerate(self.hellos)
            for package, version in hello["versions"].items()
            if mine.get(package) != version
        ]


def meet(board: Board, place: Place, keeper: Keeper, scratch: Path, more: Mapping[str, str | bool]) -> Meeting:
    """Come, and wait for the others.

    :param more: ``fault``, why this rank cannot take part, and ``spawned``.
    :raises Refused: when any rank has a fault.
    :raises LauncherFailed: when ranks do not come, or one comes twice.
    """
    folder = scratch / uuid.uuid4().hex
    folder.mkdir()
    if board.count(f"seat/{place.rank}", 1) > 1:
        raise LauncherFailed(
            f"two processes say they are rank {place.rank} of {place.world}: each needs a RANK of its own"
        )
    hello = {"machine": this_machine(), "folder": str(folder), "versions": installed_versions(), **more}
    board.put(f"state/{place.rank}", vars(State()))
    board.publish(f"hello/{place.rank}", hello)
    board.count("here", 1)
    _wait_for_all(board, place, keeper)
    hellos = [board.get(f"hello/{rank}") for rank in range(place.world)]
    if faults := [f"rank {rank}: {one['fault']}" for rank, one in enumerate(hellos) if one["fault"]]:
        raise Refused("; ".join(faults))
    return Meeting(place, hellos)


def _wait_for_all(board: Board, place: Place, keeper: Keeper) -> None:
    world, began, told = place.world, time.monotonic(), False
    while (here := board.count("here")) < world:
        waited = time.monotonic() - began
        if waited > _limits.MEET:
            absent = [str(rank) for rank in range(world) if not board.count(f"hello/{rank}")]
            raise LauncherFailed(
                f"ranks {', '.join(absent)} of {world} did not come within {_limits.MEET:g} s: "
                "were all started, with the same WORLD_SIZE, MASTER_ADDR and MASTER_PORT?"
            )
        if waited > _limits.MEET_NOTICE and place.rank == 0 and not told:
            told = True
            print(f"thawcheck: {here} of {world} ranks are here, waiting for the others", file=sys.stderr)
        keeper.wait(_limits.LOOK)
        if keeper.state.stopped:
            raise LauncherFailed(f"told to end when {here} of {world} ranks had come")
