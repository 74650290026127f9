"""The tox plugin: an environment per stack, as tox users expect of any other."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from harness.control.locks import Lock, write_lock
from harness.control.stacks import load_matrix

if TYPE_CHECKING:
    from types import ModuleType

ROOT: Final = Path(__file__).resolve().parents[1]


def load_toxfile() -> ModuleType:
    """Import toxfile.py, which is beside tox.ini and on no path."""
    spec = importlib.util.spec_from_file_location("toxfile", ROOT / "toxfile.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


toxfile: Final = load_toxfile()


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        pytest.param({}, None, id="neither"),
        pytest.param({"PIP_FIND_LINKS": "/a"}, "/a", id="pip-only"),
        pytest.param({"PIP_FIND_LINKS": "/a \n /b"}, "/a,/b", id="several"),
        pytest.param({"PIP_FIND_LINKS": "/a", "UV_FIND_LINKS": "/b"}, None, id="uv-wins"),
        pytest.param({"PIP_FIND_LINKS": "/a", "UV_FIND_LINKS": ""}, "/a", id="uv-empty"),
        pytest.param({"PIP_FIND_LINKS": " "}, None, id="pip-empty"),
    ],
)
def test_find_links_for_uv(environ: dict[str, str], expected: str | None) -> None:
    assert toxfile.find_links_for_uv(environ) == expected


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        pytest.param({"3.11", "3.13"}, "3.11", id="preferred"),
        pytest.param({"3.13"}, "3.13", id="fallback"),
        pytest.param(set(), None, id="none"),
    ],
)
def test_python_is_the_first_that_uv_finds(
    monkeypatch: pytest.MonkeyPatch, there: set[str], expected: str | None
) -> None:
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess(command, 0 if command[-1] in there else 2)

    monkeypatch.setattr(subprocess, "run", run)

    assert toxfile._choose_python.__wrapped__(("3.11", "3.12", "3.13")) == expected


def test_pyenvs_pythons_come_last_on_the_path_newest_first(tmp_path: Path) -> None:
    """Its shims, which are there already, answer for the chosen versions alone."""
    for name in ("3.9.18", "3.10.13", "3.13.0", "2.7.18", "3-env"):
        (tmp_path / "versions" / name / "bin").mkdir(parents=True)

    def folder(name: str) -> str:
        return str(tmp_path / "versions" / name / "bin")

    path = toxfile.path_with_pyenv({"PYENV_ROOT": str(tmp_path), "PATH": f"/bin:{folder('3.13.0')}"})

    assert path.split(":") == ["/bin", folder("3.13.0"), folder("3.10.13"), folder("3.9.18")]


def test_pyenv_itself_is_asked_where_its_root_is(tmp_path: Path) -> None:
    folder = tmp_path / "root" / "versions" / "3.12.1" / "bin"
    folder.mkdir(parents=True)
    pyenv = tmp_path / "pyenv"
    pyenv.write_text(f'#!/bin/sh\n[ "$1" = root ] && echo "{tmp_path / "root"}"\n')
    pyenv.chmod(0o755)

    assert toxfile.path_with_pyenv({"PATH": f"{tmp_path}"}) == f"{tmp_path}:{folder}"


def test_without_pyenv_the_path_stays(tmp_path: Path) -> None:
    assert toxfile.path_with_pyenv({"PATH": str(tmp_path)}) == str(tmp_path)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with the plugin, the stacks and the tox.ini of this checkout."""
    for name in ("pyproject.toml", "tox.ini", "toxfile.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("matrix", "harness"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "observed"))
    return tmp_path


@pytest.fixture
def small(project: Path) -> Path:
    """Its stacks are two that need nothing from anywhere: one can be solved, one cannot."""
    matrix = project / "matrix"
    (matrix / "stacks.toml").write_text(
        """\
        [base.any]
        python = ["PYTHON", "3.99"]
        [stack.good]
        description = "good"
        labels = ["smoke"]
        base = "any"
        [stack.bad]
        description = "bad"
        labels = ["era"]
        base = "any"
        pins.torch = "2.2.2"
        """.replace("PYTHON", f"{sys.version_info[0]}.{sys.version_info[1]}")
    )
    ini = (project / "tox.ini").read_text("utf-8").replace("stack = latest", "stack = good")
    ini = re.sub(r"^package = wheel$", "skip_install = true", ini, flags=re.MULTILINE)
    ini = re.sub(r"^commands =\n    thawcheck suite(?:.*\\\n)+.*$", "commands = python -V", ini, flags=re.MULTILINE)
    (project / "tox.ini").write_text(ini, encoding="utf-8")
    stacks = load_matrix(matrix).stacks
    write_lock(matrix / "locks" / "good.txt", stacks["good"], Lock(stacks["good"].question, "by hand"))
    bad = Lock(stacks["bad"].question, "by hand", unsolvable="torch 2.2.2 wants what there is not")
    write_lock(matrix / "locks" / "bad.txt", stacks["bad"], bad)
    return project


def tox(project: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a real tox; the one that runs this test, if any, must not steer it."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("TOX_", "UV_FIND_LINKS"))}
    command = [sys.executable, "-m", "tox", *arguments]
    return subprocess.run(
        command, cwd=project, env=environ | env, capture_output=True, text=True, check=False, timeout=60
    )


def test_tox_list_names_and_describes_every_environment(project: Path) -> None:
    run = tox(project, "list")

    assert run.returncode == 0, run.stdout
    described = dict(re.findall(r"^(\S+) +-> (.+)$", run.stdout, re.MULTILINE))
    assert set(described) >= {"latest", "test", "lint", "types", "bench"}
    assert described["latest"] == "run the suite on the newest DeepSpeed, on the torch that most stacks share"
    assert described["ds-0.13.4"] == "run the suite on DeepSpeed 0.13.4 on torch 2.2"
    assert set(described) >= {*load_matrix(ROOT / "matrix").stacks}
    assert "[no description]" not in run.stdout


def test_tox_explains_a_faulty_file_without_a_traceback(project: Path) -> None:
    path = project / "matrix" / "stacks.toml"
    path.write_text('[stack.latest]\npython = 3\nlabels = ["smok"]\n')

    run = tox(project, "list")

    said = run.stdout + run.stderr
    assert run.returncode != 0
    assert "Traceback" not in said
    assert f"{path}:2: stack.latest.python: must be an array of strings" in said
    assert f"{path}:3: stack.latest.labels: 'smok' is not one of" in said


def test_stack_that_is_unknown_to_the_plugin(project: Path) -> None:
    ini = (project / "tox.ini").read_text("utf-8")
    (project / "tox.ini").write_text(ini.replace("stack = latest", "stack = newst", 1), encoding="utf-8")

    run = tox(project, "list")

    assert run.returncode != 0
    assert "Traceback" not in run.stdout + run.stderr
    assert "test asks for stack 'newst'" in run.stdout + run.stderr


@pytest.mark.parametrize(
    "override",
    ["", "testenv.passenv+=#,OPENBLAS_*", "testenv.pass_env+=SPECIAL"],
    ids=["plain", "old-spelling", "new-spelling"],
)
def test_environments_on_a_stack(project: Path, override: str) -> None:
    """They install the lock file alone; an override from outside adds a variable and takes none away."""
    names = ["latest", "test", "types", "bench"]
    keys = ["deps", "constraints", "pass_env"]

    run = tox(project, "config", "-e", ",".join(names), "-k", *keys, TOX_OVERRIDE=override)

    assert run.returncode == 0, run.stdout + run.stderr
    lock = re.escape(str(project / "matrix" / "locks" / "latest.txt"))
    sections = dict(re.findall(r"^\[testenv:(\w+)\]\n((?:(?!\[).*\n?)*)", run.stdout, re.MULTILINE))
    assert sorted(sections) == sorted(names)
    for section in sections.values():
        assert re.search(rf"^deps = -r {lock}$", section, re.MULTILINE)
        assert re.search(rf"^constraints = (?:-c )?{lock}$", section, re.MULTILINE)
        passed = set(re.findall(r"^  (\S+)$", section, re.MULTILINE))
        assert passed >= {"CI", "CUDA_VISIBLE_DEVICES", "OPENBLAS_*", "PIP_*", "UV_*"}
        assert ("SPECIAL" in passed) == ("SPECIAL" in override)


def test_uv_looks_where_pip_does(project: Path) -> None:
    """An environment's commands, hence its installs, see UV_FIND_LINKS."""
    show = "import os; print('links:', os.environ.get('UV_FIND_LINKS'))"
    with (project / "tox.ini").open("a", encoding="utf-8") as ini:
        ini.write(f'\n[testenv:show]\nskip_install = true\ncommands = python -c "{show}"\n')

    run = tox(project, "run", "-e", "show", PIP_FIND_LINKS="/some/where /else/where")

    assert "links: /some/where,/else/where\n" in run.stdout


def test_a_label_chooses_environments(small: Path) -> None:
    """As do several names, and patterns: what tox users know."""
    by_label = tox(small, "list", "-m", "smoke", "--no-desc", "-q")
    by_factor = tox(small, "list", "-f", "good", "--no-desc", "-q")
    ran = tox(small, "run", "-m", "smoke")

    assert by_label.stdout.split() == ["good"]
    assert by_factor.stdout.split() == ["good"]
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "good: OK" in ran.stdout


def test_an_unsolvable_stack_is_skipped_with_the_solvers_reason(small: Path) -> None:
    run = tox(small, "run", "-e", "bad,good")

    assert "UNSOLVABLE: torch 2.2.2 wants what there is not" in run.stdout
    assert "bad: SKIP" in run.stdout
    assert "good: OK" in run.stdout


def test_a_stack_whose_python_is_missing_is_skipped_with_a_reason(small: Path) -> None:
    path = small / "matrix" / "stacks.toml"
    path.write_text(re.sub(r'python = \["[\d.]+", ', 'python = ["3.98", ', path.read_text()))
    stack = load_matrix(small / "matrix").stacks["good"]
    write_lock(small / "matrix" / "locks" / "good.txt", stack, Lock(stack.question, "by hand"))

    run = tox(small, "run", "-e", "good")

    assert "good: SKIP" in run.stdout
    assert "there is no Python 3.98 or 3.99 here" in run.stdout + run.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(lambda text: text + "torch==2.2.2\n", "was edited by hand", id="edited"),
        pytest.param(lambda text: text.replace("# question: ", "# question: 0"), "asks for something else", id="stale"),
        pytest.param(lambda _: None, "there is no lock file", id="missing"),
    ],
)
def test_no_stack_is_installed_by_a_lock_that_does_not_answer_it(
    small: Path, change: Callable[[str], str | None], said: str
) -> None:
    path = small / "matrix" / "locks" / "good.txt"
    text = change(path.read_text())
    path.write_text(text) if text is not None else path.unlink()

    run = tox(small, "run", "-e", "good")

    assert run.returncode != 0
    assert said in run.stdout + run.stderr
    assert "solve it with `thawcheck lock good`" in run.stdout + run.stderr
    assert "Traceback" not in run.stdout + run.stderr
