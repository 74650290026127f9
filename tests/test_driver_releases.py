"""The table of what single releases do otherwise on the way to the engine."""

from __future__ import annotations

import pytest
from packaging.specifiers import SpecifierSet

from harness.cell import Options
from harness.cell.ranks._stack import PACKAGES
from harness.drivers import _releases
from harness.drivers._releases import DIFFERENCES, that_hold


def _on(monkeypatch: pytest.MonkeyPatch, options: Options, **versions: str) -> list[str]:
    monkeypatch.setattr(_releases, "installed_versions", lambda: versions)
    return [one.split(":")[0] for one in that_hold(options)]


@pytest.mark.parametrize("one", DIFFERENCES, ids=lambda one: f"{one.package}{one.versions}")
def test_each_is_known_from_a_release_that_it_speaks_of(one: _releases.Difference) -> None:
    assert one.package in PACKAGES
    assert any(SpecifierSet(one.versions).contains(version) for version in one.known_from)


@pytest.mark.parametrize(
    ("version", "count"), [("4.36.2", 2), ("4.46.3", 2), ("4.53.3", 1), ("5.0.0", 1), ("5.1.0", 1), ("5.2.0", 0)]
)
def test_a_record_is_told_what_holds_on_its_release(monkeypatch: pytest.MonkeyPatch, version: str, count: int) -> None:
    found = _on(monkeypatch, Options(driver="trainer"), transformers=version, peft="0.7.1")
    assert found == [f"transformers {version}"] * count


def test_only_what_goes_that_way_or_wears_that_adapter_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    old = {"transformers": "4.36.2", "peft": "0.7.1"}
    assert _on(monkeypatch, Options(driver="accelerate"), **old) == []
    assert _on(monkeypatch, Options(adapters="lora"), **old) == []
    assert _on(monkeypatch, Options(adapters="lora_head"), **old) == ["peft 0.7.1"]
    assert _on(monkeypatch, Options(driver="trainer")) == []
