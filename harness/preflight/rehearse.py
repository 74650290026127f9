"""What the ranks do of a plan, in the order in which its tool does it."""

from __future__ import annotations

import copy
import dataclasses
import importlib.util
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from unittest import mock

from harness.cell import Model, freeze_except
from harness.preflight._dialects import DIALECTS

if TYPE_CHECKING:
    import torch

    from harness.cell._run import Run
    from harness.cell.models import Batch

__all__ = ["rehearse"]


def rehearse(run: Run, plan: Mapping[str, Any]) -> None:
    """:param plan: plain data; :func:`harness.preflight._rehearsal.case_source` writes it."""
    run.hyper = dataclasses.replace(run.hyper, weight_decay=plan["weight_decay"])
    model, names = _model(plan)
    chosen = names if plan["train"] is None else _chosen(plan, names)
    if plan["adapter"] is not None:
        wrap: Callable[[Any], Any] = _adapter(plan)
        chosen = ["*lora_*", *(f"*modules_to_save*{name}*" for name in plan["adapter"]["whole"])]
    else:
        wrap = _as_it_is
    if plan["tool"] == "deepspeed":
        built = run.model(model, wrap=wrap)
        _freeze(run, plan)(built)
        engine = run.engine(built, **plan["config"])
        run.train(engine, intent=chosen)
        return
    from harness.drivers.trainer import train_with_trainer

    train_with_trainer(run, model, wrap=wrap, intent=chosen, freeze=_freeze(run, plan), config=plan["config"])


def _as_it_is(model: Any) -> Any:
    return model


def _freeze(run: Run, plan: Mapping[str, Any]) -> Callable[[Any], None]:
    """As the tool freezes, with the patterns as they are written."""
    patterns = plan["train"]
    if patterns is None:
        return lambda _: None
    if plan["tool"] == "axolotl" and importlib.util.find_spec("axolotl") is not None:
        return lambda model: _axolotl_freezes(model, patterns)
    if plan["tool"] == "axolotl":
        run.note("axolotl is not installed here, so its patterns were read as 0.19.0 reads them")
    return lambda model: freeze_except(model, _chosen(plan, [name for name, _ in model.named_parameters()]))


def _axolotl_freezes(model: Any, patterns: list[str]) -> None:
    """As ``axolotl/train.py`` does (0.19.0)."""
    from harness.drivers.axolotl import freeze_layers_except

    freeze_layers_except(model, patterns)
    if any(part in pattern for pattern in patterns for part in ("lm_head", "embed_tokens")):
        model.enable_input_require_grads()


def _chosen(plan: Mapping[str, Any], names: list[str]) -> list[str]:
    matching = DIALECTS[plan["dialect"]].matching
    chosen = {name for pattern in plan["train"] for name in matching(pattern, names)}
    return [name for name in names if name in chosen]


def _request(plan: Mapping[str, Any]) -> dict[str, Any]:
    return {"config": plan["model"], "trust": plan["trust"], "folder": plan["folder"]}


def _model(plan: Mapping[str, Any]) -> tuple[Model, list[str]]:
    """The tiny model, and the names of its parameters."""
    import torch
    from transformers.integrations import deepspeed as transformers_deepspeed

    from harness.preflight._meta import build, configuration
    from harness.preflight._shrink import shrink

    request = _request(plan)
    config = shrink(configuration(request), layers=plan["layers"])
    config.use_cache = False
    if getattr(config, "is_encoder_decoder", False) and getattr(config, "decoder_start_token_id", None) is None:
        config.decoder_start_token_id = config.pad_token_id = 0  # who trains has set it; not all configurations do
    with torch.device("meta"):
        known, _ = build(config, request)
    kind = type(known)

    def made() -> torch.nn.Module:
        # Where arguments of the Trainer exist, transformers makes models under zero.Init, also those inside others;
        # the twin needs all of it.
        with mock.patch.object(transformers_deepspeed, "_hf_deepspeed_config_weak_ref", None):
            result: torch.nn.Module = kind(copy.deepcopy(config)).float()
        return result

    return Model("tiny", made, _batch(config)), [name for name, _ in known.named_parameters()]


def _batch(config: Any) -> Callable[[torch.Generator], Batch]:
    """Tokens; a model of pictures or sound is given text alone."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    size = int(getattr(text, "vocab_size", 0) or getattr(config, "vocab_size", 64))

    def draw(generator: torch.Generator) -> Batch:
        import torch

        # The first numbers are those of special tokens, which shrinking puts there.
        tokens = torch.randint(min(24, size // 2), size, (2, 16), generator=generator)
        return {"input_ids": tokens, "labels": tokens.clone()}

    return draw


def _adapter(plan: Mapping[str, Any]) -> Callable[[Any], Any]:
    from harness.drivers.adapters import adapted

    asked = plan["adapter"]
    targets = asked["targets"]
    settings: dict[str, Any] = {"r": asked["r"]}
    if targets:
        settings["target_modules"] = "all-linear" if targets == ["all-linear"] else targets
    if asked["whole"]:
        settings["modules_to_save"] = asked["whole"]
    return adapted("LoraConfig", **settings)
