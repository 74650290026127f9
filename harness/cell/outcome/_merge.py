"""From what the ranks of one job reported to one record: the process-level verdicts."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.cell.outcome._record import CaseRecord, Failure, ParameterVerdict
from harness.cell.outcome._verdict import PRECEDENCE, Verdict, headline
from harness.cell.ranks._wire import Message

if TYPE_CHECKING:
    from harness.cell.ranks._launch import Outcome, Request

__all__ = ["fill"]


def fill(record: CaseRecord, done: Message, request: Request) -> Outcome:
    """Complete ``record`` from the supervisor's report ``done``."""
    from harness.cell.ranks._launch import Outcome

    ranks: list[Message] = done["ranks"]
    outcome = Outcome(record, [rank["log"] for rank in ranks])
    record.seconds = {"total": round(done.get("seconds", 0.0), 3)}
    record.stacks = {
        str(rank["rank"]): rank["stack"].strip() for rank in ranks if rank["stack"].strip() and _worth(rank)
    }
    if done.get("kept"):
        record.notes.append(f"the folder of the ranks is kept: {done['kept']}")
    dead = [rank for rank in ranks if rank["outcome"] is None and not _was_ended(rank)]
    if dead and done["how"] not in ("not_started", "cancelled"):
        _crash(record, dead)  # before all that other ranks say: nothing outweighs a death
    elif reason := _why_not_run(done, ranks):
        _not_run(record, reason)
        if malformed := _of_kind("malformed", ranks):
            outcome.malformed = malformed[0]["outcome"]["message"]
    elif done["how"] == "hang":
        _hang(record, ranks, request)
    elif raised := _of_kind("raised", ranks):
        _raises(record, raised, ranks)
    else:
        _measured(record, ranks)
    return outcome


def _why_not_run(done: Message, ranks: Sequence[Message]) -> str:
    """Why nothing was measured; empty where something was."""
    reasons = {
        "malformed": "malformed case: {0[message]}",
        "failed": "thawcheck itself failed to judge the run: {0[message]}",
        "missing": "{0[message]}",
        "full": "rank {1} found the disk full: {0[message]}",
    }
    for kind, text in reasons.items():
        if found := _of_kind(kind, ranks):
            return text.format(found[0]["outcome"], found[0]["rank"])
    if done["how"] == "not_started":
        return str(done["reason"])
    return "interrupted" if done["how"] == "cancelled" else ""


def _of_kind(kind: str, ranks: Sequence[Message]) -> list[Message]:
    return [rank for rank in ranks if (rank["outcome"] or {}).get("kind") == kind]


def _worth(rank: Message) -> bool:
    return rank["blocked"] or rank["signal"] is not None


def _was_ended(rank: Message) -> bool:
    """Killed by the supervisor, which asks for the stack first; not a death of its own."""
    return bool(rank["blocked"])


def _not_run(record: CaseRecord, reason: str) -> None:
    record.verdict = Verdict.NOT_RUN
    record.failure = Failure("start", "NotRun", reason)
    record.headline = f"not run: {reason}"


def _crash(record: CaseRecord, dead: Sequence[Message]) -> None:
    first = dead[0]
    name, text = _death(first)
    numbers = [rank["rank"] for rank in dead if _death(rank) == (name, text)]
    record.verdict = Verdict.CRASH
    record.failure = Failure(first["moment"], name, text, numbers)
    record.headline = f"{_ranks(numbers, record.world)} {text} on the way to {first['moment']!r}"
    for rank in dead:
        if rank["rank"] not in numbers:
            record.notes.append(f"rank {rank['rank']} {_death(rank)[1]} on the way to {rank['moment']!r}")


def _death(rank: Message) -> tuple[str, str]:
    """Name and description of how a rank ended that did not report."""
    if rank["signal"] is not None:
        name = _signal_name(rank["signal"])
        hint = " (the kernel's out-of-memory killer sends it, too)" if name == "SIGKILL" else ""
        return name, f"died by {name}{hint}"
    if rank["exit"] is not None:
        return "exit", f"left with status {rank['exit']} without reporting"
    # Started by something else, which alone may know more.
    return "gone", "vanished with its keeper (killed, or its machine is lost)"


def _signal_name(number: int) -> str:
    if signal.SIGRTMIN < number < signal.SIGRTMAX:  # of these only the first and the last have a name
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"
    return signal.Signals(number).name


def _hang(record: CaseRecord, ranks: Sequence[Message], request: Request) -> None:
    from harness.cell.ranks import _limits

    deadline = request.deadline or request.case.deadline or _limits.PROGRESS
    stuck = [rank for rank in ranks if rank["outcome"] is None]
    moments = ", ".join(f"rank {rank['rank']} at {rank['moment']!r}" for rank in ranks)
    record.verdict = Verdict.HANG
    record.failure = Failure(stuck[0]["moment"], "hang", moments, [rank["rank"] for rank in stuck])
    record.headline = f"no rank made progress for {deadline:g} s: {moments}"


def _raises(record: CaseRecord, raised: Sequence[Message], ranks: Sequence[Message]) -> None:
    first = min(raised, key=lambda rank: rank["outcome"]["at"])["outcome"]
    same = [rank["rank"] for rank in raised if rank["outcome"]["type"] == first["type"]]
    record.verdict = Verdict.RAISES
    record.failure = Failure(first["moment"], first["type"], first["message"], same)
    text = first["message"].strip().splitlines()
    shown = f"{first['type']}: {text[0]}" if text else first["type"]
    record.headline = f"{_ranks(same, record.world)} raised on the way to {first['moment']!r}: {shown}"
    for rank in ranks:
        other = rank["outcome"]
        if rank["rank"] not in same or other["message"] != first["message"]:
            state = "was blocked"
            if other is not None:
                state = f"raised {other['type']}: {other['message']}" if "type" in other else "had finished"
            record.notes.append(f"rank {rank['rank']} {state} at {rank['moment']!r}")


def _measured(record: CaseRecord, ranks: Sequence[Message]) -> None:
    reports = [rank["outcome"] for rank in ranks]
    record.notes += list(dict.fromkeys(note for report in reports for note in report["notes"]))
    record.seconds |= reports[0]["seconds"]
    views = [[ParameterVerdict.from_dict(one) for one in report["parameters"]] for report in reports]
    if len({tuple(one.name for one in view) for view in views}) > 1:
        _not_run(record, "the model has other parameters on one rank than on another at the end")
        return
    record.parameters = [_worst(list(same)) for same in zip(*views, strict=True)]
    record.verdict = headline(one.verdict for one in record.parameters)
    record.headline = _sentence(record)


def _worst(views: list[ParameterVerdict]) -> ParameterVerdict:
    """One parameter as the rank that saw it worst, or first; which rank, where they differ."""
    import dataclasses

    keys = [(PRECEDENCE.index(view.verdict), view.when) for view in views]
    place = keys.index(min(keys))
    differ = len(set(keys)) > 1
    return dataclasses.replace(views[place], rank=place) if differ else views[place]


def _sentence(record: CaseRecord) -> str:
    trained = [one for one in record.parameters if one.intended]
    if record.verdict is Verdict.TRAINS:
        rest = len(record.parameters) - len(trained)
        return f"{len(trained)} parameters equal the twin's after every step, {rest} others are bit-equal"
    worst = record.worst()
    first = worst[0]
    of = f" of {len(trained)} meant to train" if first.intended else ""
    more = f" and {len(worst) - 1} more" if len(worst) > 1 else ""
    where = f" (rank {first.rank})" if first.rank is not None else ""
    return (
        f"{len(worst)}{of}, {first.name}{more}: at {first.moment}{where} expected {first.expected}; found {first.found}"
    )


def _ranks(numbers: Sequence[int], world: int) -> str:
    if len(numbers) == world > 1:
        return f"all {world} ranks"
    return ("rank " if len(numbers) == 1 else "ranks ") + ", ".join(map(str, numbers))
