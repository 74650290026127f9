"""Bad input and bad surroundings: one clear message each, no traceback, and what was measured before is kept."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from rank_world import World

from harness.cell import CaseRecord, Options, Verdict
from harness.cell._case import Case
from harness.cell.outcome._results import ResultsFile, read_results
from harness.cell.ranks._device import DEVICES, Census
from harness.cell.ranks._launch import Request, ZygoteLauncher, missing_libraries
from harness.cell.ranks._stack import installed_versions
from harness.control._exit import Exit
from harness.control.cli import main

if TYPE_CHECKING:
    from harness.cell._run import Run

#: Cases that make no sense, which shows only when they run.
SENSELESS: Final = """\
from harness.cell import Options, case

MLP = [Options(model="mlp", stage=0)]


@case(kind="CONTROL", variants=MLP)
def everything_wrong(run):
    run.train(run.engine(run.model()), intent=("layer.2.*", "head.*", "blok"), steps=0)


@case(kind="CONTROL", variants=MLP)
def no_intent(run):
    run.train(run.engine(run.model()), intent=())


@case(kind="CONTROL", variants=MLP)
def no_steps(run):
    pass


@case(kind="CONTROL", variants=MLP)
def no_such_part(run):
    run.part("bloc")
"""

FAULTS: Final = {
    "everything_wrong": "case on mlp-z0: steps must be 1 or more, found 0; "
    "intent 'layer.2.*' matches no parameter; did you mean 'layers.2.bias' or 'layers.2.weight' or 'layers.3.bias'?; "
    "intent 'blok' matches no parameter; there is: head.bias, head.weight, layers.0.bias, layers.0.weight, "
    "layers.1.bias, layers.1.weight, layers.2.bias, layers.2.weight and 4 more",
    "no_intent": "case on mlp-z0: no intent: name the parameters that are meant to train",
    "no_steps": "case on mlp-z0: it ended without an optimizer step: nothing was measured",
    "no_such_part": "case on mlp-z0: model mlp has no part 'bloc'; did you mean 'block' or 'other block'?",
}

#: A case that cannot be declared, with everything wrong that can be.
UNDECLARABLE: Final = """\
from harness.cell import Options, case


@case(
    kind="Z",
    world=0,
    deadline=-1.0,
    variants=[
        Options(model="tiny_lama", stage=4, init="zero-init", persistence="none", precision="fp8"),
        Options(model="mlp", accumulation=0, clipping=-1.0),
        Options(model="mlp", accumulation=0, clipping=-1.0),
    ],
)
def undeclarable(run, too_many):
    pass
"""

#: On stand-ins: cases that answer with a text that takes a page of the disk.
LONG: Final = """\
from harness.cell import Options, case

STAGES = [Options(model="mlp", stage=stage, accumulation=number) for stage in (0, 1, 2) for number in (1, 2)]


class Answer(Exception):
    pass


@case(kind="CONTROL", world=1, variants=STAGES)
def answers(run):
    raise Answer("at length " * 400)
"""

#: Limits the size of files of pytest alone, once two results are written: the kernel then writes what fits, as on a
#: disk that becomes full.
LIMIT: Final = """\
import resource
from pathlib import Path
import pytest

@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report):
    path = Path("out/all.jsonl")
    if path.exists() and len(path.read_bytes().splitlines()) == 2:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, resource.RLIM_INFINITY))
"""

#: Root may write anywhere, by a capability that it can give up.
AS_ANYONE: Final = """\
import ctypes, sys
from harness.control.cli import main

header = (ctypes.c_uint32 * 2)(0x20080522, 0)
data = (ctypes.c_uint32 * 6)()
libc = ctypes.CDLL(None, use_errno=True)
assert libc.capget(header, data) == 0
for at in (0, 1):  # effective, permitted
    data[at] &= ~0b10  # CAP_DAC_OVERRIDE
assert libc.capset(header, data) == 0
sys.exit(main(sys.argv[1:]))
"""

#: For torch: it has as many GPUs as an environment variable says, and none that could be used.
WITH_GPUS: Final = """\
import os

class cuda:
    @staticmethod
    def is_initialized():
        return False

    @staticmethod
    def device_count():
        print("a library may talk")
        return int(os.environ["GPUS"])

    @staticmethod
    def set_device(number):
        raise RuntimeError(f"rank uses GPU {number}")
"""


def thawcheck(
    *arguments: str, program: Sequence[str] = ("-m", "harness.control.cli")
) -> subprocess.CompletedProcess[str]:
    """The command as a process; never with a traceback."""
    command = [sys.executable, *program, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert "Traceback" not in without_logs(ran.stdout + ran.stderr), ran.stdout + ran.stderr
    return ran


def without_logs(said: str) -> str:
    """What pytest says, but for what ranks said: the traceback of a case that raises is a finding."""
    return re.sub(
        r"^-+ Captured rank \d+ call -+$.*?(?=^(?:=====|_____|-----))", "", said, flags=re.MULTILINE | re.DOTALL
    )


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one message with which the command, run here, ends with 2."""
    assert main(arguments) == Exit.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("thawcheck: ")
    assert err.count("\n") == 1
    return err.removeprefix("thawcheck: ").rstrip("\n")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of files of cases, to stand in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    for name, text in {"senseless": SENSELESS, "undeclarable": UNDECLARABLE, "long": LONG}.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    return tmp_path


# -- cases that are not there ----------------------------------------------------------------


def test_an_unknown_case_is_answered_with_near_names(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    said = refused(capsys, "run", "unfreeze_more_after_engin")
    assert said.startswith(
        "no case is called 'unfreeze_more_after_engin'; did you mean 'unfreeze_more_after_engine' or '"
    )
    assert said.endswith("; `thawcheck cases` lists all")
    assert refused(capsys, "run", "nowhere.py::late") == "there is no file 'nowhere.py' to look for case 'late' in"
    assert refused(capsys, "run", "long.py::answer") == (
        f"case answer: {here / 'long.py'} has no case of that name; did you mean 'answers'?"
    )
    (here / "bad.py").write_text("import no_such_module\n", encoding="utf-8")
    assert refused(capsys, "run", "bad.py::late") == (
        "bad.py cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"
    )
    (here / "bad.txt").write_text("words\n", encoding="utf-8")
    assert refused(capsys, "run", "bad.txt::late") == f"file {here / 'bad.txt'}: it cannot be imported: is it Python?"


def test_a_file_of_cases_may_be_called_as_a_module_of_python_is(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    """And may import what lies beside it."""
    (here / "json.py").write_text(f"import beside_json\n{LONG}", encoding="utf-8")
    (here / "beside_json.py").touch()
    known = sys.modules["json"]
    assert "did you mean 'answers'?" in refused(capsys, "run", "json.py::answer")
    assert sys.modules["json"] is known


def test_settings_that_no_variant_has(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    del here
    assert refused(capsys, "run", "senseless.py::no_intent", "--stage", "3") == (
        "case no_intent: no variant has stage=3; there is: mlp-z0"
    )
    assert refused(capsys, "run", "senseless.py::no_intent", "--model", "mpl", "--all-variants") == (
        "case no_intent: no variant has model=mpl; there is: mlp-z0"
    )
    assert refused(
        capsys, "run", "senseless.py::no_intent", "--world", "0", "--deadline", "inf", "--expected", "x"
    ) == ("--world must be positive, found 0; --deadline must be positive, found inf; --expected: there is no folder x")


# -- cases that make no sense ----------------------------------------------------------------


@pytest.mark.usefixtures("warm")
def test_a_case_that_makes_no_sense_is_told_all_its_faults(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    del here
    told = {name: refused(capsys, "run", f"senseless.py::{name}") for name in FAULTS}
    assert told == {name: f"case {name} is malformed: {fault}" for name, fault in FAULTS.items()}


@pytest.mark.usefixtures("warm")
def test_a_case_that_makes_no_sense_fails_as_an_item_and_is_recorded(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SENSELESS)
    result = pytester.runpytest_inprocess("--thaw-results=out.jsonl")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert [line for line in result.outlines if line.startswith("case ")] == [
        f"case {name}: {fault}" for name, fault in FAULTS.items()
    ]
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*_item.py*")
    assert {one["verdict"] for one in read_results(pytester.path / "out.jsonl")} == {"NOT_RUN"}


def test_a_case_that_cannot_be_declared_is_told_all_its_faults(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    fault = (
        "case undeclarable in undeclarable: "
        "kind 'Z' is not one of A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P, Q, CONTROL; "
        "world must be a positive number of ranks, found 0; deadline must be positive seconds, found -1.0; "
        "no model is called 'tiny_lama'; did you mean 'tiny_llama' or 'tied_llama' or 'llama'?; "
        "no init is called 'zero-init'; did you mean 'zero_init'?; "
        "no persistence is called 'none'; there is: default, zero; "
        "no precision is called 'fp8'; did you mean 'fp32'?; "
        "ZeRO stages are 0 to 3, found 4; accumulation must be 1 micro-batch or more, found 0; "
        "clipping must be a norm, 0 for none, found -1.0; "
        "variants given twice: mlp-z3-plain-persist_zero-accum0-clip-1; "
        "the function takes exactly one argument, the run"
    )
    assert refused(capsys, "run", "undeclarable.py::undeclarable") == fault
    pytester.makepyfile(undeclarable=UNDECLARABLE)
    result = pytester.runpytest_inprocess(pytester.path / "undeclarable.py")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    start = result.outlines.index(next(line for line in result.outlines if "ERROR collecting" in line))
    assert result.outlines[start + 1] == fault
    result.stdout.no_fnmatch_line("*Traceback*")
    assert thawcheck("suite", str(here / "undeclarable.py")).returncode == Exit.USAGE


def test_the_suite_counts_a_senseless_case_as_bad_input(here: Path, quick: World) -> None:
    """Beside a difference, which would give 1."""
    ran = thawcheck("suite", "senseless.py", "long.py", "--", "-k", "no_steps or (answers and z0)")
    assert ran.returncode == Exit.USAGE
    assert f"case no_steps: {FAULTS['no_steps']}" in ran.stdout.splitlines()
    assert quick.left() == {}
    del here


# -- libraries that are not there ------------------------------------------------------------


def _nothing(_: Run) -> None:
    """A case that nobody gets to run."""


def needing(*needs: str, model: str = "mlp") -> Request:
    options = Options(model=model, stage=0)
    declared = Case(_nothing, "A", "", "", "", "", variants=(options,), needs=needs)
    return Request(declared, options, world=2)


def record(launcher: ZygoteLauncher, request: Request) -> CaseRecord:
    return launcher.result(launcher.submit(request)).record


def test_a_missing_library_is_a_reason_not_to_run(launcher: ZygoteLauncher, monkeypatch: pytest.MonkeyPatch) -> None:
    found = record(launcher, needing("nonexistent_lib", "deepspeed", "other.nonexistent"))
    assert found.verdict is Verdict.NOT_RUN
    assert found.headline == (
        "not run: nonexistent_lib cannot be imported: not installed; "
        "other.nonexistent cannot be imported: not installed"
    )
    assert found.failure is not None
    assert found.failure.type == "NotRun"
    monkeypatch.setitem(sys.modules, "transformers", None)
    found = record(launcher, needing(model="tiny_llama"))
    assert found.verdict is Verdict.NOT_RUN
    assert found.headline == "not run: transformers cannot be imported: not installed"


def test_looking_for_a_library_imports_no_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "half_there").mkdir()
    (tmp_path / "half_there" / "__init__.py").write_text("raise SystemExit('imported')\n", encoding="utf-8")
    (tmp_path / "half_there" / "part.py").touch()
    assert missing_libraries(needing("half_there.part", "half_there.other", "half_there.part.deeper")) == {
        "half_there.other": "not installed",
        "half_there.part.deeper": "not installed",
    }


def test_an_environment_without_torch_runs_nothing_and_says_why(here: Path, quick: World) -> None:
    del here
    quick.plant("torch/__init__.py", "raise ImportError('libcudart.so.12: cannot open shared object file')\n")
    ran = thawcheck("run", "long.py::answers", "--stage", "0")
    assert ran.returncode == Exit.DIFFERS
    reason = "not run: torch cannot be imported: ImportError: libcudart.so.12: cannot open shared object file"
    assert ran.stdout.splitlines()[:2] == ["answers[mlp-z0], world 1, cpu: NOT_RUN", reason]
    assert quick.left() == {}


# -- devices that are not there --------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpus", "world", "reason"),
    [
        (0, 2, "not run: 2 ranks need 2 GPUs, one each; torch {torch} sees none here"),
        (1, 2, "not run: 2 ranks need 2 GPUs, one each; torch {torch} sees 1 here"),
        (0, 1, "not run: 1 rank needs a GPU; torch {torch} sees none here"),
        (2, 2, "all 2 ranks raised on the way to 'start': RuntimeError: rank uses GPU *"),
    ],
)
def test_more_ranks_than_gpus_do_not_run(
    pytester: pytest.Pytester, quick: World, gpus: int, world: int, reason: str
) -> None:
    """Counted by no process that runs on: neither pytest nor the one that forks imports CUDA for it."""
    torch = quick.libraries / "torch" / "__init__.py"
    torch.write_text(torch.read_text(encoding="utf-8") + WITH_GPUS, encoding="utf-8")
    quick.patch.setenv("GPUS", str(gpus))
    pytester.makepyfile(LONG)
    pytester.makeconftest("import sys\ndef pytest_unconfigure(): print('TORCH', 'torch' in sys.modules)\n")
    options = ["--thaw-device=cuda", f"--thaw-world={world}", "-k", "z0-accum2"]
    result = pytester.runpytest_subprocess("-s", *options, timeout=120)
    result.assert_outcomes(failed=1, deselected=5)
    result.stdout.fnmatch_lines([reason.format(torch=installed_versions()["torch"]), "TORCH False"])
    assert quick.left() == {}


def test_gpus_are_counted_by_the_real_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert Census("cuda").result() == 0


def test_a_cpu_has_room_for_any_number_of_ranks() -> None:
    assert Census("cpu").result() == 0
    assert DEVICES["cpu"].shortage(64, 0) == ""


# -- results that cannot be written ----------------------------------------------------------


def test_results_that_cannot_be_written_end_a_run_before_it_begins(here: Path) -> None:
    (here / "file").touch()
    (here / "shut").mkdir(mode=0o500)
    (here / "folder.jsonl").mkdir()
    said = {
        "file/all.jsonl": "file is no folder",
        "file/below/all.jsonl": "Not a directory",
        "folder.jsonl": "it is a folder",
        "shut/all.jsonl": "Permission denied",
        "shut/below/all.jsonl": "Permission denied",
    }
    for path, why in said.items():
        ran = thawcheck("suite", "long.py", "--results", path, program=["-c", AS_ANYONE])
        assert (ran.returncode, ran.stdout) == (Exit.USAGE, "")
        assert [line for line in ran.stderr.splitlines() if line] == [
            f"ERROR: results cannot be written to {path}: {why}"
        ]
    ran = thawcheck("suite", "long.py", "--markdown", "shut/all.md", program=["-c", AS_ANYONE])
    assert (ran.returncode, ran.stdout) == (Exit.USAGE, "")
    assert ran.stderr.startswith("ERROR: the table cannot be written to shut/all.md: Permission denied\n")


def test_a_results_file_that_another_run_writes_is_left_to_it(here: Path) -> None:
    first = ResultsFile(here / "all.jsonl")
    first.write({"number": 1})
    ran = thawcheck("suite", "long.py", "--results", "all.jsonl")
    assert (ran.returncode, ran.stdout) == (Exit.USAGE, "")
    assert ran.stderr.strip() == (
        f"ERROR: another run (process {os.getpid()}) is writing all.jsonl; wait for it, or name another file"
    )
    first.write({"number": 2})
    first.close()
    assert read_results(here / "all.jsonl") == [{"number": 1}, {"number": 2}]


def can_mount() -> bool:
    """Whether this user may have a disk of its own."""
    mount = ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"]
    return (
        shutil.which("unshare") is not None and not subprocess.run(mount, capture_output=True, check=False).returncode
    )


def full_disk(here: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command where ``out`` is a disk of four pages; what was in it then stands in ``kept``."""
    script = 'mount -t tmpfs -o size=16k none out || exit 99; "$@"; status=$?; cp -r out kept; exit $status'
    command = [sys.executable, "-m", "harness.control.cli", *arguments]
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", *command],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("disk", ["limited", *(["mounted"] if can_mount() else [])])
@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_disk_that_becomes_full_ends_a_run_and_keeps_what_is_there(
    here: Path, quick: World, disk: str, workers: str
) -> None:
    """JUnit and Markdown are on it, too."""
    (here / "out").mkdir()
    outputs = ["--results", "out/all.jsonl", "--junitxml", "out/all.xml", "--markdown", "out/all.md"]
    arguments = ["suite", "long.py", *outputs, "--", "-n", workers]
    if disk == "mounted":
        ran = full_disk(here, *arguments)
        kept = here / "kept"
    else:
        (here / "conftest.py").write_text(LIMIT, encoding="utf-8")
        ran = thawcheck(*arguments)
        kept = here / "out"
    said = ran.stdout + ran.stderr
    assert ran.returncode == Exit.USAGE, said
    assert "Traceback" not in without_logs(said)
    assert "INTERNALERROR" not in said
    records = read_results(kept / "all.jsonl")
    assert 1 <= len(records) < 6
    lines = "line before is" if len(records) == 1 else "lines before are"
    message = f"results cannot be written to out/all.jsonl: No space left on device; the {len(records)} {lines} whole"
    assert said.count(message) == 1, said
    assert (kept / "all.jsonl").read_bytes().endswith(b"}\n")
    assert f"{len(records)} results in out/all.jsonl" in said
    assert "= freeze table: cpu, 1 rank =" in said
    assert quick.left() == {}
