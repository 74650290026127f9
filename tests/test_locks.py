"""Locks: what is solved, how it is kept, and that a stale, broken or hand-made one is noticed."""

from __future__ import annotations

import datetime as dt
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from harness.control import cli
from harness.control.locks import Lock, LockState, SolverFailed, read_lock, solve, state_of, write_lock
from harness.control.stacks import Stack, load_matrix

ROOT = Path(__file__).resolve().parents[1]

STACK = Stack(
    "ds-0.13.4",
    "DeepSpeed 0.13.4",
    ("deepspeed",),
    ("3.11",),
    ("torch==2.2.2", "deepspeed==0.13.4", "numpy<2", "pytest"),
    dt.date(2024, 3, 31),
)

#: A stand-in for uv: says what it was asked, and answers what the test wants.
UV = """\
#!/bin/sh
if [ "$1" = --version ]; then echo "uv 9.9.9"; exit; fi
printf '%s\\n' "$@" > "{folder}/asked"
pwd > "{folder}/place"
env | grep -E '^UV_(FIND|TORCH|CONS|RES|EXCL|INDEX_URL)' > "{folder}/environ"
cat > "{folder}/question"
cat "{folder}/out"
cat "{folder}/err" >&2
exit $(cat "{folder}/status")
"""


class FakeUv:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "uv"
        self.path.write_text(UV.format(folder=folder))
        self.path.chmod(self.path.stat().st_mode | stat.S_IXUSR)
        self.answers()

    def answers(self, out: str = "", err: str = "", status: int = 0) -> None:
        for name, text in (("out", out), ("err", err), ("status", str(status))):
            (self.folder / name).write_text(text)

    @property
    def asked(self) -> list[str]:
        return (self.folder / "asked").read_text().splitlines()

    @property
    def question(self) -> str:
        return (self.folder / "question").read_text()

    @property
    def place(self) -> Path:
        """Where it was started."""
        return Path((self.folder / "place").read_text().strip())


@pytest.fixture
def uv(tmp_path: Path) -> FakeUv:
    return FakeUv(tmp_path)


def solved(uv: FakeUv, stack: Stack = STACK) -> Lock:
    return solve(stack, uv.folder, str(uv.path))


def test_a_solution_has_no_build_of_torch_in_it(uv: FakeUv) -> None:
    """So a lock solved beside a CPU build equals one solved beside a CUDA build."""
    uv.answers("deepspeed==0.13.4\nNumPy==1.26.4\nnvidia-nccl-cu12==2.19.3\ntorch==2.2.2+cpu\ntriton==2.2.0\n")
    with_cuda = solved(uv)
    uv.answers("deepspeed==0.13.4\nnumpy==1.26.4\ntorch==2.2.2\n")

    assert with_cuda.versions == {"deepspeed": "0.13.4", "numpy": "1.26.4", "torch": "2.2.2"}
    assert solved(uv) == with_cuda
    assert with_cuda.solver == "uv 9.9.9"


def test_what_is_asked_of_the_solver(uv: FakeUv) -> None:
    """Nothing after the day, save what is pinned exactly; for one platform, whoever solves."""
    solved(uv)

    asked = " ".join(uv.asked)
    assert uv.question.splitlines() == list(STACK.requires)
    assert "--python-version 3.11" in asked
    assert "--python-platform x86_64-manylinux_2_28" in asked
    assert "--exclude-newer 2024-04-01T00:00:00Z" in asked
    assert "--exclude-newer-package torch=2100" in asked
    assert "--exclude-newer-package deepspeed=2100" in asked
    assert "--exclude-newer-package numpy" not in asked


def test_no_variable_of_uvs_bends_the_answer(uv: FakeUv, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies in a folder has no date, so it would be as new as one likes in every era."""
    for name in ("UV_FIND_LINKS", "UV_TORCH_BACKEND", "UV_CONSTRAINT", "UV_RESOLUTION", "UV_EXCLUDE_NEWER"):
        monkeypatch.setenv(name, "bent")
    monkeypatch.setenv("UV_INDEX_URL", "https://index.example.org/simple")

    solved(uv)

    assert (uv.folder / "environ").read_text().split() == ["UV_INDEX_URL=https://index.example.org/simple"]


def test_a_stack_of_no_day_asks_for_the_newest(uv: FakeUv) -> None:
    solved(uv, replace(STACK, as_of=None))

    assert "--exclude-newer" not in " ".join(uv.asked)


@pytest.mark.parametrize(
    ("err", "reason"),
    [
        pytest.param(
            "error: No solution found when resolving dependencies\n"
            "  cause: Because you require torch==2.2.2\n         and torch>=2.4, they are unsatisfiable.\n\n"
            "hint: relax something\n",
            "Because you require torch==2.2.2 and torch>=2.4, they are unsatisfiable.",
            id="no solution",
        ),
        pytest.param(
            "error: Failed to build `deepspeed==0.13.0`\n  cause: The build backend returned an error\n"
            "         Traceback:\n         ImportError: first\n         ModuleNotFoundError: No module named 'torch'\n"
            "hint: add torch\n",
            "deepspeed==0.13.0 cannot be built: ModuleNotFoundError: No module named 'torch'",
            id="build",
        ),
    ],
)
def test_a_stack_without_a_solution_is_an_outcome_with_its_reason(uv: FakeUv, err: str, reason: str) -> None:
    uv.answers(err=err, status=1)

    lock = solved(uv)

    assert lock.unsolvable == reason
    assert not lock.versions


def test_a_solver_that_could_not_work_says_nothing_of_the_stack(uv: FakeUv) -> None:
    uv.answers(err="error: Request failed after 3 retries\n  cause: dns error\n", status=2)

    with pytest.raises(SolverFailed, match=r"ds-0\.13\.4: uv could not work: error: Request failed"):
        solved(uv)


@pytest.mark.parametrize(
    "err",
    [
        (
            "error: No solution found when resolving dependencies\n  cause: Because torch was not found in the cache\n"
            "hint: Packages were unavailable because the network was disabled.\n"
        ),
        "error: Failed to build `deepspeed==0.13.4`\n  cause: Failed to fetch: `setuptools`\n",
    ],
    ids=["offline", "build requirements"],
)
def test_what_could_not_be_asked_has_no_answer(uv: FakeUv, err: str) -> None:
    """Though uv says in the same breath that there is none."""
    uv.answers(err=err, status=1)

    with pytest.raises(SolverFailed):
        solved(uv)


def test_axolotl_is_solved_only_where_its_own_pins_decide_nothing(uv: FakeUv) -> None:
    stack = replace(STACK, requires=("torch==2.2.2", "axolotl==0.6.0"))

    with pytest.raises(SolverFailed, match=r"pyproject\.toml says nothing of Axolotl's dependencies"):
        solved(uv, stack)
    (uv.folder / "pyproject.toml").write_text('[[tool.uv.dependency-metadata]]\nname = "axolotl"\n')
    solved(uv, stack)


def test_a_package_that_is_wanted_whole_is_solved_with_its_dependencies(uv: FakeUv) -> None:
    """Away from the checkout, whose pyproject.toml leaves them out.  That hides them from the installation, too, so
    what they ask for must be in the lock even where torch asks for it as well."""
    uv.answers(
        "axolotl==0.19.0  # via -r -\ncuda-toolkit==13.0  # via torch\nnvidia-cublas==13.1  # via cuda-toolkit, torch\n"
        "nvidia-ml-py==12.5    # via axolotl\ntriton==3.7.1  # via axolotl, torch\ntorch==2.13.0+cpu  # via -r -\n"
    )
    stack = replace(STACK, requires=("torch==2.13.0", "axolotl==0.19.0"), whole=("axolotl",))

    lock = solved(uv, stack)

    assert lock.versions == {"axolotl": "0.19.0", "nvidia-ml-py": "12.5", "torch": "2.13.0", "triton": "3.7.1"}
    assert not (uv.folder / "pyproject.toml").exists(), "nor is one asked for"
    assert uv.place != uv.folder
    assert not any((one / "pyproject.toml").exists() for one in (uv.place, *uv.place.parents))
    (uv.folder / "pyproject.toml").write_text('name = "axolotl"')
    others = solved(uv, replace(stack, whole=()))
    assert others.versions == {"axolotl": "0.19.0", "torch": "2.13.0"}
    assert uv.place == uv.folder


def test_the_end_of_days(uv: FakeUv) -> None:
    with pytest.raises(SolverFailed, match="there is no day after 9999-12-31"):
        solved(uv, replace(STACK, as_of=dt.date(9999, 12, 31)))


@pytest.fixture
def lock(uv: FakeUv) -> Lock:
    uv.answers("deepspeed==0.13.4\ntorch==2.2.2\n")
    return solved(uv)


def test_a_lock_comes_back_as_it_was_written(tmp_path: Path, lock: Lock) -> None:
    path = tmp_path / "locks" / "ds-0.13.4.txt"

    assert write_lock(path, STACK, lock)
    assert state_of(STACK, path) == (lock, LockState.FRESH)
    assert not write_lock(path, STACK, lock)


def test_another_solver_that_finds_the_same_changes_nothing(tmp_path: Path, lock: Lock) -> None:
    path = tmp_path / "ds-0.13.4.txt"
    write_lock(path, STACK, lock)
    before = path.read_bytes()

    assert not write_lock(path, STACK, replace(lock, solver="uv 10.0.0"))
    assert path.read_bytes() == before


def test_a_reason_is_kept_as_a_solution_is(tmp_path: Path, lock: Lock) -> None:
    path = tmp_path / "ds-0.13.4.txt"
    without = Lock(lock.question, lock.solver, unsolvable="because")
    write_lock(path, STACK, without)

    assert state_of(STACK, path) == (without, LockState.FRESH)


@pytest.mark.parametrize(
    ("old", "new", "state"),
    [
        ("torch==2.2.2\n", "torch==2.2.1\n", LockState.EDITED),
        ("torch==2.2.2\n", "", LockState.EDITED),
        ("torch==2.2.2\n", "torch==2.2.2\nnumpy==1.26.4\n", LockState.EDITED),
        ("# question: ", "# question: 0", LockState.STALE),
        ("# answer: ", "# reply: ", LockState.BROKEN),
        ("torch==2.2.2\n", "torch>=2.2\n", LockState.BROKEN),
    ],
)
def test_a_lock_that_was_changed_is_noticed(tmp_path: Path, lock: Lock, old: str, new: str, state: LockState) -> None:
    path = tmp_path / "ds-0.13.4.txt"
    write_lock(path, STACK, lock)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))

    assert state_of(STACK, path)[1] is state


def test_a_lock_that_does_not_hold_the_stacks_pins_is_broken(tmp_path: Path, lock: Lock) -> None:
    """Whoever made it, and though its digests are right."""
    path = tmp_path / "ds-0.13.4.txt"
    write_lock(path, STACK, replace(lock, versions={"deepspeed": "0.13.4", "torch": "2.2.1"}))

    assert read_lock(path)[1] is LockState.FRESH
    assert state_of(STACK, path)[1] is LockState.BROKEN


def test_no_lock_and_no_text(tmp_path: Path) -> None:
    binary = tmp_path / "ds-0.13.4.txt"
    binary.write_bytes(b"\xff\xfe")

    assert state_of(STACK, tmp_path / "none.txt") == (None, LockState.MISSING)
    assert state_of(STACK, binary) == (None, LockState.BROKEN)


def test_every_lock_of_this_checkout_answers_its_stack() -> None:
    matrix = load_matrix(ROOT / "matrix")
    states = {name: state_of(stack, matrix.lock(name))[1] for name, stack in matrix.stacks.items() if not stack.dev}

    assert {name: state for name, state in states.items() if state is not LockState.FRESH} == {}
    assert len(states) > 150


def test_no_lock_of_this_checkout_holds_what_came_after_its_day() -> None:
    matrix = load_matrix(ROOT / "matrix")
    late = [
        f"{name}: {package} {version} of {matrix.releases[package][version]}"
        for name, stack in matrix.stacks.items()
        if stack.as_of is not None and (lock := read_lock(matrix.lock(name))[0]) is not None
        for package, version in lock.versions.items()
        if package not in stack.pins and matrix.releases.get(package, {}).get(version, stack.as_of) > stack.as_of
    ]

    assert late == []


# -- the command ---------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uv: FakeUv) -> Path:
    """A matrix of two stacks, and a uv that answers for both."""
    matrix = tmp_path / "matrix"
    matrix.mkdir()
    (matrix / "releases.toml").write_text('[torch]\n"2.2.2" = 2024-03-27\n')
    (matrix / "stacks.toml").write_text(
        'undated = ["numpy"]\n[base.b]\npython = ["3.11"]\npins.torch = "2.2.2"\n'
        '[stack.one]\ndescription = "first"\nlabels = ["smoke"]\nbase = "b"\n'
        '[stack.two]\ndescription = "second"\nlabels = ["era"]\nbase = "b"\nfloats = ["numpy"]\n'
    )
    uv.answers("torch==2.2.2\nnumpy==1.26.4\npytest==9.0.0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("harness.control._lock.find_uv", lambda: str(uv.path))
    return matrix


def thawcheck(*arguments: str) -> int:
    return int(cli.main([*arguments]))


def test_lock_solves_what_is_not_solved_and_leaves_the_rest(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert thawcheck("lock", "one") == 0
    assert "one: 3 packages" in capsys.readouterr().out
    before = (folder / "locks" / "one.txt").stat().st_mtime_ns

    assert thawcheck("lock") == 0

    assert "[1/1] two: 3 packages" in capsys.readouterr().out
    assert (folder / "locks" / "one.txt").stat().st_mtime_ns == before
    assert thawcheck("lock") == 0
    assert "2 of 2 locks answer their stacks" in capsys.readouterr().out


def test_lock_check_names_each_fault_and_solves_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    thawcheck("lock", "one")
    one = folder / "locks" / "one.txt"
    one.write_text(one.read_text().replace("numpy==1.26.4", "numpy==1.26.3"))
    (folder / "locks" / "gone.txt").write_text("")
    capsys.readouterr()

    assert thawcheck("lock", "--check") == 2

    said = capsys.readouterr().out.splitlines()
    assert said == [
        f"{folder / 'locks' / 'one.txt'}: was edited by hand after it was solved",
        f"{folder / 'locks' / 'two.txt'}: there is no lock file",
        f"{folder / 'locks' / 'gone.txt'}: no stack is called 'gone'",
        "0 of 2 are fresh",
    ]
    assert not (folder / "locks" / "two.txt").exists()


def test_a_lock_edited_by_hand_is_solved_again(folder: Path) -> None:
    thawcheck("lock")
    one = folder / "locks" / "one.txt"
    before = one.read_text()
    one.write_text(before.replace("numpy==1.26.4", "numpy==1.26.3"))

    assert thawcheck("lock") == 0
    assert one.read_text() == before
    assert thawcheck("lock", "--check") == 0


def test_stale_and_missing_locks_are_no_bad_input(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Time does that."""
    assert thawcheck("lock", "--check") == 1
    assert "0 of 2 are fresh" in capsys.readouterr().out
    assert not (folder / "locks").exists()


def test_a_lock_that_solves_is_not_replaced_by_none(
    folder: Path, uv: FakeUv, capsys: pytest.CaptureFixture[str]
) -> None:
    thawcheck("lock", "one")
    before = (folder / "locks" / "one.txt").read_bytes()
    uv.answers(err="error: No solution found when resolving dependencies\n  cause: Because so.\n", status=1)

    assert thawcheck("lock", "one", "--again") == 3
    assert "the lock is kept, remove it if it is wrong" in capsys.readouterr().err
    assert (folder / "locks" / "one.txt").read_bytes() == before
    assert thawcheck("lock", "two") == 0
    assert "two: has no solution: Because so." in capsys.readouterr().out


def test_a_lock_that_cannot_be_read_or_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "locks").mkdir()
    (folder / "locks" / "one.txt").write_bytes(b"\xff\xfe")
    (folder / "locks" / "two.txt").mkdir()

    assert thawcheck("lock") == 3
    out, err = capsys.readouterr()
    assert "one: 3 packages" in out
    assert f"two: {folder / 'locks' / 'two.txt'} cannot be written: Is a directory" in err


@pytest.mark.usefixtures("folder")
def test_one_failure_of_the_solver_leaves_the_other_solutions(uv: FakeUv, capsys: pytest.CaptureFixture[str]) -> None:
    thawcheck("lock", "one")
    uv.answers(err="error: dns error", status=2)

    assert thawcheck("lock") == 3
    assert "two: uv could not work" in capsys.readouterr().err
    assert thawcheck("lock", "--check", "one") == 0


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["lock", "on"], "no stack is called 'on'; "),
        (["lock", "-m", "smok"], "no stack has the label 'smok'; "),
        (["lock", "--matrix", "nowhere"], "there is no nowhere/stacks.toml"),
    ],
)
def test_bad_usage(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    assert thawcheck(*arguments) == 2
    assert said in capsys.readouterr().err


def test_the_matrix_is_found_from_a_folder_below(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = folder.parent / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)

    assert thawcheck("lock", "one") == 0
    assert [path.name for path in (folder / "locks").iterdir()] == ["one.txt"]
