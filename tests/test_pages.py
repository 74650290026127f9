"""``thawcheck pages``: a page for each kind, made of the cases and of what was measured."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from harness.cell import Options, Verdict
from harness.cell._catalog import shipped
from harness.cell._code import code_of
from harness.cell._kinds import KINDS
from harness.cell.outcome._expect import Expectation
from harness.cell.outcome._observed import Observed, Outcome
from harness.control import cli
from harness.control.pages import fixes_page, kind_page, page_of, symptoms_page
from harness.control.pages._measured import entry_lines
from harness.control.stacks import Stack

ROOT: Final = Path(__file__).resolve().parents[1]
NAIVE: Final = "unfreeze_more_after_engine"


def pages(*arguments: str) -> int:
    return int(cli.main(["pages", *arguments, "--matrix", str(ROOT / "matrix")]))


def observed(stack: str, *outcomes: Outcome, unsolvable: str = "") -> Observed:
    return Observed(stack, "1.0", "2026-11-30", "cpu", "0", {"python": "3.11.7"}, outcomes, unsolvable)


def test_the_shipped_pages_say_what_the_cases_say(capsys: pytest.CaptureFixture[str]) -> None:
    assert pages(str(ROOT / "docs" / "kinds"), "--check") == 0, capsys.readouterr().out


def test_pages_are_written_and_what_is_no_page_any_more_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pages(str(tmp_path)) == 0
    kinds = [kind for kind in KINDS if any(case.kind == kind for case in shipped())]
    assert {path.name for path in tmp_path.iterdir()} == {"README.md", "fixes.md", "symptoms.md", *map(page_of, kinds)}
    assert pages(str(tmp_path), "--check") == 0
    (tmp_path / "a.md").write_text("by hand")
    (tmp_path / "z.md").write_text("of a kind that was")
    capsys.readouterr()

    assert pages(str(tmp_path), "--check") == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path / name} is not what the cases say; thawcheck pages {tmp_path}" for name in ("a.md", "z.md")
    ]
    assert pages(str(tmp_path)) == 0
    assert capsys.readouterr().out == f"{len(kinds) + 3} pages, 1 of them changed\n"
    assert pages(str(tmp_path), "--check") == 0


def test_a_folder_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("no folder")
    assert pages(str(tmp_path / "file" / "kinds")) == 2
    told = f"thawcheck: {tmp_path / 'file' / 'kinds'}: Not a directory; run the command again\n"
    assert capsys.readouterr().err == told


def test_a_page_has_every_case_of_its_kind_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    pages(str(tmp_path))
    texts = {path.name: path.read_text() for path in tmp_path.iterdir()}
    heads = {name: set(re.findall(r"^## (\w+)$", text, re.MULTILINE)) for name, text in texts.items()}
    for case in shipped():
        assert case.name in heads[page_of(case.kind)]
    for name, text in texts.items():
        for page, anchor in re.findall(r"\]\(([\w.]*)#?(\w*)\)", text):
            assert page in texts or not page
            assert not anchor or anchor in heads[page or name]


def test_a_section_says_what_was_measured() -> None:
    some = Outcome(NAIVE, Verdict.TRAINS, (Options(model="mlp", stage=0),), 2)
    others = Outcome(NAIVE, Verdict.NO_UPDATE, (Options(model="mlp", stage=1), Options(model="mlp", stage=2)), 2)
    stacks = {
        "latest": observed("latest", some, others),
        "oldest": observed("oldest", unsolvable="no wheel"),
        "bare": observed("bare"),
    }

    text = kind_page("C", stacks, [Expectation(Verdict.NO_UPDATE, NAIVE, {"stage": (1, 2)})], [])

    row = next(line for line in text.splitlines() if line.startswith(f"| [`{NAIVE}`]"))
    assert row.endswith("| NO_UPDATE (z1, z2), TRAINS (z0) | UNSOLVABLE |")
    assert "14 variants, measured on 1 stack: 1 of 3 runs are TRAINS." in text
    assert "\n- **NO_UPDATE** with stages 1 or 2\n" in text
    assert "not measured yet" in text  # the other cases of the kind
    assert "@case" not in text
    assert f"\ndef {NAIVE}(run: Run) -> None:\n" in text


def test_a_documented_fix_is_told_with_what_was_measured_of_it() -> None:
    name, options = "frozen_group_first", Options(model="mlp", stage=3)
    stacks = [
        Stack(f"ds-{at}", "", (), ("3.11",), (), None, sweep="deepspeed", moves="deepspeed", at=at)
        for at in ("0.19.2", "0.19.3")
    ]
    seen = {
        "ds-0.19.2": observed("ds-0.19.2", Outcome(name, Verdict.WRONG_UPDATE, (options,), 2)),
        "ds-0.19.3": observed("ds-0.19.3", Outcome(name, Verdict.TRAINS, (options,), 2)),
    }
    told = "changes there (0.19.2 WRONG_UPDATE, 0.19.3 TRAINS)"
    where = "[deepspeedai/DeepSpeed#8060](https://github.com/deepspeedai/DeepSpeed/issues/8060)"

    assert f"**Upstream:** deepspeed 0.19.3 ({where}); {told}\n" in kind_page("B", seen, [], stacks)
    assert f"| [`{name}`](b.md#{name}) | deepspeed 0.19.3 ({where}) | {told} |  |\n" in fixes_page(stacks, seen)
    assert "| not measured on both sides |" in fixes_page(stacks, {})


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        (Expectation(Verdict.TRAINS, "c"), "- **TRAINS**"),
        (
            Expectation(
                Verdict.RAISES,
                "c",
                {"stage": (3,), "model": ("mlp",)},
                {"deepspeed": ">=0.14,<0.15", "axolotl": "absent"},
                {"stacks": 2, "deepspeed": "0.14.1 to 0.14.5"},
                moment="engine",
                type="IndexError",
                message=r"^list index out of range \(3\)",
            ),
            (
                "- **RAISES** with stage 3, model mlp on deepspeed 0.14.1 to 0.14.5, axolotl absent (2 stacks): "
                "`IndexError` on the way to `engine`, `list index out of range (3)`"
            ),
        ),
        (
            Expectation(
                Verdict.NO_UPDATE,
                "c",
                seen={"stacks": 1},
                versions={"deepspeed": ">=0.14,<0.15"},
                parameters=("a.*", "b"),
                also={Verdict.FROZEN_DRIFT: tuple("cdefgh")},
            ),
            (
                "- **NO_UPDATE** on deepspeed >=0.14, <0.15 (1 stack): `a.*`, `b`; "
                "FROZEN_DRIFT: `c`, `d`, `e`, `f` and 2 more"
            ),
        ),
    ],
)
def test_an_expectation_in_words(entry: Expectation, line: str) -> None:
    assert [*entry_lines([entry])] == [line]


def test_what_does_the_same_on_other_versions_shares_a_line_and_what_has_a_cause_is_folded() -> None:
    ours = "measured on 2 gloo ranks"
    entries = [
        Expectation(Verdict.NO_UPDATE, "c", versions={"torch": "<2.3"}, note=ours),
        Expectation(Verdict.NO_UPDATE, "c", versions={"torch": ">=2.6"}, note=ours),
        Expectation(Verdict.NOT_RUN, "c", message="^deepspeed cannot be imported", note=ours),
        Expectation(Verdict.WRONG_GRAD, "c", {"stage": (1,)}, note=f"{ours}; a cause that many share"),
    ]

    assert [*entry_lines(entries)] == [
        "- **NO_UPDATE** on torch <2.3; torch >=2.6",
        "",
        "<details><summary>2 more, each for a reason of its own</summary>",
        "",
        "- **NOT_RUN**, `deepspeed cannot be imported`",
        "- **WRONG_GRAD** with stage 1. A cause that many share",
        "",
        "</details>",
    ]


def test_a_page_shows_what_a_case_calls_and_no_docstring() -> None:
    case = next(one for one in shipped() if one.name == "new_engine_after_unfreezing")

    code = code_of(case)

    assert code.startswith("def new_engine_after_unfreezing(run: Run) -> None:\n    _unfreeze_more")
    assert "\n\n\ndef _unfreeze_more_with_a_new_engine(run: Run, hyper: Hyper) -> None:\n    model =" in code
    assert '"""' not in code
    compile(code, "page", "exec")


def test_every_case_has_code_that_can_be_read() -> None:
    for case in shipped():
        compile(code_of(case), case.name, "exec")


def test_a_symptom_leads_to_the_case() -> None:
    text = symptoms_page(
        [
            Expectation(Verdict.NO_UPDATE, NAIVE, also={Verdict.FROZEN_DRIFT: ("a",)}),
            Expectation(Verdict.RAISES, NAIVE, moment="engine", type="KeyError", message=r"^a \| b\("),
            Expectation(Verdict.RAISES, NAIVE, moment="engine", type="IndexError", note="for a cause that many share"),
            Expectation(Verdict.NO_GRAD, "freeze_except_before_engine"),
        ]
    )
    lead = f"[`{NAIVE}`](c.md#{NAIVE})"

    assert f"never moves (NO_UPDATE) | {lead} |" in text
    assert f"all the same (FROZEN_DRIFT) | {lead} |" in text
    assert f"| `KeyError: a ¦ b(` | engine | {lead} |" in text
    assert "has no gradient (NO_GRAD) | - |" in text, "a control shows a thing to be no fault"
    assert "IndexError" not in text


def test_a_page_that_is_no_text_is_made_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.md").write_bytes(b"\xff\xfe")
    assert pages(str(tmp_path)) == 0
    assert capsys.readouterr().err == ""
    assert pages(str(tmp_path), "--check") == 0
