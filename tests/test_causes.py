"""matrix/causes.toml: what is wrong with it, and which entries a cause explains."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from packaging.version import Version

from harness.cell import Case, Options, Verdict, case
from harness.cell.outcome._expect import Expectation
from harness.cell.outcome._observed import Outcome
from harness.cell.outcome._record import Failure
from harness.control.expect import read_causes, unexplained
from harness.control.expect._causes import explaining
from harness.control.expect._notes import annotated, is_by_people
from harness.control.expect._points import Point
from harness.control.expect._shrink import Draft
from harness.control.expect._tree import Box

ROOT: Final = Path(__file__).resolve().parents[1]
STAGE_0: Final = Options(model="mlp", stage=0)
CAUSE: Final = """\
[[cause]]
verdict = "RAISES"
where = {stage = 0}
versions = {deepspeed = "<0.13.1"}
message = "unsupported grad type"
note = "CPU ranks only"
refs = ["a/b#1"]
"""


def read(tmp_path: Path, text: str) -> tuple[list[Expectation], list[str]]:
    (tmp_path / "causes.toml").write_text(text, encoding="utf-8")
    return read_causes(tmp_path / "causes.toml")


def draft(message: str = "an unsupported grad type: x", release: str = "0.12.0", options: Options = STAGE_0) -> Draft:
    failure = Failure("backward", "AssertionError", message)
    outcome = Outcome("some", Verdict.RAISES, (options,), 2, failure=failure)
    point = Point("a-stack", {"deepspeed": Version(release)}, outcome)
    entry = Expectation(Verdict.RAISES, "some", moment="backward", type="AssertionError", message=f"^{message}")
    return Draft(entry, Box(()), (options,), (point,))


def test_the_shipped_causes_have_no_fault_and_each_explains_an_entry() -> None:
    causes, faults = read_causes(ROOT / "matrix" / "causes.toml")

    assert faults == []
    texts = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "matrix" / "expected").glob("*.toml"))
    assert [one.note for one in causes if one.note not in texts] == []


@pytest.mark.parametrize(
    ("change", "explains"),
    [
        ({}, True),
        ({"message": "something else"}, False),
        ({"release": "0.13.1"}, False),
        ({"options": Options(model="mlp", stage=1)}, False),
    ],
)
def test_a_cause_explains_what_it_holds_for(tmp_path: Path, change: Mapping[str, object], *, explains: bool) -> None:
    causes, _ = read(tmp_path, CAUSE)

    assert bool(explaining(draft(**change), causes)) == explains  # type: ignore[arg-type]


def test_a_cause_of_one_case_or_one_exception_explains_no_other(tmp_path: Path) -> None:
    for line in ('case = "other"', 'type = "KeyError"', 'moment = "forward"'):
        causes, faults = read(tmp_path, f"{CAUSE}{line}\n")
        assert (faults, explaining(draft(), causes)) == ([], [])
    causes, _ = read(tmp_path, f'{CAUSE}case = "some"\ntype = "AssertionError"\n')
    assert len(explaining(draft(), causes)) == 1


def test_an_entry_says_its_causes_and_forgets_those_that_hold_no_more(tmp_path: Path) -> None:
    causes, _ = read(tmp_path, CAUSE)
    first, _ = annotated(draft(), ("cpu", 2), [], causes)
    assert first.note == "measured on 2 gloo ranks; CPU ranks only"
    assert first.refs == ("a/b#1",)
    assert not is_by_people(first, causes)
    assert is_by_people(first), "without the file, somebody must have written it"

    again, _ = annotated(draft(), ("cpu", 2), [first], causes)
    assert again == first
    by_people = Expectation(
        **{**vars(first), "note": "measured on 2 gloo ranks; CPU ranks only; seen by me", "refs": ("a/b#1", "c/d#2")}
    )
    kept, _ = annotated(draft(message="another"), ("cpu", 2), [by_people], causes)
    assert kept.note == "measured on 2 gloo ranks; seen by me"
    assert kept.refs == ("c/d#2",)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[[cause]\n", "is not valid TOML"),
        ('[cause]\nverdict = "RAISES"\n', "causes are [[cause]], with two brackets each"),
        ('[[clause]]\nverdict = "RAISES"\n', "unknown table 'clause'; causes are [[cause]]"),
        (CAUSE.replace("RAISES", "RAISE"), ":2: cause[1].verdict: verdict 'RAISE' is not one of"),
        (CAUSE.replace('note = "CPU ranks only"\n', ""), "a cause needs a note: what is it?"),
        (CAUSE.replace("stage", "stages"), "'stages' is no setting of a variant; did you mean"),
        (CAUSE.replace("<0.13.1", "0.13.1 or so"), "is no version range"),
        (CAUSE.replace("message", "massage"), "unknown key 'massage'; did you mean"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, fault: str) -> None:
    causes, faults = read(tmp_path, text)

    assert causes == []
    assert any(fault in one and "causes.toml" in one for one in faults), faults


def test_all_faults_at_once_and_no_file_is_none(tmp_path: Path) -> None:
    _, faults = read(tmp_path, CAUSE.replace("RAISES", "RAISE") + CAUSE.replace("stage", "stages"))
    assert len(faults) == 2
    assert read_causes(tmp_path / "nowhere.toml") == ([], [])


def test_controls_that_do_not_train_somewhere_and_do_not_say_why() -> None:
    def control(kind: str, name: str) -> Case:
        def some(run: object) -> None:
            """Nothing."""

        some.__name__ = name
        return case(kind=kind, variants=[STAGE_0])(some)

    cases = [control("CONTROL", "silent"), control("CONTROL", "told"), control("P", "fault")]
    ours = "measured on 2 gloo ranks"
    entries = [
        Expectation(Verdict.WRONG_UPDATE, "silent", note=ours),
        Expectation(Verdict.NOT_RUN, "silent", note=ours),
        Expectation(Verdict.WRONG_UPDATE, "told", note=f"{ours}; for a reason"),
        Expectation(Verdict.WRONG_UPDATE, "fault", note=ours),
    ]

    (told,) = unexplained(entries, cases)
    assert told.startswith("no cause is said where controls do not train, in 1 of their entries: silent; ")
