"""The freeze table: as text in 80 columns, and as Markdown for an issue."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from harness.cell import CaseRecord, Verdict
from harness.cell.outcome._table import Label, Row, as_markdown, as_text, rows_of


def record(case: str, stage: int, verdict: Verdict = Verdict.TRAINS, *, as_expected: bool = True) -> CaseRecord:
    return CaseRecord(
        case=case,
        kind="C",
        options={"stage": stage},
        id=f"{case}[{stage}]",
        verdict=verdict,
        headline="",
        world=2,
        device="cpu",
        launcher="zygote",
        as_expected=as_expected,
    )


def row(*records: CaseRecord, **label: Any) -> Row:
    (made,) = rows_of(records, {records[0].case: Label(**{"recipe": "a recipe", **label})})
    return made


def of_each_stage(*verdicts: Verdict) -> list[CaseRecord]:
    return [record("one", stage, verdict, as_expected=False) for stage, verdict in enumerate(verdicts)]


# -- rows and cells --------------------------------------------------------------------------


def test_rows_stand_in_the_order_of_files_and_lines() -> None:
    labels = {
        "late": Label("late", path="a.py", line=90),
        "early": Label("early", path="a.py", line=9),
        "other": Label("other", path="b.py", line=1),
    }
    rows = rows_of([record(name, 0) for name in ("other", "late", "early", "late")], labels)
    assert [one.label.recipe for one in rows] == ["early", "late", "other"]


def test_a_case_that_nobody_described_goes_by_its_name() -> None:
    (made,) = rows_of([record("lonely", 0)], {})
    assert made.label.text == "lonely"


def test_a_cell_counts_verdicts_where_variants_differ_and_marks_surprises() -> None:
    made = row(
        record("one", 1),
        record("one", 2),
        record("one", 2, as_expected=False),
        *(record("one", 3, Verdict.NO_UPDATE) for _ in range(3)),
        record("one", 3, Verdict.RAISES, as_expected=False),
    )
    assert [made.cell(stage) for stage in range(4)] == ["-", "TRAINS", "TRAINS !", "3 NO_UPDATE, 1 RAISES !"]


# -- as text ---------------------------------------------------------------------------------


def test_a_table_of_short_cells() -> None:
    rows = [
        row(
            *(record("one", stage) for stage in range(4)),
            moment="before the engine",
            happens="Trains.",
        ),
        row(*of_each_stage(Verdict.TRAINS, Verdict.NO_UPDATE), happens="Silent.", instead="be early."),
    ]
    assert as_text(rows, 80) == [
        "    recipe, moment            stage 0      stage 1      stage 2      stage 3",
        "-" * 80,
        " 1  a recipe, before the      TRAINS       TRAINS       TRAINS       TRAINS",
        "    engine",
        " 2  a recipe                  TRAINS !     NO_UPDATE !  -            -",
        "",
        "1. Trains.",
        "",
        "2. Silent. Instead: be early.",
    ]


@pytest.mark.parametrize("width", [0, 60, 80, 120])
def test_no_line_is_wider_than_the_terminal_or_80_columns(width: int) -> None:
    widest = [Verdict.EXTRA_TRAINED, Verdict.FROZEN_DRIFT, Verdict.WRONG_UPDATE, Verdict.SAVE_LOSS]
    mixed = [record("one", 3, verdict) for verdict in Verdict]
    rows = [
        row(*of_each_stage(*widest), *mixed, recipe="a rather long recipe, with words", moment="at a late moment"),
        row(record("one", 0), recipe="antidisestablishmentarianism", happens="It is said at length. " * 20),
    ]
    lines = as_text(rows, width)
    assert max(map(len, lines)) <= max(80, width)
    text = " ".join(" ".join(lines).split())
    for verdict in Verdict:
        assert verdict in re.split(r"[\s,]+", text), f"{verdict} was cut in two"
    assert "!" in text


def test_a_cell_that_does_not_fit_takes_a_line_for_each_verdict() -> None:
    made = row(
        *(record("one", 3, Verdict.NO_UPDATE) for _ in range(6)),
        *(record("one", 3, Verdict.EXTRA_TRAINED, as_expected=False) for _ in range(2)),
        *of_each_stage(Verdict.EXTRA_TRAINED)[:1],
    )
    assert made.lines(3, 13) == ["6 NO_UPDATE", "2", "EXTRA_TRAINED", "!"]
    assert made.lines(0, 13) == ["EXTRA_TRAINED", "!"]
    assert made.lines(3, 40) == ["6 NO_UPDATE, 2 EXTRA_TRAINED !"]


def test_an_empty_table_is_a_heading() -> None:
    assert len(as_text([], 80)) == 2


# -- as Markdown -----------------------------------------------------------------------------


def test_markdown_is_for_pasting_into_an_issue() -> None:
    rows = [
        row(record("one", 0), record("one", 3, Verdict.NO_UPDATE, as_expected=False), moment="late", happens="Silent."),
        row(record("two", 1)),
    ]
    assert as_markdown(rows, "freeze table: cpu", {"torch": "2.13.0", "deepspeed": "0.19.8"}).splitlines() == [
        "### freeze table: cpu",
        "",
        "torch 2.13.0, deepspeed 0.19.8",
        "",
        "| recipe, moment | stage 0 | stage 1 | stage 2 | stage 3 |",
        "|---|---|---|---|---|",
        "| a recipe, late | TRAINS | - | - | NO_UPDATE ! |",
        "| a recipe | - | TRAINS | - | - |",
        "",
        "- **a recipe, late**: Silent.",
    ]


def test_markdown_survives_what_would_end_a_cell_or_start_a_tag() -> None:
    label = {"recipe": "a | b\nc", "moment": "x < y", "happens": "`List[<T>]` is <b>bold</b>", "instead": "a | b."}
    text = as_markdown([row(record("one", 0), **label)], "of <mine>", {})
    assert "| a \\| b c, x &lt; y | TRAINS | - | - | - |" in text.splitlines()
    assert "- **a | b c, x &lt; y**: `List[<T>]` is &lt;b>bold&lt;/b> Instead: a | b." in text.splitlines()
    assert text.startswith("### of &lt;mine>\n")


@pytest.mark.usefixtures("warm")
def test_a_session_writes_both(pytester: pytest.Pytester) -> None:
    """Of a case for which there is no library: it does not run, and that is a verdict, too."""
    pytester.makepyfile(
        """\
        from harness.cell import Options, case

        @case(kind="A", recipe="less < more", variants=[Options(model="mlp")], needs=["not_a_library"])
        def needs(run):
            pass
        """
    )
    result = pytester.runpytest_inprocess("--thaw-table", "--thaw-markdown=below/out.md")
    result.stdout.fnmatch_lines(
        [
            " 1  less < more *  -  *  -  *  -  *  NOT_RUN !",
            "1 variant, 0 as expected, 1 differ (!), 1 did not run",
        ]
    )
    lines = Path("below/out.md").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "### freeze table: cpu, 2 ranks"
    assert "| less &lt; more | - | - | - | NOT_RUN ! |" in lines


# -- names -----------------------------------------------------------------------------------


def test_what_is_said_of_a_case_starts_with_the_name_to_run_it_by() -> None:
    described = Label("a recipe", name="one", happens="Silent.", instead="be early.")
    silent = Label("a recipe", name="one")

    assert described.sentences == "one: Silent. Instead: be early."
    assert silent.sentences == ""
