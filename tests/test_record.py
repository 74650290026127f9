"""The record of a case: the order of verdicts, and lines that give back what was written."""

from __future__ import annotations

import itertools
import json
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.cell import CaseRecord, Failure, ParameterVerdict, Verdict
from harness.cell.outcome._merge import _worst
from harness.cell.outcome._record import SCHEMA
from harness.cell.outcome._verdict import PRECEDENCE, headline

_VERDICTS = st.sampled_from(list(Verdict))
_TEXT = st.text(max_size=8)
_COUNT = st.integers(0, 5)
_FIGURE = st.none() | st.floats(0, 1e6)
_PLAIN = st.none() | st.booleans() | st.integers() | _TEXT

_PARAMETERS = st.builds(
    ParameterVerdict,
    name=_TEXT,
    verdict=_VERDICTS,
    intended=st.booleans(),
    flag=st.booleans(),
    local_shape=st.lists(_COUNT, max_size=2),
    full_shape=st.lists(_COUNT, max_size=2),
    group=st.none() | _COUNT,
    moment=_TEXT,
    expected=_TEXT,
    found=_TEXT,
    step=st.none() | _COUNT,
    grad_error=_FIGURE,
    update_error=_FIGURE,
    moved=_FIGURE,
    twin_moved=_FIGURE,
    rank=st.none() | _COUNT,
)

_RECORDS = st.builds(
    CaseRecord,
    case=_TEXT,
    kind=_TEXT,
    options=st.dictionaries(_TEXT, _PLAIN, max_size=2),
    id=_TEXT,
    verdict=_VERDICTS,
    headline=_TEXT,
    world=_COUNT,
    device=_TEXT,
    launcher=_TEXT,
    failure=st.none() | st.builds(Failure, _TEXT, _TEXT, _TEXT, st.lists(_COUNT, max_size=2)),
    parameters=st.lists(_PARAMETERS, max_size=3),
    notes=st.lists(_TEXT, max_size=2),
    stacks=st.dictionaries(_TEXT, _TEXT, max_size=2),
    seconds=st.dictionaries(_TEXT, st.floats(0, 1e3), max_size=2),
    versions=st.dictionaries(_TEXT, _TEXT, max_size=2),
    stack=_TEXT,
    harness=_TEXT,
    started=_TEXT,
    expected=st.none() | st.dictionaries(_TEXT, _PLAIN, min_size=1, max_size=2),
    as_expected=st.none() | st.booleans(),
)


def parameter(name: str, verdict: Verdict, step: int | None = None, *, intended: bool = True) -> ParameterVerdict:
    return ParameterVerdict(name, verdict, intended, intended, [2], [2], 0, step=step)


def record(verdict: Verdict, parameters: list[ParameterVerdict]) -> CaseRecord:
    return CaseRecord("case", "C", {}, "case[x]", verdict, "", 2, "cpu", "zygote", parameters=parameters)


# -- precedence --------------------------------------------------------------------------------


def test_the_order_of_verdicts_names_each_once() -> None:
    assert sorted(PRECEDENCE) == sorted(Verdict)


@pytest.mark.parametrize(("worse", "better"), list(itertools.pairwise(PRECEDENCE)))
def test_the_worse_verdict_is_the_headline(worse: Verdict, better: Verdict) -> None:
    assert headline([better, worse, better]) is worse


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["TRAINS", "FROZEN"], "TRAINS"),
        (["TRAINS", "NO_UPDATE", "FROZEN_DRIFT"], "NO_UPDATE"),
        (["WRONG_GRAD", "NO_UPDATE"], "NO_UPDATE"),
        (["NO_UPDATE", "NO_GRAD"], "NO_GRAD"),
        (["WRONG_UPDATE", "WRONG_GRAD"], "WRONG_GRAD"),
        (["FROZEN_DRIFT", "EXTRA_TRAINED"], "EXTRA_TRAINED"),
        (["SAVE_LOSS", "FROZEN_DRIFT"], "FROZEN_DRIFT"),
        (["SAVE_LOSS", "TRAINS"], "SAVE_LOSS"),
        (["RAISES", "NO_GRAD"], "RAISES"),
        (["CRASH", "HANG", "RAISES"], "CRASH"),
    ],
)
def test_the_documented_order_holds(verdicts: list[str], expected: str) -> None:
    assert headline(map(Verdict, verdicts)) is Verdict(expected)


def test_nothing_measured_is_not_run() -> None:
    assert headline([]) is Verdict.NOT_RUN


@settings(deadline=None)
@given(st.lists(_VERDICTS, min_size=1), st.lists(_VERDICTS, min_size=1), st.randoms())
def test_the_headline_depends_on_nothing_but_what_there_is(
    some: list[Verdict],
    more: list[Verdict],
    random: Random,
) -> None:
    shuffled = [*some, *more, *some]
    random.shuffle(shuffled)

    assert headline(some) in some
    assert headline(shuffled) is headline([*some, *more]) is headline([headline(some), headline(more)])
    assert PRECEDENCE.index(headline([*some, *more])) <= PRECEDENCE.index(headline(some))


# -- which parameter, which rank ---------------------------------------------------------------


def test_the_parameters_of_the_headline_come_first_fault_first() -> None:
    late, early, never, other = (
        parameter("late", Verdict.WRONG_GRAD, 2),
        parameter("early", Verdict.WRONG_GRAD, 1),
        parameter("unknown", Verdict.WRONG_GRAD),
        parameter("other", Verdict.TRAINS),
    )

    assert record(Verdict.WRONG_GRAD, [never, late, other, early]).worst() == [early, late, never]


@pytest.mark.parametrize(
    ("views", "expected"),
    [
        ([("TRAINS", None), ("TRAINS", None)], ("TRAINS", None, None)),
        ([("WRONG_GRAD", 1), ("WRONG_GRAD", 1)], ("WRONG_GRAD", 1, None)),
        ([("TRAINS", None), ("NO_UPDATE", 1)], ("NO_UPDATE", 1, 1)),
        ([("WRONG_GRAD", 2), ("WRONG_GRAD", 1), ("WRONG_GRAD", 2)], ("WRONG_GRAD", 1, 1)),
        ([("WRONG_UPDATE", 1), ("WRONG_GRAD", 3), ("TRAINS", None)], ("WRONG_GRAD", 3, 1)),
        ([("FROZEN_DRIFT", 0), ("FROZEN", None)], ("FROZEN_DRIFT", 0, 0)),
    ],
)
def test_of_the_ranks_the_one_that_saw_it_worst_or_first_speaks(
    views: list[tuple[str, int | None]], expected: tuple[str, int | None, int | None]
) -> None:
    seen = _worst([parameter("one", Verdict(verdict), step) for verdict, step in views])

    assert (str(seen.verdict), seen.step, seen.rank) == expected


# -- lines -------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(_RECORDS)
def test_a_line_gives_back_the_record(written: CaseRecord) -> None:
    line = json.dumps(written.as_dict())

    assert "\n" not in line
    assert CaseRecord.from_dict(json.loads(line)) == written


@settings(deadline=None)
@given(_PARAMETERS)
def test_a_parameter_takes_no_room_for_what_it_does_not_say(written: ParameterVerdict) -> None:
    plain = written.as_dict()

    assert None not in plain.values()
    assert "" not in [plain.get(key) for key in ("moment", "expected", "found")]
    assert ParameterVerdict.from_dict(plain) == written


@settings(max_examples=20, deadline=None)
@given(_RECORDS)
def test_a_field_of_a_later_version_is_passed_over(written: CaseRecord) -> None:
    plain = written.as_dict()
    plain["later"] = 1
    for one in plain.get("parameters", []):
        one["later"] = 1

    assert plain["schema"] == SCHEMA
    assert CaseRecord.from_dict(plain) == written


def test_a_record_says_its_verdicts_in_words() -> None:
    plain = record(Verdict.NO_GRAD, [parameter("one", Verdict.FROZEN, intended=False)]).as_dict()

    assert plain["verdict"] == "NO_GRAD"
    assert plain["parameters"] == [
        {
            "name": "one",
            "verdict": "FROZEN",
            "intended": False,
            "flag": False,
            "local_shape": [2],
            "full_shape": [2],
            "group": 0,
        }
    ]
    assert type(plain["verdict"]) is type(plain["parameters"][0]["verdict"]) is str
    assert "failure" not in plain
