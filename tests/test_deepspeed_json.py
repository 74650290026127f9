"""Each setting of a variant reaches the DeepSpeed JSON, and says nothing there unless it was asked for."""

from __future__ import annotations

from typing import Any

import pytest

from harness.cell import Hyper, Options
from harness.cell._json import deepspeed_json

_SETTINGS = ("overlap_comm", "offload_optimizer", "stage3_gather_16bit_weights_on_model_save")


def _json(**settings: Any) -> dict[str, Any]:
    return deepspeed_json(Options(**settings), Hyper())


def test_what_is_not_asked_for_is_left_to_deepspeed() -> None:
    made = _json()
    assert not {*_SETTINGS} & {*made["zero_optimization"]}
    assert "zero_force_ds_cpu_optimizer" not in made
    assert made["optimizer"]["params"]["torch_adam"] is True


@pytest.mark.parametrize(
    ("settings", "key", "value"),
    [
        ({"overlap": "on"}, "overlap_comm", True),
        ({"overlap": "off"}, "overlap_comm", False),
        ({"gather_16bit": True}, "stage3_gather_16bit_weights_on_model_save", True),
        ({"offload": "cpu"}, "offload_optimizer", {"device": "cpu"}),
        ({"offload": "cpu_adam"}, "offload_optimizer", {"device": "cpu"}),
    ],
)
def test_a_setting_of_zero(settings: dict[str, Any], key: str, value: Any) -> None:
    assert _json(**settings)["zero_optimization"][key] == value


@pytest.mark.parametrize(("offload", "own"), [("cpu", False), ("cpu_adam", True)])
def test_offloading_says_whose_adam_it_is(offload: str, own: bool) -> None:  # noqa: FBT001  # a parameter of the test
    made = _json(offload=offload)
    assert made["zero_force_ds_cpu_optimizer"] is own
    assert made["optimizer"]["params"]["torch_adam"] is not own
