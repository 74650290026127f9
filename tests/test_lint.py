"""`thawcheck lint`: every fault of every file of the matrix at once, each with file and line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from observed_world import RELEASES, STACKS, make_matrix, observed, outcome
from packaging.specifiers import SpecifierSet

from harness.cell import Verdict
from harness.cell._catalog import shipped
from harness.cell._patterns import nearest
from harness.control._exit import Exit
from harness.control.cli import main
from harness.control.locks import read_lock

#: A case of seven variants, of one model.
CASE: Final = next(one for one in shipped() if one.name == "tied_head_by_its_own_name")
EVERY: Final = [outcome(case.name, Verdict.TRAINS, case.variants) for case in shipped()]

OLD_PACKAGING: Final = "packaging is older than 26.3: overlaps were looked for among known releases only"

ENTRY: Final = f"""\
[[expect]]
case = "{CASE.name}"
verdict = "HANG"
versions = {{deepspeed = "<0.2"}}
note = "measured"
"""


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    """Without fault: two stacks, measured."""
    folder = tmp_path / "matrix"
    for stack, lock in make_matrix(folder).items():
        measure(folder, stack, lock)
    entries(folder, ENTRY)
    return folder


def measure(folder: Path, stack: str, lock: str, *outcomes: Any) -> Path:
    versions = {"deepspeed": "0.1" if stack == "older" else "0.2", "torch": "2.0"}
    path = folder / "observed" / f"{stack}.jsonl"
    observed(stack, versions, *(outcomes or EVERY), lock=lock).write(path)
    return path


def entries(folder: Path, text: str) -> Path:
    path = folder / "expected" / "core.toml"
    path.write_text(text, encoding="utf-8")
    return path


def clean(capsys: pytest.CaptureFixture[str], folder: Path) -> list[str]:
    """The notes on a matrix without fault, and its last line."""
    assert main(["lint", "--matrix", str(folder)]) == Exit.OK
    out, err = capsys.readouterr()
    assert err == ""
    # Which packaging there is depends on the stack that the tests run in.
    return [line for line in out.splitlines() if line != f"note: {OLD_PACKAGING}"]


def faults(capsys: pytest.CaptureFixture[str], folder: Path) -> list[str]:
    """All that is wrong, with paths from the folder on."""
    assert main(["lint", "--matrix", str(folder)]) == Exit.USAGE
    lines = capsys.readouterr().err.splitlines()
    count = len(lines) - 1
    assert lines[0] == f"thawcheck: the matrix has {count} fault{'s' if count > 1 else ''}:"
    assert all(line.startswith(f"{folder}/") for line in lines[1:])
    return [line.removeprefix(f"{folder}/") for line in lines[1:]]


def notes(capsys: pytest.CaptureFixture[str], folder: Path) -> list[str]:
    return [line.removeprefix("note: ") for line in clean(capsys, folder)[:-1]]


def test_a_matrix_without_fault_is_counted(capsys: pytest.CaptureFixture[str], matrix: Path) -> None:
    assert clean(capsys, matrix) == ["3 stacks, 2 locks, 2 observed, 1 entries: no fault"]


def test_the_matrix_of_this_repository_is_without_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert clean(capsys, Path(__file__).parents[1] / "matrix")[-1].endswith(" entries: no fault")


# -- stacks and locks --------------------------------------------------------------------------------------------------


def test_faults_of_every_kind_of_file_come_at_once(capsys: pytest.CaptureFixture[str], matrix: Path) -> None:
    """A file that cannot be read hides no fault of another."""
    (matrix / "stacks.toml").write_text(STACKS.replace("labels", "label", 1), encoding="utf-8")
    (matrix / "releases.toml").write_text('[torch]\n"2.x" = 2024-01-01\n"2.0" = "2024"\n', encoding="utf-8")
    (matrix / "observed" / "older.jsonl").write_text("{}\n", encoding="utf-8")
    entries(matrix, ENTRY.replace("HANG", "HANGS"))
    found = faults(capsys, matrix)
    assert [one.partition(": ")[0] for one in found] == [
        "releases.toml:2",
        "releases.toml:3",
        "stacks.toml:8",
        "observed/older.jsonl:1",
        "expected/core.toml:3",
    ]


def test_locks_must_be_there_whole_and_answer_their_stack(capsys: pytest.CaptureFixture[str], matrix: Path) -> None:
    older, newer = (matrix / "locks" / f"{stack}.txt" for stack in ("older", "newer"))
    newer.write_text(newer.read_text(encoding="utf-8").replace("sympy==1.14.0", "sympy==1.13.0"), encoding="utf-8")
    (matrix / "locks" / "oldest.txt").write_text(older.read_text(encoding="utf-8"), encoding="utf-8")
    (matrix / "stacks.toml").write_text(STACKS.replace('pins.torch = "2.0"', 'pins.torch = "<3"'), encoding="utf-8")
    assert faults(capsys, matrix) == [
        "locks/older.txt:1: the stack asks for something else now; solve it: thawcheck lock older",
        "locks/newer.txt:1: was edited by hand after it was solved; solve it: thawcheck lock newer",
        "locks/oldest.txt:1: no stack is called 'oldest'; did you mean 'older'?",
        # Its measurement is of what the lock said before.
        (
            f"observed/newer.jsonl:1: measured by another lock ({_lock_of(matrix, 'newer')}) than the present one "
            f"({_answer(newer)}); measure the stack again: thawcheck sweep newer"
        ),
    ]
    newer.write_text("torch\n", encoding="utf-8")
    older.unlink()
    assert faults(capsys, matrix)[:2] == [
        "locks/older.txt:1: there is no lock file; solve it: thawcheck lock older",
        "locks/newer.txt:1: is no lock file of ours; solve it: thawcheck lock newer",
    ]


def _lock_of(matrix: Path, stack: str) -> str:
    head = (matrix / "observed" / f"{stack}.jsonl").read_text(encoding="utf-8").splitlines()[0]
    return str(json.loads(head)["lock"])


def _answer(path: Path) -> str:
    lock, _ = read_lock(path)
    assert lock is not None
    return lock.answer


# -- observed ----------------------------------------------------------------------------------------------------------


def test_observed_files_must_be_whole_and_of_this_format(capsys: pytest.CaptureFixture[str], matrix: Path) -> None:
    older, newer = (matrix / "observed" / f"{stack}.jsonl" for stack in ("older", "newer"))
    lines = older.read_text(encoding="utf-8").splitlines()
    lines[2] = lines[2].replace("TRAINS", "TRAINED")
    lines[-1] = lines[-1][:20]
    lines[0] = lines[0].replace('"torch":"2.0"', '"torch":"two"')
    older.write_text("\n".join(lines), encoding="utf-8")
    newer.write_text(
        newer.read_text(encoding="utf-8").replace('"observed":1', '"observed":2', 1).replace('"0.1"', '"9.9"', 1),
        encoding="utf-8",
    )
    found = faults(capsys, matrix)
    assert found[0] == (
        "observed/newer.jsonl:1: format 2, written by 9.9; this thawcheck reads format 1: measure the stack again, or "
        "use the thawcheck that wrote it"
    )
    assert found[1] == (
        f"observed/older.jsonl:{len(lines)}: is no JSON, perhaps cut off by a kill; measure the stack again: "
        "thawcheck sweep older --again"
    )
    assert found[2] == "observed/older.jsonl:1: versions: torch 'two' is no version"
    assert found[3].startswith("observed/older.jsonl:3: is no outcome: 'TRAINED' is not a valid Verdict")
    assert len(found) == 4


def test_observed_files_must_speak_of_what_there_is(capsys: pytest.CaptureFixture[str], matrix: Path) -> None:
    lock = _lock_of(matrix, "older")
    elsewhere = next(one for one in shipped() if one.name == "freeze_except_in_bf16").variants[0]
    measure(
        matrix,
        "older",
        lock,
        *EVERY,
        outcome("tied_head_by_its_own_nam", Verdict.TRAINS, CASE.variants),
        outcome(CASE.name, Verdict.TRAINS, [elsewhere]),
    )
    measure(matrix, "oldest", lock)
    last = 1 + len(EVERY)
    assert faults(capsys, matrix) == [
        (
            f"observed/older.jsonl:{last + 1}: no case is called 'tied_head_by_its_own_nam'; "
            f"{nearest('tied_head_by_its_own_nam', [case.name for case in shipped()])}"
        ),
        (
            f"observed/older.jsonl:{last + 2}: {CASE.name} has no variant 'tiny_llama-z0-bf16'; did you mean "
            "'tied_llama-z1' or 'tied_llama-z0' or 'tied_llama-z2'?"
        ),
        "observed/oldest.jsonl:1: no stack is called 'oldest'; did you mean 'older'?",
    ]


def test_what_is_not_measured_is_noted(capsys: pytest.CaptureFixture[str], matrix: Path) -> None:
    rest = [one for one in EVERY if one.case != CASE.name]
    measure(matrix, "older", _lock_of(matrix, "older"), *rest, outcome(CASE.name, Verdict.TRAINS, CASE.variants[1:]))
    (matrix / "observed" / "newer.jsonl").unlink()
    assert notes(capsys, matrix) == [
        "not measured yet: newer",
        f"{CASE.name} is not measured, or not in every variant, on older",
    ]


# -- expected ----------------------------------------------------------------------------------------------------------


def test_expectations_must_speak_of_what_there_is(capsys: pytest.CaptureFixture[str], matrix: Path) -> None:
    """Two faults in one entry are two."""
    entries(
        matrix,
        ENTRY.replace("own_name", "own_nam")
        + ENTRY.replace("versions", 'where = {model = "mlp"}\nversions')
        + ENTRY.replace("<0.2", ">=0.4.1").replace("}", ', torch = ">3,<3"}')
        + ENTRY.replace("<0.2", ">0.2,<0.3"),
    )
    there = ", ".join(options.id for options in CASE.variants)
    found = faults(capsys, matrix)
    assert found[:3] == [
        (
            "expected/core.toml:1: no case is called 'tied_head_by_its_own_nam'; "
            f"{nearest('tied_head_by_its_own_nam', [case.name for case in shipped()])}"
        ),
        f"expected/core.toml:6: no variant of {CASE.name} is as `where` says; there is: {there}",
        (
            "expected/core.toml:12: versions deepspeed '>=0.4.1': no release that releases.toml knows is in this "
            "range, of 0.1 to 0.4"
        ),
    ]
    # In the words of packaging, where it can tell.
    assert found[3].startswith("expected/core.toml:12: versions torch '>3,<3': no ")
    assert found[4].startswith("expected/core.toml:17: versions deepspeed '>0.2,<0.3': no release")
    assert len(found) == 5


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("", "", True),
        ('versions = {deepspeed = "<0.3"}', 'versions = {deepspeed = ">=0.3"}', False),
        ('versions = {deepspeed = "<=0.3"}', 'versions = {deepspeed = ">=0.3"}', True),
        ('versions = {deepspeed = "<0.3"}', 'versions = {torch = ">=2"}', True),
        ('versions = {deepspeed = "<0.3", torch = "<2"}', 'versions = {deepspeed = "<0.3", torch = ">=2"}', False),
        ('versions = {axolotl = "absent"}', 'versions = {axolotl = ">=0"}', False),
        ('versions = {axolotl = "absent"}', 'versions = {axolotl = "absent"}', True),
        ("where = {stage = [0, 1]}", "where = {stage = [2, 3]}", False),
        ("where = {stage = [0, 1]}", "where = {stage = [1, 2]}", True),
        # At no stage below 3 is there zero.Init.
        ("where = {stage = [0, 1, 2]}", 'where = {init = "zero_init"}', False),
        ('device = "cpu"', 'device = "cuda"', False),
        ('device = "cpu"', "", True),
        ("world = 2", "world = 4", False),
        ("world = 2", 'device = "cpu"', True),
    ],
)
@pytest.mark.parametrize("algebra", [True, False])
def test_two_entries_may_not_apply_to_the_same(
    capsys: pytest.CaptureFixture[str],
    matrix: Path,
    monkeypatch: pytest.MonkeyPatch,
    one: str,
    other: str,
    *,
    both: bool,
    algebra: bool,
) -> None:
    """With an older packaging too, which compares no ranges: then by the releases that are known."""
    if not algebra:
        monkeypatch.delattr(SpecifierSet, "is_disjoint", raising=False)
    text = '[[expect]]\ncase = "{}"\nverdict = "HANG"\nnote = "measured"\n{}\n'
    entries(matrix, text.format(CASE.name, one) + text.format(CASE.name, other))
    # For a range of it that would hold no release.
    (matrix / "releases.toml").write_text(f'{RELEASES}"1.0" = 2023-01-01\n', encoding="utf-8")
    if both:
        (fault,) = faults(capsys, matrix)
        assert fault.startswith(f"expected/core.toml:1: both this entry and core.toml:6 apply to {CASE.name}")
    else:
        assert clean(capsys, matrix)[-1].endswith("2 entries: no fault")


def test_where_two_entries_meet_is_told(capsys: pytest.CaptureFixture[str], matrix: Path) -> None:
    entries(matrix, ENTRY + ENTRY.replace("<0.2", ">=0.1").replace("}", ', torch = "<3"}'))
    assert faults(capsys, matrix) == [
        (
            f"expected/core.toml:1: both this entry and core.toml:6 apply to {CASE.name} where deepspeed <0.2,>=0.1, "
            "torch <3"
        )
    ]


def test_an_older_packaging_is_noted(
    capsys: pytest.CaptureFixture[str], matrix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(SpecifierSet, "is_disjoint", raising=False)
    assert main(["lint", "--matrix", str(matrix)]) == Exit.OK
    assert capsys.readouterr().out.splitlines()[0] == f"note: {OLD_PACKAGING}"


GAP: Final = ENTRY.replace("<0.2", "==0.1") + ENTRY.replace("<0.2", ">=0.4")


def _as_it_is(_: Path) -> None:
    """Nothing trained there: the newer stack hangs, too."""


def _covered(matrix: Path) -> None:
    entries(matrix, GAP.replace("==0.1", "<0.4"))


@pytest.mark.parametrize(
    ("change", "hole"),
    [
        (_as_it_is, "0.2 to 0.3"),
        (_covered, ""),
        (lambda matrix: measure(matrix, "newer", _lock_of(matrix, "newer")), ""),
        (lambda matrix: entries(matrix, GAP.replace(">=0.4", ">=0.3")), "0.2"),
        # Open ends are no gaps.
        (lambda matrix: entries(matrix, ENTRY.replace("<0.2", "==0.2")), ""),
    ],
)
def test_releases_between_two_ranges_that_nobody_saw_train_are_noted(
    capsys: pytest.CaptureFixture[str], matrix: Path, change: Callable[[Path], Any], hole: str
) -> None:
    entries(matrix, GAP)
    rest = [one for one in EVERY if one.case != CASE.name]
    hangs = outcome(CASE.name, Verdict.HANG, CASE.variants, failure=("backward", "hang", ""))
    measure(matrix, "newer", _lock_of(matrix, "newer"), *rest, hangs)
    change(matrix)
    assert notes(capsys, matrix) == (
        [
            (
                f"{CASE.name}, all variants: no entry is about deepspeed {hole}, though some are about older and newer "
                "ones, and no stack was seen to train there"
            )
        ]
        if hole
        else []
    )


def test_a_folder_without_stacks_is_no_matrix(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["lint", "--matrix", str(tmp_path)]) == Exit.USAGE
    assert capsys.readouterr().err == (
        f"thawcheck: there is no {tmp_path}/stacks.toml; run at the root of a checkout, or give --matrix DIR\n"
    )
