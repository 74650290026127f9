"""What single releases of DeepSpeed need on CPU ranks: which measure is for which, and that each does its work."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from harness.cell.ranks import _releases
from harness.cell.ranks._releases import MEASURES, Measure, apply_measures

INTEL = "intel_extension_for_pytorch"


def names_for(monkeypatch: pytest.MonkeyPatch, deepspeed: str | None, backend: str = "gloo") -> list[str]:
    versions = {"deepspeed": deepspeed} if deepspeed else {}
    monkeypatch.setattr(_releases, "installed_versions", lambda: versions)
    return [measure.name for measure in MEASURES if measure.is_for(backend)]


@pytest.mark.parametrize(
    ("deepspeed", "stood_in", "in_order"),
    [
        ("0.10.3", True, True),
        ("0.14.0", True, True),
        ("0.14.1", False, True),
        ("0.19.7", False, True),
        ("0.19.8", False, False),
        ("0.20.0.dev1+gabc", False, False),
    ],
)
def test_each_release_gets_the_measures_that_it_needs(
    monkeypatch: pytest.MonkeyPatch, *, deepspeed: str, stood_in: bool, in_order: bool
) -> None:
    names = names_for(monkeypatch, deepspeed)

    assert ("Intel's packages stood in for" in names) is stood_in
    assert ("backend named" in names) is stood_in
    assert ("gathers complete in order" in names) is in_order
    assert "optional communication ops off" in names


def test_gpu_ranks_and_a_stack_without_deepspeed_get_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert names_for(monkeypatch, "0.10.3", backend="nccl") == []
    assert names_for(monkeypatch, None) == []


def test_every_measure_says_why() -> None:
    assert all(len(measure.why) > 40 for measure in MEASURES)
    assert len({measure.name for measure in MEASURES}) == len(MEASURES)


def test_stand_ins_are_found_while_deepspeed_is_imported_and_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_releases, "installed_versions", lambda: {"deepspeed": "0.10.3"})
    monkeypatch.setattr(_releases, "MEASURES", [one for one in MEASURES if "Intel" in one.name or "taken" in one.name])

    apply_measures("before_import", "gloo")
    try:
        assert __import__(INTEL) is sys.modules[INTEL]
    finally:
        apply_measures("after_import", "gloo")

    assert INTEL not in sys.modules


def test_a_real_package_is_neither_stood_in_for_nor_taken_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / f"{INTEL}.py").write_text("REAL = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(_releases, "installed_versions", lambda: {"deepspeed": "0.10.3"})
    monkeypatch.setattr(_releases, "MEASURES", [one for one in MEASURES if "Intel" in one.name or "taken" in one.name])

    apply_measures("before_import", "gloo")
    module = __import__(INTEL)
    apply_measures("after_import", "gloo")

    assert module.REAL
    assert sys.modules.pop(INTEL) is module


class Work:
    """A collective of gloo's: complete when its own wait is over, whatever became of others."""

    def __init__(self, log: list[str], name: str) -> None:
        self.log = log
        self.name = name

    def wait(self) -> bool:
        self.log.append(self.name)
        return True


def test_waiting_for_a_gather_waits_for_those_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on one CUDA stream; later ones may still be under way."""
    log: list[str] = []

    class TorchBackend:
        def all_gather_into_tensor(self, name: str, *, async_op: bool = False) -> Work | None:
            return Work(log, name) if async_op else None

    module = types.ModuleType("deepspeed.comm.torch")
    module.TorchBackend = TorchBackend  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "deepspeed.comm.torch", module)
    monkeypatch.setattr(_releases, "installed_versions", lambda: {"deepspeed": "0.16.9"})
    monkeypatch.setattr(_releases, "MEASURES", [one for one in MEASURES if "in order" in one.name])
    apply_measures("before_group", "gloo")
    apply_measures("before_group", "gloo")  # each case of one process does it again
    backend = TorchBackend()
    first, second, third = (backend.all_gather_into_tensor(name, async_op=True) for name in ("1", "2", "3"))

    assert backend.all_gather_into_tensor("0") is None
    assert second is not None
    assert third is not None
    assert first is not None
    assert second.wait() is True
    assert log == ["1", "2", "2"]  # the last by what was asked for, whose answer is given
    first.wait()
    third.wait()
    assert log == ["1", "2", "2", "1", "3", "3"]
    assert third.name == "3"


def test_measures_of_another_moment_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(_releases, "installed_versions", lambda: {"deepspeed": "1.0"})
    monkeypatch.setattr(
        _releases,
        "MEASURES",
        [
            Measure("a", "deepspeed", "", "before_group", "", done.append),
            Measure("b", "torch", "", "before_group", "", done.append),
        ],
    )

    apply_measures("after_import", "gloo")
    assert done == []
    apply_measures("before_group", "gloo")
    assert done == ["gloo"]
