"""What is compared: ways to bring up ranks for one case."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Design", "DesignError", "Verdicts"]

#: Parameter name -> verdict.
Verdicts = dict[str, str]


class DesignError(Exception):
    """The case did not run to its end, or ended otherwise than it must: there is nothing to time."""

    def __init__(self, design: str, why: str) -> None:
        super().__init__(design, why)
        self.design = design
        self.why = why

    def __str__(self) -> str:
        return f"{self.design}: {self.why}"


class Design(Protocol):
    """One way to run the case on its ranks; what :meth:`run` takes is what is measured."""

    #: its name in the stored figures
    name: str
    #: its row in the table
    label: str

    def start(self) -> None:
        """What is done once for any number of cases."""

    def run(self) -> Verdicts:
        """Run the case once, from nothing to verdicts.  Raises :exc:`DesignError`."""

    def close(self) -> None:
        """End every process of the design; may follow a :meth:`start` that failed."""
