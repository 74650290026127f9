"""Keep ranks busy: start the next cases while the answer to one is awaited."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from harness.cell.ranks._launch import Outcome, Request, ZygoteLauncher

__all__ = ["Ahead"]


#: So many jobs may stand still beside those that run; each holds some 100 MiB of private memory.
_STANDING = 8


class Ahead:
    """Answers requests in the order asked, running up to ``jobs`` of those that come next.

    A job whose ranks stand still takes no processor, so it does not count: a case that is going
    to be a HANG after its deadline lets the others run meanwhile.
    """

    def __init__(self, launcher: ZygoteLauncher, jobs: int) -> None:
        self._launcher = launcher
        self._jobs = jobs
        self._tickets: dict[str, str] = {}
        #: whether a case has run, and the zygote has imported what its ranks had to
        self._warm = False

    def result(self, key: str, request: Request, upcoming: Iterable[tuple[str, Request]] = ()) -> Outcome:
        """The outcome of ``request``; ``upcoming`` are the likely next ones, by key."""
        waiting = deque([(key, request), *upcoming])
        while True:
            while waiting and (key not in self._tickets or self._has_room()):
                next_key, next_request = waiting.popleft()
                if next_key not in self._tickets:
                    self._tickets[next_key] = self._launcher.submit(next_request)
            if self._launcher.done(self._tickets[key]):
                self._warm = True
                return self._launcher.result(self._tickets.pop(key))
            try:
                self._launcher.pump()
            except BaseException:
                self.cancel()
                raise

    def _has_room(self) -> bool:
        # The ranks of the first case import for seconds what the zygote then imports once for all others.
        if not self._warm and self._launcher.in_flight:
            return False
        return self._launcher.running < self._jobs and self._launcher.in_flight < self._jobs + _STANDING

    def cancel(self) -> None:
        """End everything under way."""
        for ticket in self._tickets.values():
            self._launcher.cancel(ticket)
        self._tickets.clear()
