"""When a job of ranks on any number of machines is over, and how: told from what keepers say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.cell.ranks import _limits

__all__ = ["State", "Watch"]


@dataclass
class State:
    """What the keeper of one rank last said of it.  Sent as a mapping of these fields."""

    #: which job it speaks of, and how often it has spoken
    job: int = 0
    beat: int = 0
    moment: str = "start"
    ticks: int = 0
    #: it has imported the libraries and is in the group
    joined: bool = False
    #: kind of its outcome once it has reported
    kind: str = ""
    #: it ended without reporting
    dead: bool = False
    #: the launcher told the keeper to end
    stopped: bool = False
    #: why the rank could not be started
    cannot: str = ""


@dataclass
class Watch:
    """Sees states, decides.  Times are the caller's: clocks of machines differ.

    The rules are those of the supervisor that forks ranks itself, with three additions: a
    keeper may be gone, the launcher may end the job, and ranks start at different times.
    """

    job: int
    world: int
    deadline: float
    now: float
    #: the deadline until all have joined, where it is longer
    start_deadline: float = 0.0
    states: list[State] = field(init=False)
    #: when each rank reported
    reported: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.states = [State() for _ in range(self.world)]
        self._heard = [self.now] * self.world
        self._beats = [0] * self.world
        self._progress = self.now
        self._refused: float | None = None
        self._raised: float | None = None
        self._stopped: float | None = None

    def see(self, states: Sequence[State], now: float) -> None:
        """Take in the newest state of every rank."""
        for rank, state in enumerate(states):
            if state.beat != self._beats[rank]:
                self._beats[rank], self._heard[rank] = state.beat, now
            if state.stopped and self._stopped is None:
                self._stopped = now
            if state.job != self.job:
                continue
            before = self.states[rank]
            if (state.ticks, state.kind) != (before.ticks, before.kind):
                self._progress = now
            if state.cannot and self._refused is None:
                self._refused = now
            if state.kind and rank not in self.reported:
                self.reported[rank] = now
                if state.kind != "done" and self._raised is None:
                    self._raised = now
            self.states[rank] = state

    def gone(self, now: float) -> list[int]:
        """Ranks whose keepers are not heard of any more."""
        limit = _limits.GONE if self._stopped is None else _limits.STOPPING_GONE
        return [rank for rank, heard in enumerate(self._heard) if now - heard > limit]

    @property
    def reason(self) -> str:
        """Why the job could not start; with the ranks, unless it is the same everywhere."""
        reasons = [state.cannot for state in self.states]
        if len(set(reasons)) == 1:
            return reasons[0]
        return "; ".join(f"rank {rank}: {text}" for rank, text in enumerate(reasons) if text)

    def over(self, now: float) -> str:
        """How the job ended; empty while it goes on."""
        if self._refused is not None:
            # The others, which may have a reason of their own, are about as far.
            late = now >= self._refused + _limits.PEER_GRACE
            return "not_started" if late or all(state.cannot for state in self.states) else ""
        if len(self.reported) == self.world:
            return "reported" if self._raised is None else "raised"
        lost = any(state.dead for state in self.states) or set(self.gone(now)) - set(self.reported)
        if self._stopped is not None:
            # A launcher that lost a rank ends the others, too: first see whether it did.
            how = "died" if lost else "cancelled"
            return how if now >= self._stopped + _limits.STOPPING else ""
        return "died" if lost else self._overdue(now)

    def _overdue(self, now: float) -> str:
        if self._raised is not None:
            return "raised" if now >= self._raised + _limits.PEER_GRACE else ""
        joined = all(state.joined or state.kind for state in self.states)
        allowed = self.deadline if joined else max(self.deadline, self.start_deadline)
        return "hang" if now >= self._progress + allowed else ""
