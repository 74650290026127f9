"""Known architectures at their real sizes: built without being allocated, and shrunk without losing a name."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from preflight_models import MODELS

from harness.preflight._inventory import OFFLINE
from harness.preflight._layers import layers_of

_KEPT = 12


@pytest.fixture(scope="module")
def built() -> dict[str, Any]:
    """All of them, by one process: importing transformers takes longer than building them."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("preflight_build.py"))],
        capture_output=True,
        text=True,
        check=True,
        env={**__import__("os").environ, **OFFLINE},
    )
    return {one["model"]: one for one in map(json.loads, done.stdout.splitlines()) if one}


def test_there_are_enough(built: dict[str, Any]) -> None:
    kinds = {config["model_type"] for config, _ in MODELS.values()}
    assert len(kinds) >= 12
    assert {*built} == {*MODELS}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_known_without_its_weights(built: dict[str, Any], name: str) -> None:
    one = built[name]

    assert "fault" not in one, one
    elements = sum(math.prod(each["shape"]) for each in one["parameters"])
    assert elements / 1e9 == pytest.approx(MODELS[name][1], rel=5e-3)
    assert one["peak"] < 2e9  # bytes, of all models until then
    assert one["seconds"] < 5  # of processor time, for the real and the tiny one


@pytest.mark.parametrize("name", MODELS)
def test_the_tiny_model_has_the_same_names(built: dict[str, Any], name: str) -> None:
    real = {each["name"]: each for each in built[name]["parameters"]}
    tiny = {each["name"]: each for each in built[name]["tiny"]["parameters"]}

    assert [*tiny] == [one for one in real if all(number < _KEPT for number in layers_of(one)[:1])]
    for key, one in tiny.items():
        assert one["others"] == real[key]["others"]  # ties are kept
        assert len(one["shape"]) == len(real[key]["shape"])
        assert one["module"] == real[key]["module"]
    assert sum(math.prod(one["shape"]) for one in tiny.values()) < 3_000_000
