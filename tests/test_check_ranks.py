"""``thawcheck check`` on real ranks: a tiny model of the architecture trains as was planned, or is seen not to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from preflight_models import MODELS

from harness.cell import Verdict
from harness.preflight._check import Asked, Result, check
from harness.preflight._finding import Level
from harness.preflight._report import as_dict, as_text

pytestmark = pytest.mark.usefixtures("warm")

AUTO: dict[str, Any] = {
    "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True},
    "bf16": {"enabled": "auto"},
    "gradient_accumulation_steps": "auto",
    "train_micro_batch_size_per_gpu": "auto",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("llama-3-8b", "mixtral-8x7b", "qwen2-0.5b", "llava-1.5-7b", "t5-3b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(MODELS[name][0]))
    (tmp_path / "auto.json").write_text(json.dumps(AUTO))
    return tmp_path


def found(result: Result) -> list[str]:
    return [one.code for one in result.findings if one.level is Level.WRONG]


def deepspeed(folder: Path, stage: int, model: str, *train: str, **more: Any) -> Result:
    block = {"zero_optimization": {"stage": stage}, "optimizer": {"type": "AdamW", "params": {"weight_decay": 0.1}}}
    (folder / "ds.json").write_text(json.dumps({**block, **more}))
    return check(Asked(model=str(folder / model), deepspeed=folder / "ds.json", train=train))


def axolotl(folder: Path, text: str) -> Result:
    (folder / "a.yaml").write_text(f"base_model: llama-3-8b\ndeepspeed: auto.json\nlearning_rate: 2e-5\n{text}")
    return check(Asked(axolotl=folder / "a.yaml"))


def test_what_trains_is_called_safe(folder: Path) -> None:
    result = deepspeed(folder, 3, "llama-3-8b", "model.layers.8.*", "model.embed_tokens.*")

    assert result.findings == ()
    assert result.rehearsal is not None
    assert result.rehearsal.trains
    lines = as_text(result, 8).splitlines()
    assert "  model.layers.0-7,9-11.*  FROZEN         99" in lines
    assert "  model.layers.8.*         TRAINS         9" in lines
    assert lines[-1] == "safe: nothing was found, and it trains on two ranks"


def test_a_mixture_of_experts_and_a_tied_head(folder: Path) -> None:
    for model, patterns in (("mixtral-8x7b", ("*experts*",)), ("qwen2-0.5b", ("model.embed_tokens.*",))):
        result = deepspeed(folder, 2, model, *patterns)
        assert result.findings == (), model
        assert result.rehearsal is not None
        assert result.rehearsal.trains


def test_what_the_ranks_show_is_not_safe_and_a_change_is_seen_to_help(folder: Path) -> None:
    """bf16 at stage 0 steps frozen weights' copies; two ranks show it, whatever is known of it."""
    result = deepspeed(folder, 0, "llama-3-8b", "model.layers.8.*", bf16={"enabled": True})

    assert "rehearsal" in found(result)
    assert result.rehearsal is not None
    assert result.rehearsal.record is not None
    assert result.rehearsal.record.verdict is not Verdict.TRAINS
    assert result.cure is not None
    assert result.cure.told == "ZeRO stage 2"
    assert result.cure.rehearsal is not None
    assert as_text(result, 8).splitlines()[-1] == "change: ZeRO stage 2 (seen to train on two ranks)"


def test_axolotl_with_a_number_that_begins_another(folder: Path) -> None:
    result = axolotl(folder, "unfrozen_parameters:\n  - model.layers.1\n  - ^lm_head.weight$\n")

    assert found(result) == ["number"]
    assert result.cure is not None
    assert result.cure.told == "write 'model.layers.1.' for 'model.layers.1'"
    assert result.cure.rehearsal is not None


def test_axolotl_with_an_adapter_and_freezing(folder: Path) -> None:
    result = axolotl(
        folder, "adapter: lora\nlora_target_modules: [q_proj, v_proj]\nunfrozen_parameters: [model.embed_tokens.]\n"
    )

    assert "adapter-and-freezing" in found(result)
    assert "rehearsal" in found(result)
    assert result.cure is not None
    assert result.cure.told == "leave unfrozen_parameters out beside the adapter"
    assert result.cure.rehearsal is not None


def test_the_trainer(folder: Path) -> None:
    (folder / "t.json").write_text(json.dumps({"deepspeed": "auto.json", "bf16": True, "weight_decay": 0.1}))
    result = check(
        Asked(model=str(folder / "llama-3-8b"), trainer=folder / "t.json", train=("model.layers.*.self_attn.*",))
    )

    assert result.findings == ()
    assert result.rehearsal is not None
    assert result.rehearsal.trains


def test_models_inside_others_are_whole_for_the_twin(folder: Path) -> None:
    """While the Trainer's arguments exist, transformers makes the towers of a model under zero.Init."""
    (folder / "t.json").write_text('{"deepspeed": "auto.json"}')
    result = check(
        Asked(model=str(folder / "llava-1.5-7b"), trainer=folder / "t.json", train=("*language_model.layers.4.*",))
    )

    assert [one.code for one in result.findings] == ["unlike"]
    assert "they were given text alone" in result.findings[0].text
    assert result.rehearsal is not None
    assert result.rehearsal.trains


def test_an_encoder_and_a_decoder(folder: Path) -> None:
    result = deepspeed(folder, 3, "t5-3b", "decoder.block.3.*")

    assert result.findings == ()
    assert result.rehearsal is not None
    assert result.rehearsal.trains
    plain = json.loads(json.dumps(as_dict(result, 8)))
    assert plain["answer"] == "safe"
    assert plain["rehearsal"]["verdict"] == "TRAINS"
    assert plain["rehearsal"]["options"]["model"] == "t5"
