"""Builds models on the meta device, where nothing is allocated, and says what parameters they have.

A process of its own, ``python -m harness.preflight._meta``: reads a request as JSON, writes the answer as the last
line.  It alone imports torch and transformers, so that the command line need not, and that what a model's own code
does ends with it.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Mapping
from typing import Any

from harness.preflight._inventory import OFFLINE

__all__ = ["answer", "build"]


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """``config``: what config.json says; ``auto``: the Auto class to build by; ``trust``: remote code may run;
    ``folder``: where such code is; ``shrink``: layers to keep, gives the tiny configuration and its names as well."""
    import torch

    from harness.preflight._shrink import shrink

    config = configuration(request)
    with torch.device("meta"):
        model, _ = build(config, request)
    said = _told(model)
    if request.get("shrink"):
        tiny = shrink(config, layers=request["shrink"])
        with torch.device("meta"):
            small, _ = build(tiny, request)
        said["tiny"] = {**_told(small), "config": tiny.to_dict()}
    return said


def configuration(request: Mapping[str, Any]) -> Any:
    """The configuration object.  Raises Refused."""
    from transformers import AutoConfig

    plain = dict(request["config"])
    kind = plain.pop("model_type", None)
    if plain.get("auto_map"):
        if not request.get("trust"):
            raise Refused(
                f"its configuration names code of its own ({', '.join(plain['auto_map'])}), which is not run; "
                "read that code, and allow it by --trust-remote-code"
            )
        return AutoConfig.from_pretrained(request["folder"], trust_remote_code=True)
    try:
        return AutoConfig.for_model(kind, **plain)
    except ValueError as error:
        if "nrecognized model" not in str(error):
            raise
        raise Refused(_unknown(kind)) from None


class Refused(Exception):
    """The request makes no sense, or is not allowed."""


def _unknown(kind: Any) -> str:
    from transformers import CONFIG_MAPPING, __version__

    from harness.cell._patterns import nearest

    return f"transformers {__version__} knows no model_type {kind!r}; {nearest(str(kind), CONFIG_MAPPING.keys())}"


#: Tried in this order: what trains as a language model first.
_AUTOS = (
    "AutoModelForCausalLM",
    "AutoModelForImageTextToText",
    "AutoModelForVision2Seq",
    "AutoModelForSeq2SeqLM",
    "AutoModelForMaskedLM",
    "AutoModel",
)


def build(config: Any, request: Mapping[str, Any]) -> tuple[Any, str]:
    """The model of a configuration, by the class it names, else by the first Auto class that has it."""
    import transformers

    if request.get("trust") and getattr(config, "auto_map", None):
        return transformers.AutoModelForCausalLM.from_config(config, trust_remote_code=True), "AutoModelForCausalLM"
    for name in getattr(config, "architectures", None) or ():
        made = getattr(transformers, name, None)
        if made is not None and hasattr(made, "_from_config"):
            return made._from_config(config), name  # noqa: SLF001  # what the Auto classes call, for one class
    asked = request.get("auto")
    for name in (asked,) if asked else _AUTOS:
        auto = getattr(transformers, name, None)
        if auto is not None and type(config) in auto._model_mapping:  # noqa: SLF001  # there is no other way to ask
            return auto.from_config(config), name
    raise Refused(f"transformers {transformers.__version__} has no model for {type(config).__name__}")


def _told(model: Any) -> dict[str, Any]:
    names: dict[int, list[str]] = {}
    for name, one in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(one), []).append(name)
    kinds = {
        f"{prefix}.{name}".lstrip("."): type(module).__name__
        for prefix, module in model.named_modules()
        for name, _ in module.named_parameters(recurse=False)
    }
    return {
        "model_class": type(model).__name__,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "parameters": [
            {
                "name": name,
                "shape": [*one.shape],
                "dtype": str(one.dtype).removeprefix("torch."),
                "others": names[id(one)][1:],
                "module": kinds.get(name, ""),
            }
            for name, one in model.named_parameters()
        ],
    }


def main() -> None:
    import os

    os.environ.update(OFFLINE)
    request = json.load(sys.stdin)
    try:
        said = answer(request)
    except Refused as error:
        said = {"fault": str(error)}
    except Exception as error:  # noqa: BLE001  # a configuration fails in every way there is
        said = {"fault": f"its configuration makes no model: {type(error).__name__}: {' '.join(str(error).split())}"}
    sys.stdout.write("\n" + json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
