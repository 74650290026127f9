"""What one pytest session shares: settings, launcher, expectations, results so far."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from harness.cell._case import Case
from harness.cell._options import Options
from harness.cell.outcome._expect import Expectation, ExpectationError, Expectations, default_folder, differences
from harness.cell.outcome._nearby import Nearby
from harness.cell.plug._reproduce import reproduce
from harness.cell.ranks._ahead import Ahead
from harness.cell.ranks._inprocess import InProcessLauncher
from harness.cell.ranks._launch import Outcome, Request, ZygoteLauncher, blank_record, run_on

__all__ = ["Session", "Settings"]


@dataclass(frozen=True)
class Settings:
    """What the options of the plugin say."""

    device: str = "cpu"
    stack: str = ""
    expected: Path | None = field(default_factory=default_folder)
    #: folder of observed stacks, read only where something differs
    observed: Path | None = None
    deadline: float | None = None
    world: int | None = None
    keep: bool = False
    show_logs: bool = False
    jobs: int = 2
    in_process: bool = False


class Session:
    """Made at configure time; imports and starts nothing until a case runs."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._expectations: Expectations | None = None
        self._nearby = Nearby(settings.observed)
        self._measured: dict[str, Outcome] = {}
        self._places: dict[str, str] = {}
        self._zygote: ZygoteLauncher | None = None
        self._ahead: Ahead | None = None
        self._in_process: InProcessLauncher | None = None

    @property
    def expectations(self) -> Expectations:
        """Raises ExpectationError."""
        if self._expectations is None:
            folder = self.settings.expected
            self._expectations = Expectations.load(folder) if folder else Expectations()
        return self._expectations

    def take_warnings(self) -> list[str]:
        """What the launcher has to say since it was asked last."""
        warnings = list(self._zygote.warnings) if self._zygote else []
        if self._zygote:
            self._zygote.warnings.clear()
        return warnings

    @property
    def error(self) -> BaseException | None:
        """What the last case raised in this process, where it ran in this process."""
        return self._in_process.error if self._in_process else None

    def request(self, case: Case, options: Options) -> Request:
        settings = self.settings
        world = 1 if settings.in_process else settings.world or case.world
        return Request(case, options, world, settings.device, settings.deadline, keep=settings.keep)

    def place_of(self, case: Case) -> str:
        """The file of the first case of that name: the case's own, or that of a namesake."""
        return self._places.setdefault(case.name, case.path)

    def expected(self, case: Case, options: Options) -> Expectation:
        """What a variant must do here.  Raises ExpectationError."""
        return self.expectations.of(blank_record(self.request(case, options), ""))

    def check(self, variants: Iterable[tuple[Case, Options]]) -> None:
        """Before any of them runs: is it clear what each must do?

        :raises ExpectationError: with every fault of all of them.
        """
        faults: list[str] = []
        if self.expectations.entries:
            for case, options in variants:
                try:
                    self.expected(case, options)
                except ExpectationError as error:
                    faults += error.faults
        if faults:
            raise ExpectationError(faults)

    def run(
        self, case: Case, options: Options, upcoming: Iterable[tuple[Case, Options]] = ()
    ) -> tuple[Outcome, list[str]]:
        """The outcome of one variant, and in words how it differs from what is expected.

        :raises ExpectationError: before it runs.
        :raises LauncherFailed: when the harness cannot run it.
        """
        expected = self.expected(case, options)
        request = self.request(case, options)
        if self.settings.in_process:
            self._in_process = self._in_process or InProcessLauncher(self.settings.device)
            outcome = run_on(self._in_process, request)
        else:
            if self._ahead is None:
                self._zygote = ZygoteLauncher(self.settings.device)
                self._ahead = Ahead(self._zygote, self.settings.jobs)
            coming = ((_key(*one), self.request(*one)) for one in upcoming)
            outcome = self._ahead.result(_key(case, options), request, coming)
        record = outcome.record
        record.stack = self.settings.stack
        found = differences(record, expected)
        record.expected = expected.as_dict()
        record.as_expected = not found
        self._measured[_key(case, options)] = outcome
        return outcome, found

    def measured(self, case: Case, options: Options) -> Outcome | None:
        """The latest outcome of a variant in this session, if there is one."""
        return self._measured.get(_key(case, options))

    def advice(self, case: Case, options: Options) -> list[str]:
        """Where to look for the cause of a difference that was found: near stacks, and how to see it again."""
        record = self._measured[_key(case, options)].record
        near = self._nearby.lines(record, self.expected(case, options))
        return [*near, f"reproduce: {reproduce(self.settings, case, options)}"]

    def cancel(self) -> None:
        """End what is under way, nobody waits for it any more."""
        if self._ahead is not None:
            self._ahead.cancel()

    def close(self) -> None:
        if self._zygote is not None:
            self._zygote.close()
        if self._in_process is not None:
            self._in_process.close()


def _key(case: Case, options: Options) -> str:
    return f"{case.path}::{case.name}[{options.id}]"
