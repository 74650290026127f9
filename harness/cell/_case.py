"""The case decorator: a function over ``run`` plus what a reader must know about it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from harness.cell._kinds import KINDS
from harness.cell._options import Options, grid

if TYPE_CHECKING:
    from harness.cell._run import Run

__all__ = ["Case", "Fix", "JudgeFailed", "LibraryMissing", "MalformedCase", "NoEngine", "case"]


class MalformedCase(Exception):
    """A case, or what it asked of ``run``, makes no sense.  Carries every fault found."""

    def __init__(self, who: str, *faults: str) -> None:
        super().__init__(who, *faults)
        self.who = who
        self.faults = faults

    def __str__(self) -> str:
        return f"{self.who}: " + "; ".join(self.faults)


class JudgeFailed(Exception):
    """The harness could not observe or judge a run: NOT_RUN, no finding about what is under test."""


class LibraryMissing(Exception):
    """What a case needs is not here, or is installed and cannot be imported: NOT_RUN, no finding."""


class NoEngine(Exception):
    """A library got as far as training and never made the DeepSpeed engine that it was asked for: RAISES."""


@dataclass(frozen=True)
class Fix:
    """What is documented upstream: the release from which a case does something else.

    :ivar package: which project's release.
    :ivar release: the first that has the change.
    :ivar ref: where that is documented, ``owner/repo#number``.
    :ivar because: why verdicts do not change there, where they do not.
    """

    package: str
    release: str
    ref: str
    because: str = ""


@dataclass(frozen=True)
class Case:
    """One recipe at one moment, and its variants.  Made by :func:`case`."""

    function: Callable[[Run], None]
    kind: str
    recipe: str
    moment: str
    happens: str
    instead: str
    cure: str = ""
    refs: tuple[str, ...] = ()
    fixes: tuple[Fix, ...] = ()
    world: int = 2
    deadline: float | None = None
    variants: tuple[Options, ...] = field(default=())
    needs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def module(self) -> str:
        return self.function.__module__

    @property
    def path(self) -> str:
        return inspect.getfile(self.function)

    @property
    def line(self) -> int:
        return self.function.__code__.co_firstlineno

    @cached_property
    def code(self) -> str:
        """A digest of what it does: what was measured by another is no measurement of it."""
        from harness.cell._code import digest_of

        return digest_of(self)

    @property
    def summary(self) -> str:
        return self._story[0].replace("\n", " ")

    @property
    def why(self) -> str:
        """What the docstring says after its first paragraph: the cause, and where it was read."""
        return "\n\n".join(self._story[1:])

    @property
    def _story(self) -> list[str]:
        return (inspect.getdoc(self.function) or "").split("\n\n")

    def variant(self, **changes: Any) -> Options:
        """The first variant that has all of ``changes``.  Raises :exc:`MalformedCase`."""
        for options in self.variants:
            if all(getattr(options, key, None) == value for key, value in changes.items()):
                return options
        asked = ", ".join(f"{key}={value}" for key, value in changes.items())
        there = ", ".join(options.id for options in self.variants)
        raise MalformedCase(f"case {self.name}", f"no variant has {asked}; there is: {there}")

    def choose(self, **asked: Any) -> Options:
        """The variant to run when some settings were asked for: where no stage was, the highest
        that has the others, since most faults show there.  Raises :exc:`MalformedCase`."""
        if "stage" not in asked:
            fitting = [one for one in self.variants if all(getattr(one, key) == asked[key] for key in asked)]
            asked["stage"] = max((one.stage for one in fitting), default=3)
        return self.variant(**asked)


def case(
    *,
    kind: str,
    recipe: str = "",
    moment: str = "",
    happens: str = "",
    instead: str = "",
    cure: str = "",
    refs: Sequence[str] = (),
    fixes: Sequence[Fix] = (),
    world: int = 2,
    deadline: float | None = None,
    models: Sequence[str] = ("tiny_llama", "mlp"),
    stages: Sequence[int] = (0, 1, 2, 3),
    variants: Sequence[Options] | None = None,
    needs: Sequence[str] = (),
) -> Callable[[Callable[[Run], None]], Case]:
    """Declare a case.

    Its docstring is its story: what it does in the first paragraph, then why what happens happens,
    with the source file and the release that this was read in.

    :param kind: fault class ``A`` to ``Q`` of the catalogue, or ``CONTROL``.
    :param recipe: how ``requires_grad`` is set, in a few words; the row label of the table.
    :param moment: when it is set; the other half of the row label.
    :param happens: one plain sentence: what a user sees.
    :param instead: one plain sentence: what to do instead.
    :param cure: name of the case that does so, and trains.
    :param refs: public reports, ``owner/repo#number``.
    :param fixes: changes that are documented upstream; what was measured is held against them.
    :param world: number of ranks.
    :param deadline: seconds without progress that make a HANG, where the default is too long.
    :param models: names of the models it runs on; with ``stages`` gives the usual grid.
    :param variants: the exact variants, instead of the grid.
    :param needs: import names beyond torch and DeepSpeed; missing ones give NOT_RUN.
    :raises MalformedCase: with every fault of the declaration at once.
    """

    def declare(function: Callable[[Run], None]) -> Case:
        made = tuple(variants) if variants is not None else tuple(grid(models, stages))
        faults = []
        if kind not in KINDS:
            faults.append(f"kind {kind!r} is not one of {', '.join(KINDS)}")
        if not isinstance(world, int) or world < 1:
            faults.append(f"world must be a positive number of ranks, found {world!r}")
        if deadline is not None and not deadline > 0:
            faults.append(f"deadline must be positive seconds, found {deadline!r}")
        if not made:
            faults.append("it has no variant: give models and stages, or variants")
        faults += dict.fromkeys(fault for options in made for fault in options.faults())
        ids = [options.id for options in made]
        twice = sorted({one for one in ids if ids.count(one) > 1})
        if twice:
            faults.append(f"variants given twice: {', '.join(twice)}")
        if len(inspect.signature(function).parameters) != 1:
            faults.append("the function takes exactly one argument, the run")
        if faults:
            raise MalformedCase(f"case {function.__name__} in {function.__module__}", *faults)
        return Case(
            function=function,
            kind=kind,
            recipe=recipe or function.__name__.replace("_", " "),
            moment=moment,
            happens=happens,
            instead=instead,
            cure=cure,
            refs=(refs,) if isinstance(refs, str) else tuple(refs),
            fixes=tuple(fixes),
            world=world,
            deadline=deadline,
            variants=made,
            needs=(needs,) if isinstance(needs, str) else tuple(needs),
        )

    return declare
