"""toxw is run as users run it; only what it starts (venv, pip and tox) is played by a shell script."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

TOXW: Final = Path(__file__).resolve().parents[1] / "toxw"
# A virtual environment's python would do too, but its base is what a user's PATH has.
REAL_PYTHON: Final = getattr(sys, "_base_executable", sys.executable)

# Stands for python3: real, save for the three modules that toxw starts.
FAKE_PYTHON: Final = """\
#!/bin/sh
PATH=/bin:/usr/bin:$PATH
case "$1 $2" in
  "-m venv") echo venv >>"$PLAY/log"; mkdir -p "$3/bin" && ln -s "$0" "$3/bin/python" ;;
  "-m pip") echo "pip $*" >>"$PLAY/log"; if test -e "$PLAY/pip"; then . "$PLAY/pip"; fi ;;
  "-m tox") shift 2; if test -e "$PLAY/tox"; then . "$PLAY/tox"; fi; printf '<%s>' tox "$@"; echo ;;
  *) exec "$REAL_PYTHON" "$@" ;;
esac
"""
# Python would name itself, not the script that started it; and modules can be made to be missing.
SITE: Final = """\
import os, sys
sys.executable = os.environ["FAKE_PYTHON"]
sys.modules.update(dict.fromkeys(os.environ["MISSING"].split()))
"""


@dataclass
class Checkout:
    """A folder with toxw and what it reads, and a PATH that has nothing but what a test puts there."""

    root: Path
    env: dict[str, str]

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    @property
    def private(self) -> Path:
        return self.root / "checkout" / ".toxw"

    def play(self, module: str, script: str) -> None:
        """Let pip or tox do more than succeed."""
        (self.root / "play" / module).write_text(script, encoding="utf-8")

    def pin(self, *requirements: str) -> None:
        lines = "".join(f'  "{requirement}",\n' for requirement in requirements)
        text = f"[dependency-groups]\ntox = [\n{lines}]\n"
        (self.root / "checkout" / "pyproject.toml").write_text(text, encoding="utf-8")

    def program(self, name: str, script: str) -> Path:
        path = self.bin / name
        path.write_text(script, encoding="utf-8")
        path.chmod(0o755)
        return path

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [str(self.root / "checkout" / "toxw"), *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=self.env, cwd=self.root, stdout=pipe, stderr=pipe, text=True)

    def toxw(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def log(self) -> list[str]:
        return [line.split()[0] for line in (self.root / "play" / "log").read_text("utf-8").splitlines()]

    def environments(self) -> list[str]:
        return sorted(path.name for path in self.private.iterdir() if path.name != "home" and path.is_dir())


@pytest.fixture
def bare(tmp_path: Path) -> Checkout:
    """A checkout, and no Python at all."""
    for name in ("bin", "checkout", "home", "play", "site"):
        (tmp_path / name).mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE, encoding="utf-8")
    shutil.copy(TOXW, tmp_path / "checkout" / "toxw")
    requires = "[tox]\nrequires =\n    tox>=4.65\n    tox-uv>=1.35\n"
    (tmp_path / "checkout" / "tox.ini").write_text(requires, encoding="utf-8")
    env = {
        "FAKE_PYTHON": str(tmp_path / "bin" / "python3"),
        "HOME": str(tmp_path / "home"),
        "MISSING": "",
        "PATH": str(tmp_path / "bin"),
        "PLAY": str(tmp_path / "play"),
        "PYTHONPATH": str(tmp_path / "site"),
        "REAL_PYTHON": REAL_PYTHON,
    }
    checkout = Checkout(tmp_path, env)
    checkout.pin("tox==4.65.0", "tox-uv==1.36.1")
    return checkout


@pytest.fixture
def checkout(bare: Checkout) -> Checkout:
    """A checkout, and a Python that will do."""
    bare.program("python3", FAKE_PYTHON)
    return bare


def assert_one_paragraph(run: subprocess.CompletedProcess[str], *, starts: str) -> None:
    assert run.returncode == 1
    assert run.stdout == ""
    assert run.stderr.startswith(starts)
    assert run.stderr.count("\n") == 1
    assert "Traceback" not in run.stderr


def test_first_start_makes_the_private_environment_and_the_next_ones_use_it(checkout: Checkout) -> None:
    """tox gets the arguments as they were, whatever is in them."""
    first = checkout.toxw("run", "-e", "a b", "--", "$HOME", "")
    second = checkout.toxw()

    assert (first.returncode, first.stdout) == (0, "<tox><run><-e><a b><--><$HOME><>\n")
    assert re.fullmatch(r"toxw: installing tox==4\.65\.0, tox-uv==1\.36\.1 into \S+ \(.*\)\n", first.stderr)
    assert (second.returncode, second.stdout, second.stderr) == (0, "<tox>\n", "")
    assert checkout.log() == ["venv", "pip"]


def test_exit_status_is_that_of_tox(checkout: Checkout) -> None:
    checkout.play("tox", "exit 7")

    assert checkout.toxw("run").returncode == 7


def test_no_python(bare: Checkout) -> None:
    run = bare.toxw("run")

    assert_one_paragraph(run, starts="toxw: found no Python 3.10 or newer: looked on the PATH for python3, ")
    assert "TOXW_PYTHON=" in run.stderr


def test_python_that_is_too_old_is_passed_over(bare: Checkout) -> None:
    """One that answers the question for its version with no, or cannot start, does not count."""
    bare.program("python3", "#!/bin/sh\nexit 1\n")
    bare.program("python", "#!/bin/sh\nexit 127\n")

    assert_one_paragraph(bare.toxw("run"), starts="toxw: found no Python 3.10 or newer")

    bare.env["FAKE_PYTHON"] = str(bare.program("python3.12", FAKE_PYTHON))
    assert bare.toxw("run").stdout == "<tox><run>\n"


def test_version_question_is_a_real_one(checkout: Checkout) -> None:
    """The interpreter that runs this test says yes; one that calls itself 3.9 says no."""
    site = checkout.root / "site" / "sitecustomize.py"
    site.write_text(SITE + "sys.version_info = (3, 9, 18, 'final', 0)\n", encoding="utf-8")

    assert_one_paragraph(checkout.toxw("run"), starts="toxw: found no Python 3.10 or newer")


def test_python_named_by_the_user_is_the_only_one_tried(checkout: Checkout) -> None:
    checkout.env["TOXW_PYTHON"] = str(checkout.root / "no such python")

    run = checkout.toxw("run")

    assert_one_paragraph(run, starts=f"toxw: TOXW_PYTHON={checkout.root}/no such python is not a Python 3.10")


@pytest.mark.parametrize("missing", ["ensurepip", "venv"])
def test_python_without_venv(checkout: Checkout, missing: str) -> None:
    checkout.env["MISSING"] = missing

    run = checkout.toxw("run")

    assert_one_paragraph(run, starts=f"toxw: {checkout.bin}/python3 (Python 3.")
    assert f"standard library lacks {missing}. " in run.stderr
    assert "python3-venv" in run.stderr


def test_python_with_venv_is_preferred(checkout: Checkout) -> None:
    checkout.program("python3", '#!/bin/sh\nMISSING=ensurepip exec "$REAL_PYTHON" "$@"\n')
    checkout.env["FAKE_PYTHON"] = str(checkout.program("python3.13", FAKE_PYTHON))

    assert checkout.toxw("run").stdout == "<tox><run>\n"


VERSION: Final = """\
{tox} from /somewhere/tox/__init__.py
registered plugins:
    other-9.9 at /somewhere/other.py
    {uv} at /somewhere/tox_uv/plugin.py with uv==0.13.9
"""


def install_tox(checkout: Checkout, answer: str, status: int = 0) -> None:
    script = f'if test "$1" = --version; then cat <<"END"\n{answer}END\nexit {status}; fi\necho "installed: $*"\n'
    checkout.program("tox", f"#!/bin/sh\nPATH=/bin:/usr/bin\n{script}")


@pytest.mark.parametrize("missing", ["", "ensurepip venv"], ids=["venv", "no-venv"])
@pytest.mark.parametrize(
    ("tox", "uv"),
    [
        pytest.param("4.65.0", "tox-uv-1.35.0", id="floor"),
        pytest.param("4.67.15", "tox-uv-bare-1.37.1", id="newer"),
        pytest.param("5.0.0rc1", "tox-uv-bare-2.0.0.post1", id="much-newer"),
    ],
)
def test_installed_tox_is_used(checkout: Checkout, missing: str, tox: str, uv: str) -> None:
    """Then nothing needs to be made, so that a Python without venv will do."""
    checkout.env["MISSING"] = missing
    install_tox(checkout, VERSION.format(tox=tox, uv=uv))

    run = checkout.toxw("run", "-e", "lint")

    assert (run.returncode, run.stdout, run.stderr) == (0, "installed: run -e lint\n", "")
    assert not checkout.private.exists()


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        pytest.param(VERSION.format(tox="4.64.9", uv="tox-uv-1.36.1"), 0, id="old-tox"),
        pytest.param("3.28.0 imported from /somewhere/tox/__init__.py\n", 0, id="tox-3"),
        pytest.param(VERSION.format(tox="4.65.0", uv="tox-uv-bare-1.9.0"), 0, id="old-tox-uv"),
        pytest.param("4.65.0 from /somewhere/tox/__init__.py\n", 0, id="no-tox-uv"),
        pytest.param(VERSION.format(tox="4.65.0", uv="tox-uv-1.36.1"), 127, id="fails"),
        pytest.param("", 0, id="silent"),
    ],
)
def test_installed_tox_that_will_not_do_is_left_alone(checkout: Checkout, answer: str, status: int) -> None:
    install_tox(checkout, answer, status)

    assert checkout.toxw("run").stdout == "<tox><run>\n"


def test_installed_tox_that_cannot_start_is_left_alone(checkout: Checkout) -> None:
    checkout.program("tox", "#!/no/such/interpreter\n")

    assert checkout.toxw("run").stdout == "<tox><run>\n"


def test_two_at_once_share_one_set_up(checkout: Checkout) -> None:
    checkout.play("pip", "sleep 0.5")

    runs = [checkout.start("one"), checkout.start("two")]
    results = [run.communicate(timeout=60) for run in runs]

    assert [run.returncode for run in runs] == [0, 0]
    assert [out for out, _ in results] == ["<tox><one>\n", "<tox><two>\n"]
    assert sorted(err.split()[1] for _, err in results) == ["installing", "waiting"]
    assert checkout.log() == ["venv", "pip"]


def test_interrupted_set_up_is_done_again(checkout: Checkout) -> None:
    """toxw is killed and its pip lives on for a while: the next start waits for it, and begins anew."""
    checkout.play("pip", 'kill -9 $PPID; sleep 0.5; touch "${0%/*}/left"')
    killed = checkout.toxw("run")
    (checkout.root / "play" / "pip").unlink()

    run = checkout.toxw("run")

    assert killed.returncode == -9
    assert (run.returncode, run.stdout) == (0, "<tox><run>\n")
    assert "toxw: waiting for another toxw" in run.stderr
    assert checkout.log() == ["venv", "pip", "venv", "pip"]
    assert not list(checkout.private.rglob("left"))


def test_failed_download_is_explained_and_tried_again(checkout: Checkout) -> None:
    errors = "echo WARNING: Retrying >&2; echo 'ERROR: No matching distribution found for tox' >&2; exit 1"
    checkout.play("pip", errors)
    failed = checkout.toxw("run")
    (checkout.root / "play" / "pip").unlink()

    assert failed.returncode == 1
    _, explained = failed.stderr.splitlines()
    assert explained.startswith("toxw: setting up tox failed: ")
    assert "ended with status 1: ERROR: No matching distribution found for tox (pip can be told" in explained
    assert checkout.toxw("run").stdout == "<tox><run>\n"


def test_folder_that_cannot_be_made(checkout: Checkout) -> None:
    """A file stands in for a folder without the right to write, which root would not notice."""
    checkout.private.touch()

    run = checkout.toxw("run")

    assert_one_paragraph(run, starts="toxw: cannot set up tox: ")
    assert f"{checkout.private} must be writable" in run.stderr


def test_new_pins_make_a_new_environment_and_remove_the_old(checkout: Checkout) -> None:
    checkout.toxw("run")
    before = checkout.environments()
    checkout.pin("tox==4.65.0", "tox-uv==1.36.2")

    run = checkout.toxw("run")

    assert "installing tox==4.65.0, tox-uv==1.36.2 into" in run.stderr
    assert len(before) == 1
    assert len(checkout.environments()) == 1
    assert before != checkout.environments()


def test_environment_that_a_tox_is_using_is_not_removed(checkout: Checkout) -> None:
    checkout.toxw("run")
    (before,) = checkout.environments()
    checkout.play("tox", 'touch "$PLAY/started"; read line')
    command = [str(checkout.root / "checkout" / "toxw")]
    with subprocess.Popen(command, env=checkout.env, stdin=subprocess.PIPE):
        while not (checkout.root / "play" / "started").exists():
            time.sleep(0.01)
        (checkout.root / "play" / "tox").unlink()
        checkout.pin("tox==4.65.0", "tox-uv==1.36.2")
        checkout.toxw("run")
        during = checkout.environments()

    assert before in during
    assert len(during) == 2


def test_environment_whose_python_is_gone_is_made_again(checkout: Checkout) -> None:
    checkout.toxw("run")
    (python,) = checkout.private.glob("*/bin/python")
    python.unlink()
    python.symlink_to("/no/such/python")

    run = checkout.toxw("run")

    assert (run.returncode, run.stdout) == (0, "<tox><run>\n")
    assert checkout.log() == ["venv", "pip", "venv", "pip"]


@pytest.mark.parametrize("home", ["", None], ids=["empty", "unset"])
def test_without_home_a_folder_of_the_checkout_serves(checkout: Checkout, home: str | None) -> None:
    checkout.env.pop("HOME")
    if home is not None:
        checkout.env["HOME"] = home
    checkout.play("tox", 'echo "$HOME"')

    assert checkout.toxw().stdout.splitlines()[0] == str(checkout.private / "home")


def test_unreadable_pins(checkout: Checkout) -> None:
    (checkout.root / "checkout" / "pyproject.toml").write_text('[dependency-groups]\ntox = ["tox==4"]\n', "utf-8")

    assert_one_paragraph(checkout.toxw("run"), starts=f"toxw: {checkout.root}/checkout/pyproject.toml has no ")


def test_real_venv_and_pip(bare: Checkout) -> None:
    """Nothing is played here but the packages: tox and tox-uv are two wheels of one module each."""
    wheels = bare.root / "wheels"
    wheels.mkdir()
    for name, version, source in [
        ("tox", "4.65.0", "import sys\nprint('real', sys.argv[1:], sys.prefix)\n"),
        ("tox_uv", "1.36.1", ""),
    ]:
        info = f"{name}-{version}.dist-info"
        with zipfile.ZipFile(wheels / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}/__main__.py", source)
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")
    bare.program("python3", '#!/bin/sh\nexec "$REAL_PYTHON" "$@"\n')
    del bare.env["PYTHONPATH"]
    # No configuration of this machine's pip may add a place to look.
    bare.env |= {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": str(wheels), "PIP_NO_INDEX": "1"}

    run = bare.toxw("l")

    (environment,) = bare.environments()
    assert (run.returncode, run.stdout) == (0, f"real ['l'] {bare.private / environment}\n")
