"""The tox plugin: what it makes of matrix/stacks.toml, and that a faulty file is explained at once."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from types import ModuleType

ROOT: Final = Path(__file__).resolve().parents[1]


def load_toxfile() -> ModuleType:
    """Import toxfile.py, which is beside tox.ini and on no path."""
    spec = importlib.util.spec_from_file_location("toxfile", ROOT / "toxfile.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["toxfile"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


toxfile: Final = load_toxfile()

GOOD: Final = """\
[stack.latest]
description = "the newest"
python = ["3.11", "3.12"]
requires = ["torch==2.13.0", "Flash_Attn==1.0", "pytest"]
"""
LOCK: Final = "# made by hand\nflash-attn==1.0\npytest==9.2.0  # via\ntorch==2.13.0\n"


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    """A matrix folder with a lock file for the stack `latest`."""
    (tmp_path / "matrix" / "locks").mkdir(parents=True)
    (tmp_path / "matrix" / "locks" / "latest.txt").write_text(LOCK, encoding="utf-8")
    return tmp_path / "matrix"


def write_stacks(matrix: Path, text: str) -> Path:
    path = matrix / "stacks.toml"
    path.write_text(text, encoding="utf-8")
    return path


def faults_in(path: Path, *, taken: tuple[str, ...] = ()) -> tuple[str, ...]:
    with pytest.raises(toxfile.StackFileError) as caught:
        toxfile.load_stacks(path, taken)
    assert caught.value.path == path
    faults: tuple[str, ...] = caught.value.faults
    return faults


def test_good_file(matrix: Path) -> None:
    stacks = toxfile.load_stacks(write_stacks(matrix, GOOD))

    assert stacks == {
        "latest": toxfile.Stack(
            name="latest",
            description="the newest",
            python=("3.11", "3.12"),
            requires=("torch==2.13.0", "Flash_Attn==1.0", "pytest"),
            lock=matrix / "locks" / "latest.txt",
        )
    }


def test_stacks_of_this_checkout() -> None:
    assert "latest" in toxfile.load_stacks(ROOT / "matrix" / "stacks.toml")


def test_all_faults_come_at_once(matrix: Path) -> None:
    """The message names the file, and every fault by its place and what was found there."""
    path = write_stacks(
        matrix,
        """\
        version = 1
        [stack.latest]
        descripton = "typo"
        python = ["3.11", 3.12, "3.11", "py39"]
        requires = ["torch==2.12.0", "torch>=2", "numpy"]
        [stack."Bad Name"]
        description = "two\\nlines"
        python = []
        requires = "torch"
        [stack.gone-2_13]
        description = false
        python = 3.11
        requires = ["torch==2.13.0"]
        """,
    )
    locks = matrix / "locks"

    with pytest.raises(toxfile.StackFileError) as caught:
        toxfile.load_stacks(path)

    assert str(caught.value).splitlines() == [
        f"{path}: 18 faults",
        "  version: unknown key; only tables [stack.NAME] may stand here",
        "  stack.latest.descripton: unknown key; known are description, python, requires",
        "  stack.latest.description: missing",
        "  stack.latest.python: 3.12 must be a string, found a float",
        "  stack.latest.python: '3.11' stands there twice",
        "  stack.latest.python: 'py39' is not a version such as '3.11'",
        "  stack.latest.requires: 'torch==2.12.0', but latest.txt has 2.13.0; solve the lock again",
        "  stack.latest.requires: 'torch>=2' is neither a bare name nor an exact pin such as 'torch==2.13.0'",
        "  stack.latest.requires: 'numpy' is not in latest.txt; solve the lock again",
        "  stack.Bad Name: the name must be of lower-case letters, digits, dots and dashes",
        "  stack.Bad Name.description: must be one line of text",
        "  stack.Bad Name.python: must be an array of strings with at least one entry, found an empty array",
        "  stack.Bad Name.requires: must be an array of strings with at least one entry, found a string",
        f"  stack.Bad Name.requires: no lock file {locks / 'Bad Name.txt'} that can be read",
        "  stack.gone-2_13: the name must be of lower-case letters, digits, dots and dashes",
        "  stack.gone-2_13.description: must be a string, found a boolean",
        "  stack.gone-2_13.python: must be an array of strings with at least one entry, found a float",
        f"  stack.gone-2_13.requires: no lock file {locks / 'gone-2_13.txt'} that can be read",
    ]


@pytest.mark.parametrize("text", ["", "stack = 1", "stack = {}"], ids=["empty", "number", "no-table"])
def test_no_stack(matrix: Path, text: str) -> None:
    assert faults_in(write_stacks(matrix, text)) == ("stack: there must be at least one table [stack.NAME]",)


def test_stack_that_is_no_table(matrix: Path) -> None:
    assert faults_in(write_stacks(matrix, "[stack]\nlatest = [1]")) == (
        "stack.latest: must be a table, found an array",
    )


def test_invalid_toml(matrix: Path) -> None:
    (fault,) = faults_in(write_stacks(matrix, "[stack.latest\n"))

    assert fault.startswith("is not valid TOML: ")
    assert "line 1" in fault


def test_no_file(matrix: Path) -> None:
    assert faults_in(matrix / "stacks.toml") == ("cannot be read: No such file or directory",)


@pytest.mark.parametrize("factor", ["2.6", "3.11", "py311", "py", "3"])
def test_name_that_tox_would_misread(matrix: Path, factor: str) -> None:
    (matrix / "locks" / f"torch-{factor}.txt").write_text(LOCK, encoding="utf-8")
    path = write_stacks(matrix, GOOD.replace("stack.latest", f'stack."torch-{factor}"'))

    assert faults_in(path) == (f"stack.torch-{factor}: tox would read {factor!r} in the name as a Python version",)


@pytest.mark.parametrize("name", ["ds-0.13.4", "torch-2.6.0", "hf-4.46.3", "main", "ds-main-cpu"])
def test_name_that_is_fine(matrix: Path, name: str) -> None:
    (matrix / "locks" / f"{name}.txt").write_text(LOCK, encoding="utf-8")

    assert list(toxfile.load_stacks(write_stacks(matrix, GOOD.replace("stack.latest", f'stack."{name}"')))) == [name]


def test_name_that_tox_ini_has(matrix: Path) -> None:
    assert faults_in(write_stacks(matrix, GOOD), taken=("latest",)) == (
        "stack.latest: tox.ini has an environment of this name",
    )


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
        pytest.param(set(), "3.11", id="none"),
    ],
)
def test_python_is_the_first_that_uv_finds(monkeypatch: pytest.MonkeyPatch, there: set[str], expected: str) -> None:
    """With none of them, tox-uv gets the preferred one and says that it is missing."""

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess(command, 0 if command[-1] in there else 2)

    monkeypatch.setattr(subprocess, "run", run)

    assert toxfile._choose_python.__wrapped__(("3.11", "3.12", "3.13")) == expected


@pytest.fixture
def project(matrix: Path) -> Path:
    """A project with the plugin, the stacks and the tox.ini of this checkout."""
    project = matrix.parent
    for name in ("pyproject.toml", "tox.ini", "toxfile.py"):
        shutil.copy(ROOT / name, project / name)
    shutil.copytree(ROOT / "matrix", matrix, dirs_exist_ok=True)
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
    assert described["latest"] == "run the suite on the newest releases of everything"
    assert "[no description]" not in run.stdout


def test_tox_explains_a_faulty_file_without_a_traceback(project: Path) -> None:
    path = write_stacks(project / "matrix", "[stack.latest]\npython = 3\n")

    run = tox(project, "list")

    assert run.returncode != 0
    assert "Traceback" not in run.stdout + run.stderr
    assert f"{path}: 3 faults" in run.stdout + run.stderr


def test_stack_that_is_unknown_to_the_plugin(project: Path) -> None:
    ini = (project / "tox.ini").read_text("utf-8")
    (project / "tox.ini").write_text(ini.replace("stack = latest", "stack = newest", 1), encoding="utf-8")

    run = tox(project, "list")

    assert run.returncode != 0
    assert "Traceback" not in run.stdout + run.stderr
    assert "test asks for stack 'newest'" in run.stdout + run.stderr


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
