"""The workflow files: what they may do, and that the commands of the nightly run fit together."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from small_matrix import solve
from sweep_world import ORDER, Checkout

from harness.cell import Verdict
from harness.cell.outcome._observed import load_all, read_observed
from harness.control._exit import Exit

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / ".github" / "workflows"
NAMES: Final = sorted(path.name for path in FOLDER.glob("*.y*ml"))


def workflow(name: str) -> dict[str, Any]:
    plain: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    return plain


def steps(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for job, plain in workflow(name)["jobs"].items():
        for step in plain["steps"]:
            yield job, step


# -- what they may do ------------------------------------------------------------------------


def test_every_workflow_is_checked_with_the_style() -> None:
    lint = (ROOT / "tox.ini").read_text(encoding="utf-8").partition("[testenv:lint]")[2].partition("[testenv:")[0]
    (command,) = (line for line in lint.splitlines() if "vendor.github-workflows" in line)
    assert sorted(Path(word).name for word in command.split() if word.startswith(".github/")) == NAMES
    assert NAMES == ["ci.yml", "nightly.yml"]


@pytest.mark.parametrize("name", NAMES)
def test_permissions_are_few(name: str) -> None:
    plain = workflow(name)
    assert plain["permissions"] == {"contents": "read"}
    more = {job: one["permissions"] for job, one in plain["jobs"].items() if "permissions" in one}
    assert more == ({"changes": {"contents": "read", "issues": "write"}} if name == "nightly.yml" else {})
    assert plain["concurrency"]["group"]
    assert all("timeout-minutes" in job for job in plain["jobs"].values())


def test_actions_have_one_version_everywhere() -> None:
    used: dict[str, set[str]] = {}
    for name in NAMES:
        for _, step in steps(name):
            if "uses" in step:
                action, _, version = step["uses"].partition("@")
                used.setdefault(action, set()).add(version)
                if action == "actions/checkout":
                    assert step["with"]["persist-credentials"] is False
    assert [len(versions) for versions in used.values()] == [1] * len(used), used
    assert all(re.fullmatch(r"v\d+", one) for versions in used.values() for one in versions), used


def test_what_a_person_types_is_no_part_of_a_script() -> None:
    """It goes through the environment, where it is data."""
    scripts = [step["run"] for name in NAMES for _, step in steps(name) if "run" in step]
    assert scripts
    assert not [script for script in scripts if "${{" in script]
    assert max(len(script.splitlines()) for script in scripts) <= 10


def test_jobs_are_there_that_others_need() -> None:
    for name in NAMES:
        jobs = workflow(name)["jobs"]
        for job in jobs.values():
            needs = job.get("needs", [])
            assert {needs} if isinstance(needs, str) else {*needs} <= {*jobs}
        outputs = set(re.findall(r"needs\.(\w+)\.outputs\.(\w+)", (FOLDER / name).read_text(encoding="utf-8")))
        assert all(output in jobs[job]["outputs"] for job, output in outputs)


def test_dev_stacks_gate_nothing() -> None:
    jobs = workflow("nightly.yml")["jobs"]
    assert jobs["dev"]["continue-on-error"] is True
    assert "dev" not in jobs["changes"]["needs"]
    kept = [step for _, step in steps("nightly.yml") if step.get("uses", "").startswith("actions/upload-artifact")]
    assert [step.get("if") for step in kept] == ["always()"] * 3


# -- the nightly run -------------------------------------------------------------------------


class Runner:
    """Runs the scripts of the nightly workflow in a checkout, as the runner of CI would."""

    def __init__(self, checkout: Checkout) -> None:
        self._root = checkout.root
        folder = checkout.root / "bin"
        folder.mkdir()
        for name, text in {
            "thawcheck": f'exec "{sys.executable}" -m harness.control.cli "$@"',
            "gh": f'echo "$1 $2" >>"{folder}/calls"; [ "$2" != list ] || echo "[]"',
        }.items():
            (folder / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
            (folder / name).chmod(0o755)
        self._env = {
            **os.environ,
            "PATH": os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
            "GITHUB_OUTPUT": str(checkout.root / "output"),
            "UV_TORCH_BACKEND": workflow("nightly.yml")["env"]["UV_TORCH_BACKEND"],
            "LABEL": "",
            "SHARDS": "3",
        }

    def calls(self) -> list[str]:
        return (self._root / "bin" / "calls").read_text(encoding="utf-8").splitlines()

    def run(self, job: str, name: str, **env: str) -> int:
        (step,) = (step for where, step in steps("nightly.yml") if (where, step.get("name")) == (job, name))
        shell = [sys.executable, "-c"] if step.get("shell") == "python" else ["bash", "-eo", "pipefail", "-c"]
        return subprocess.run([*shell, step["run"]], cwd=self._root, env={**self._env, **env}, check=False).returncode

    def outputs(self, **env: str) -> dict[str, Any]:
        """Of the job that lists."""
        (self._root / "output").unlink(missing_ok=True)
        assert self.run("list", "list", **env) == 0
        lines = (self._root / "output").read_text(encoding="utf-8").splitlines()
        return {name: json.loads(value) for name, _, value in (line.partition("=") for line in lines)}


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Checkout]:
    made = Checkout(tmp_path / "checkout")
    yield made
    made.close()


def test_the_jobs_of_a_night_are_made_of_the_stacks(checkout: Checkout) -> None:
    runner = Runner(checkout)
    assert runner.outputs() == {"shards": [1, 2, 3], "count": 3, "dev": ["dev-main"]}
    assert runner.outputs(SHARDS="20") == {"shards": [1, 2, 3, 4, 5], "count": 5, "dev": ["dev-main"]}
    assert runner.outputs(LABEL="smoke") == {"shards": [1], "count": 1, "dev": []}
    # An empty matrix of jobs is an error: then there is no job.
    assert runner.outputs(LABEL="dev") == {"shards": [], "count": 0, "dev": ["dev-main"]}
    jobs = workflow("nightly.yml")["jobs"]
    assert jobs["sweep"]["if"] == "needs.list.outputs.shards != '[]'"
    assert jobs["dev"]["if"] == "needs.list.outputs.dev != '[]'"
    assert "shards=[]\n" in (checkout.root / "output").read_text(encoding="utf-8")


@pytest.mark.parametrize("shards", ["2.5", "-1", "0", "many"])
def test_a_number_of_shards_that_is_none(checkout: Checkout, shards: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert Runner(checkout).run("list", "list", SHARDS=shards) == 1
    assert capfd.readouterr().err == f"::error::shards must be a whole number, 1 or more, found {shards}\n"
    assert not (checkout.root / "output").exists()


def test_a_night_on_which_no_shard_got_anywhere(checkout: Checkout, capfd: pytest.CaptureFixture[str]) -> None:
    runner = Runner(checkout)
    assert runner.run("changes", "merge") == 1
    # A shard that came to nothing uploads its logs alone.
    (checkout.root / "artifacts" / "observed-1" / "results" / "sweep").mkdir(parents=True)
    assert runner.run("changes", "merge") == 1
    said = "::error::no shard has measured a stack, so there is nothing to compare; see the jobs of sweep\n"
    assert capfd.readouterr() == (said * 2, "")


def test_a_night_measures_merges_and_tells_what_changed(checkout: Checkout) -> None:
    solve(checkout.matrix, unsolvable={"torch-2.13.0": "no wheel"})
    checkout.how("ds-0.19.0", "fail")  # in the last shard, beside one that is measured
    runner = Runner(checkout)
    plan = runner.outputs()
    status = {}
    for shard in plan["shards"]:
        status[shard] = runner.run("sweep", "measure", SHARD=f"{shard}/{plan['count']}")
        # What is uploaded, as it is downloaded again.
        (checkout.root / "artifacts" / f"observed-{shard}").mkdir(parents=True)
        (checkout.root / "observed").rename(checkout.root / "artifacts" / f"observed-{shard}" / "observed")
    assert status == {1: Exit.OK, 2: Exit.OK, 3: Exit.FAILED}
    assert runner.run("changes", "merge") == 0
    assert sorted(load_all(checkout.root / "merged")) == sorted({*ORDER} - {"ds-0.19.0"})

    # Nothing changed, then a verdict of one stack.
    summary = checkout.root / "summary.md"
    assert runner.run("changes", "report", GITHUB_STEP_SUMMARY=str(summary)) == Exit.OK
    assert summary.read_text(encoding="utf-8").startswith("## thawcheck\n")
    assert (checkout.root / "site" / "index.html").is_file()
    for one in load_all(checkout.root / "merged").values():
        one.write(checkout.matrix.observed(one.stack))
    assert runner.run("changes", "compare") == Exit.OK
    latest = read_observed(checkout.matrix.observed("latest"))
    first = dataclasses.replace(latest.outcomes[0], verdict=Verdict.HANG, parameters={}, failure=None)
    dataclasses.replace(latest, outcomes=(first, *latest.outcomes[1:])).write(checkout.matrix.observed("latest"))
    assert runner.run("changes", "compare") == Exit.DIFFERS
    assert runner.calls() == ["issue list", "issue create"]
