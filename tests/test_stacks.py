"""matrix/stacks.toml and matrix/releases.toml: what they become, and that all faults are told, each with its line."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from harness.control._exit import Exit
from harness.control.cli import main
from harness.control.stacks import Matrix, MatrixError, load_matrix
from harness.control.stacks._read import Era
from harness.control.stacks._stack import normalize

ROOT = Path(__file__).resolve().parents[1]

RELEASES = """\
[torch]
"2.2.2" = 2024-03-27
"2.13.0" = 2026-07-08

[deepspeed]
"0.9.0" = 2023-04-13
"0.10.0" = 2023-07-17
"0.10.3" = 2023-09-11
"0.11.0" = 2023-10-06
"0.11.1" = 2023-10-09

[transformers]
"4.36.2" = 2023-12-18
"4.37.2" = 2024-01-29

[accelerate]
"0.25.0" = 2023-12-01
"0.26.1" = 2024-01-11

[axolotl]
"0.6.0" = 2024-12-09

[numpy]
"1.26.4" = 2024-02-05

[peft]
"0.7.1" = 2023-12-12
"""

BASE = """\
[base.held]
python = ["3.11", "3.12"]
as_of = 2026-11-29
pins.torch = "2.13.0"
pins.deepspeed = "0.11.1"
floats = ["numpy"]
"""

LATEST = """
[stack.latest]
description = "the newest"
labels = ["smoke"]
base = "held"
"""

TOOLS = ("pytest", "pytest-timeout", "pytest-xdist")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "releases.toml").write_text(RELEASES)
    return tmp_path


def load(folder: Path, stacks: str, *taken: str) -> Matrix:
    (folder / "stacks.toml").write_text(stacks)
    return load_matrix(folder, taken)


def faults(folder: Path, stacks: str, *taken: str) -> list[str]:
    """Without the folder in front."""
    with pytest.raises(MatrixError) as caught:
        load(folder, stacks, *taken)
    return [fault.replace(f"{folder}/", "") for fault in caught.value.faults]


def sweep(**changes: str) -> str:
    keys = {
        "name": '"ds-{version}"',
        "description": '"DeepSpeed {version}"',
        "label": '"deepspeed"',
        "base": '"held"',
        "moves": '"deepspeed"',
        "range": '">=0.10"',
        "take": '"every"',
        **changes,
    }
    return BASE + "\n[sweep.ds]\n" + "".join(f"{key} = {value}\n" for key, value in keys.items() if value)


def test_a_stack_has_what_its_base_holds(folder: Path) -> None:
    stack = load(folder, BASE + LATEST).stacks["latest"]

    assert stack.python == ("3.11", "3.12")
    assert stack.requires == ("torch==2.13.0", "deepspeed==0.11.1", "numpy", *TOOLS)
    assert stack.pins == {"torch": "2.13.0", "deepspeed": "0.11.1"}
    assert stack.as_of == dt.date(2026, 11, 29)
    assert stack.labels == ("smoke",)
    assert stack.why["torch"] == "held by [base.held]"


def test_a_stack_may_give_anything_of_its_base_anew(folder: Path) -> None:
    changes = 'python = ["3.10"]\nas_of = 2024-03-31\npins.torch = "2.2.2"\npins.numpy = "<2"\nfloats = ["DeepSpeed"]\n'

    stack = load(folder, BASE + LATEST + changes).stacks["latest"]

    assert stack.python == ("3.10",)
    assert stack.requires == ("torch==2.2.2", "numpy<2", "deepspeed", *TOOLS)
    assert stack.as_of == dt.date(2024, 3, 31)
    assert stack.why["torch"] == "set by [stack.latest]"
    assert stack.why["deepspeed"].startswith("floats, the newest as of 2024-03-31")


def test_a_floating_package_is_left_out_before_its_first_release(folder: Path) -> None:
    early = load(folder, BASE + LATEST + 'as_of = 2024-03-31\nfloats = ["axolotl"]\n').stacks["latest"]
    late = load(folder, BASE + LATEST + 'as_of = 2024-12-09\nfloats = ["axolotl"]\n').stacks["latest"]

    assert "axolotl" not in early.requires
    assert early.why["axolotl"] == "left out: it had no release by 2024-03-31"
    assert "axolotl" in late.requires


@pytest.mark.parametrize(
    ("take", "names"),
    [
        ("every", ["ds-0.10.0", "ds-0.10.3", "ds-0.11.0", "ds-0.11.1"]),
        ("last-of-minor", ["ds-0.10.3", "ds-0.11.1"]),
        ("first-and-last-of-minor", ["ds-0.10.0", "ds-0.10.3", "ds-0.11.0", "ds-0.11.1"]),
    ],
)
def test_a_sweep_moves_along_the_releases_of_its_range(folder: Path, take: str, names: list[str]) -> None:
    """0.9.0 lies outside, and 0.10 comes after 0.9 though not as text."""
    stacks = load(folder, sweep(take=f'"{take}"')).stacks

    assert list(stacks) == names
    assert [stack.pins["deepspeed"] for stack in stacks.values()] == [name.removeprefix("ds-") for name in names]
    assert {stack.pins["torch"] for stack in stacks.values()} == {"2.13.0"}
    assert stacks["ds-0.10.3"].description == "DeepSpeed 0.10.3"
    assert (stacks["ds-0.10.3"].moves, stacks["ds-0.10.3"].at) == ("deepspeed", "0.10.3")


def test_companions_are_of_the_day_when_the_moving_release_came_out(folder: Path) -> None:
    stacks = load(
        folder,
        sweep(name='"tf-{version}"', moves='"transformers"', range='">=4"', of_its_day='["accelerate"]'),
    ).stacks

    pins = {name: stack.pins["accelerate"] for name, stack in stacks.items()}
    assert pins == {"tf-4.36.2": "0.25.0", "tf-4.37.2": "0.26.1"}
    assert stacks["tf-4.36.2"].why["accelerate"] == "the newest on the day when transformers 4.36.2 came out"


def test_eras_end_with_their_quarters(folder: Path) -> None:
    stacks = load(
        folder,
        sweep(name='"era-{version}"', moves='"as_of"', range="", take="", values='["2023q4", "2024q2"]'),
    ).stacks

    assert {name: str(stack.as_of) for name, stack in stacks.items()} == {
        "era-2023q4": "2023-12-31",
        "era-2024q1": "2024-03-31",
        "era-2024q2": "2024-06-30",
    }


@pytest.mark.parametrize(
    ("text", "day", "after"), [("2024q1", "2024-03-31", "2024q2"), ("2024q4", "2024-12-31", "2025q1")]
)
def test_quarters(text: str, day: str, after: str) -> None:
    assert str(Era.of(text).last_day) == day
    assert str(Era.of(text).next) == after


def test_a_sweep_over_pythons(folder: Path) -> None:
    stacks = load(
        folder,
        sweep(name='"on-python{version}"', moves='"python"', range="", take="", values='["3.10", "3.13"]'),
    ).stacks

    assert {name: stack.python for name, stack in stacks.items()} == {
        "on-python3.10": ("3.10",),
        "on-python3.13": ("3.13",),
    }


def test_an_exclusion_takes_stacks_out_of_sweeps_and_is_remembered(folder: Path) -> None:
    text = sweep() + '[[exclude]]\nwhere = {deepspeed = "<0.11", torch = ">=2.13"}\nreason = "too old"\n'

    matrix = load(folder, text)

    assert list(matrix.stacks) == ["ds-0.11.0", "ds-0.11.1"]
    assert [(one.name, one.reason) for one in matrix.excluded] == [("ds-0.10.0", "too old"), ("ds-0.10.3", "too old")]


def test_the_question_changes_with_all_that_decides_the_solution(folder: Path) -> None:
    plain = load(folder, BASE + LATEST).stacks["latest"]
    described = load(folder, BASE + LATEST.replace("the newest", "another")).stacks["latest"]
    changed = [
        load(folder, BASE + LATEST + change).stacks["latest"]
        for change in ('python = ["3.12"]', "as_of = 2026-01-01", 'pins.torch = "2.2.2"', 'floats = ["peft"]')
    ]

    assert described.question == plain.question
    assert len({plain.question, *(one.question for one in changed)}) == 5


def test_a_stack_may_want_a_package_whole(folder: Path) -> None:
    """Its own dependencies then decide what floats, so that is another question."""
    text = BASE + LATEST + 'pins.axolotl = "0.6.0"\n'
    plain = load(folder, text).stacks["latest"]
    whole = load(folder, text + 'whole = ["Axolotl"]\n').stacks["latest"]

    assert (plain.whole, whole.whole) == ((), ("axolotl",))
    assert whole.requires == plain.requires
    assert whole.question != plain.question
    assert whole.why["axolotl"].startswith("set by [stack.latest]; its own dependencies are installed, too")
    assert {**whole.why, "axolotl": ""} == {**plain.why, "axolotl": ""}


def test_a_dev_stack_takes_what_is_newest(folder: Path) -> None:
    text = BASE + '[stack.dev]\ndescription = "main"\nlabels = ["dev"]\ndev = true\npython = ["3.12"]\n'
    text += 'requires = ["torch", "deepspeed @ git+https://example.org/d.git"]\n'

    stack = load(folder, text).stacks["dev"]

    assert stack.dev
    assert stack.as_of is None
    assert stack.requires == ("torch", "deepspeed @ git+https://example.org/d.git", *TOOLS)


def test_all_faults_of_both_files_come_at_once_each_with_its_line(folder: Path) -> None:
    (folder / "releases.toml").write_text(RELEASES + '[extra]\n"1.x" = 2024-01-01\n"1.26.4" = "2024-02-05"\n')
    text = BASE.replace('"2.13.0"', '"=2"') + '[extra]\n[stack.latest]\nbase = "hold"\ndescripton = "typo"\n'

    known = "description labels base dev prereleases requires whole python as_of pins floats".split()
    assert faults(folder, text) == [
        "releases.toml:29: extra.1.x: is no version",
        "releases.toml:30: extra.1.26.4: must be the day it came out, such as 2024-03-31, found '2024-02-05'",
        "stacks.toml:7: extra: unknown key; known are base, stack, sweep, exclude, undated",
        "stacks.toml:4: base.held.pins.torch: '=2' is neither a version nor a range such as '<2'",
        f"stacks.toml:10: stack.latest.descripton: unknown key; known are {', '.join(known)}",
        "stacks.toml:8: stack.latest: description is missing",
    ]


@pytest.mark.parametrize(
    ("stacks", "fault"),
    [
        pytest.param("", "stacks.toml: there is no stack: write at least one [stack.NAME]", id="empty"),
        pytest.param("[stack.latest\n", "stacks.toml:1: is not valid TOML: ", id="no TOML"),
        pytest.param("stack = 1\n", "stacks.toml:1: stack: must be tables [stack.NAME], found 1", id="no tables"),
        pytest.param(
            BASE + LATEST.replace('"held"', '"hold"'),
            "stacks.toml:11: stack.latest.base: no base is called 'hold'; there is: held",
            id="unknown base",
        ),
        pytest.param(
            BASE + LATEST + 'pins.torch = "2.14.0"\n',
            "stacks.toml:12: stack.latest.pins.torch: torch 2.14.0 is no release that matrix/releases.toml "
            "knows; the nearest before it is 2.13.0",
            id="unknown version",
        ),
        pytest.param(
            BASE + LATEST.replace('"smoke"', '"smok"'),
            "stacks.toml:10: stack.latest.labels: 'smok' is not one of smoke, deepspeed, ",
            id="unknown label",
        ),
        pytest.param(
            BASE + LATEST + "as_of = '2024-03-31'\n",
            "stacks.toml:12: stack.latest.as_of: must be a day such as 2024-03-31, without quotes, found '2024-03-31'",
            id="a day in quotes",
        ),
        pytest.param(
            BASE + LATEST + 'python = ["py39"]\n',
            "stacks.toml:12: stack.latest.python: 'py39' is no version such as '3.11'",
            id="no Python",
        ),
        pytest.param(
            BASE + LATEST + 'floats = ["peft", "peft"]\n',
            "stacks.toml:12: stack.latest.floats: 'peft' stands there twice",
            id="twice",
        ),
        pytest.param(
            sweep(moves='"deepsped"'),
            "stacks.toml:13: sweep.ds.moves: 'deepsped' is no axis; there is: python, as_of, torch, deepspeed, ",
            id="unknown axis",
        ),
        pytest.param(
            sweep(range='">=1"'),
            "stacks.toml:14: sweep.ds.range: '>=1' holds no known release of deepspeed",
            id="empty range",
        ),
        pytest.param(
            sweep(range='"0.10 or so"'),
            "stacks.toml:14: sweep.ds.range: is no range such as '>=0.16,<0.19.3'",
            id="no range",
        ),
        pytest.param(
            sweep(take='"some"'), "stacks.toml:15: sweep.ds.take: is not one of every, last-of-minor, ", id="take"
        ),
        pytest.param(sweep(name='"ds"'), "stacks.toml:9: sweep.ds.name: must hold {version}", id="one name for all"),
        pytest.param(
            sweep(moves='"as_of"', range="", take="", values='["2024-1"]'),
            "stacks.toml:14: sweep.ds.values: '2024-1' is no quarter such as '2024q1'",
            id="no quarter",
        ),
        pytest.param(
            sweep(values='["3.10"]'), "stacks.toml:16: sweep.ds.values: has no meaning where deepspeed moves", id="both"
        ),
        pytest.param(
            sweep() + '[[exclude]]\nwhere = {torch = "<2"}\nreason = "old"\n',
            "stacks.toml:16: exclude[1]: excludes nothing: no sweep has such a stack",
            id="idle exclusion",
        ),
        pytest.param(
            sweep() + '[[exclude]]\nwhere = {deepspeed = "<0.11"}\n',
            "stacks.toml:16: exclude[1]: reason is missing",
            id="exclusion without a reason",
        ),
        pytest.param(
            BASE + LATEST + "prereleases = true\n",
            "stacks.toml:12: stack.latest.prereleases: only dev stacks take pre-releases",
            id="pre-releases",
        ),
        pytest.param(
            BASE + LATEST + "dev = true\n",
            "stacks.toml:12: stack.latest.dev: dev stacks, and they alone, say what they require",
            id="dev without requirements",
        ),
        pytest.param(
            BASE + LATEST + 'labels = ["smoke"]\n',
            "stacks.toml:12: is not valid TOML: Cannot overwrite a value",
            id="no TOML, and where",
        ),
        pytest.param("stack = [\n1,", "stacks.toml:2: is not valid TOML: ", id="no TOML to its end"),
        pytest.param(
            f"stack = {'[' * 9999}{']' * 9999}\n",
            "stacks.toml: tables or arrays are nested too deeply",
            id="too deep to be parsed",
        ),
        pytest.param(
            f"stack{'.a' * 2000} = 1\n",
            "stacks.toml: tables or arrays are nested too deeply",
            id="too deep to be shown",
        ),
        pytest.param(
            sweep(name='"on-python{version}"', moves='"python"', range="", take="", values='["banana"]'),
            "stacks.toml:14: sweep.ds.values: 'banana' is no version such as '3.11'",
            id="no Python to move to",
        ),
        pytest.param(
            sweep(moves='"as_of"', range="", take="", values='["2024q2", "2024q1"]'),
            "stacks.toml:14: sweep.ds.values: must be the first and the last quarter, in this order, found 2024q2, ",
            id="quarters backwards",
        ),
        pytest.param(
            sweep(moves='"as_of"', range="", take="", values='["2024q1", "2024q2", "2024q3"]'),
            "stacks.toml:14: sweep.ds.values: must be the first and the last quarter, in this order, found 2024q1, ",
            id="a third quarter",
        ),
        pytest.param(
            BASE + LATEST + 'whole = ["axolotl"]\n',
            "stacks.toml:12: stack.latest.whole: the stack has no axolotl: pin it, or let it float",
            id="whole, and not there",
        ),
        pytest.param(
            '[stack.dev]\ndescription = "main"\nlabels = ["dev"]\ndev = true\nrequires = ["a"]\nwhole = ["a"]\n',
            "stacks.toml:6: stack.dev.whole: a dev stack is not locked, and what it requires is installed as ",
            id="whole, and not locked",
        ),
        pytest.param(
            BASE + LATEST + 'pins.pefft = "0.7.1"\n',
            "stacks.toml:12: stack.latest.pins.pefft: matrix/releases.toml knows no 'pefft'; did you mean 'peft'?",
            id="unknown package",
        ),
        pytest.param(
            BASE.replace('["numpy"]', '["nunpy"]') + LATEST,
            "stacks.toml:6: base.held.floats: matrix/releases.toml knows no 'nunpy'; did you mean 'numpy'?",
            id="unknown package that floats",
        ),
        pytest.param(
            BASE + LATEST + 'pins.numpy = "1.26.4"\npins.NumPy = "<2"\n',
            "stacks.toml:13: stack.latest.pins.NumPy: is the same package as numpy",
            id="one package twice",
        ),
    ],
)
def test_a_fault_is_told_with_its_place(folder: Path, stacks: str, fault: str) -> None:
    found = faults(folder, stacks)

    assert any(one.startswith(fault) for one in found), found


def test_what_many_stacks_share_is_told_once(folder: Path) -> None:
    """Each of the four would tell it."""
    unknown = sweep(of_its_day='["pefft"]').replace('"2.13.0"', '"2.14.0"')

    assert faults(folder, unknown) == [
        (
            "stacks.toml:4: base.held.pins.torch: torch 2.14.0 is no release that matrix/releases.toml knows; "
            "the nearest before it is 2.13.0"
        ),
        "stacks.toml:16: sweep.ds.of_its_day: matrix/releases.toml knows no 'pefft'; did you mean 'peft'?",
    ]
    assert faults(folder, sweep(of_its_day='["axolotl"]')) == [
        "stacks.toml:16: sweep.ds.of_its_day: matrix/releases.toml knows no release of axolotl up to 2023-07-17"
    ]


def test_a_package_without_known_releases_is_named_as_such(folder: Path) -> None:
    changes = 'floats = ["SetupTools"]\npins.wheel = "<1"\n'

    stack = load(folder, f'undated = ["setuptools", "Wheel"]\n{BASE}{LATEST}{changes}').stacks["latest"]

    assert {"setuptools", "wheel<1"} <= {*stack.requires}


def test_an_exclusion_may_spell_packages_as_it_likes(folder: Path) -> None:
    where = 'where = {DeepSpeed = "<0.11", python = "==3.11"}\n'

    assert list(load(folder, sweep() + f'[[exclude]]\n{where}reason = "too old"\n').stacks) == [
        "ds-0.11.0",
        "ds-0.11.1",
    ]


def test_names_are_compared_as_indexes_do() -> None:
    assert normalize("A__b-.C") == "a-b-c"


@pytest.mark.parametrize(
    ("releases", "fault"),
    [
        ("", "releases.toml: names no package: write a table [PACKAGE] of releases and dates"),
        ("torch = 1\n", "releases.toml:1: torch: must be a table of releases and dates, found 1"),
        ("[Torch]\n'2.2.2' = 2024-03-27\n", "releases.toml:1: Torch: must be written as indexes do: torch"),
        (
            "[torch]\n'2.2.2' = 2024-03-27\n'2.2.02' = 2024-03-28\n",
            "releases.toml:3: torch.2.2.02: is the same release as 2.2.2",
        ),
    ],
)
def test_a_fault_of_the_releases(folder: Path, releases: str, fault: str) -> None:
    (folder / "releases.toml").write_text(releases)

    assert faults(folder, BASE + LATEST) == [fault]


@pytest.mark.parametrize("kind", ["folder", "loop", "nothing"])
def test_stacks_that_are_no_file(folder: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "stacks.toml"
    if kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)

    assert main(["stacks", "--matrix", str(folder)]) == Exit.USAGE

    assert (
        capsys.readouterr().err
        == {
            "folder": f"thawcheck: the matrix has faults:\n{path}: cannot be read: Is a directory\n",
            "loop": f"thawcheck: the matrix has faults:\n{path}: cannot be read: Too many levels of symbolic links\n",
            "nothing": f"thawcheck: there is no {path}; run at the root of a checkout, or give --matrix DIR\n",
        }[kind]
    )


@pytest.mark.parametrize("name", ["torch-2.6", "torch-3.11", "torch-py39", "torch-py", "torch-3"])
def test_a_name_that_tox_would_misread(folder: Path, name: str) -> None:
    factor = name.partition("-")[2]

    assert faults(folder, BASE + LATEST.replace("stack.latest", f'stack."{name}"')) == [
        f"stacks.toml:8: stack.{name}: {name!r}: tox would read {factor!r} as another Python version"
    ]


@pytest.mark.parametrize("name", ["ds-0.13.4", "torch-2.6.0", "tf-4.46.3", "main", "latest-python3.11", "on-py311"])
def test_a_name_that_is_fine(folder: Path, name: str) -> None:
    assert list(load(folder, BASE + LATEST.replace("stack.latest", f'stack."{name}"')).stacks) == [name]


@pytest.mark.parametrize("name", ["Bad Name", "with_underscore", "-dash"])
def test_a_name_that_is_none(folder: Path, name: str) -> None:
    (fault,) = faults(folder, BASE + LATEST.replace("stack.latest", f'stack."{name}"'))

    assert "must be of lower-case letters, digits, dots and dashes" in fault


def test_names_that_are_taken(folder: Path) -> None:
    twice = sweep() + LATEST.replace("stack.latest", 'stack."ds-0.10.3"')

    assert faults(folder, BASE + LATEST, "latest") == [
        "stacks.toml:8: stack.latest: tox.ini has an environment called 'latest'"
    ]
    assert faults(folder, twice) == ["stacks.toml:8: sweep.ds: a stack is called 'ds-0.10.3' already"]


def test_files_that_are_missing(tmp_path: Path) -> None:
    with pytest.raises(MatrixError) as caught:
        load_matrix(tmp_path)

    assert caught.value.faults == (
        f"{tmp_path / 'releases.toml'}: cannot be read: No such file or directory",
        f"{tmp_path / 'stacks.toml'}: cannot be read: No such file or directory",
    )


def test_the_matrix_of_this_checkout_covers_what_it_promises() -> None:
    matrix = load_matrix(ROOT / "matrix")
    pins = [stack.pins for stack in matrix.stacks.values()]

    def on(package: str) -> set[str]:
        return {one[package] for one in pins if package in one}

    assert {"latest", "oldest", "newest", "ds-0.13.4", "tf-4.46.3", "ax-0.12.2", "era-2024q1"} <= {*matrix.stacks}
    assert on("deepspeed") >= {*matrix.releases["deepspeed"]}
    assert on("axolotl") >= {*matrix.releases["axolotl"]}
    for label in ("smoke", "deepspeed", "transformers", "axolotl", "torch", "peft", "python", "era", "dev"):
        assert matrix.labelled(label), label
    assert {matrix.stacks[name].python[0] for name in matrix.stacks} == {"3.10", "3.11", "3.12", "3.13"}
