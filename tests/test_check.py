"""``thawcheck check``: what is read, what is found without a rank, and that clean configurations are called clean."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.cell import Verdict
from harness.cell._catalog import find
from harness.cell.outcome._expect import Expectation, Expectations
from harness.cell.outcome._record import CaseRecord, Failure, ParameterVerdict
from harness.cell.ranks._rank import find_case
from harness.control import cli
from harness.drivers.axolotl_config import Pattern as AxolotlPattern
from harness.preflight import _check
from harness.preflight._axolotl import read_axolotl
from harness.preflight._cure import candidates, find_cure
from harness.preflight._deepspeed import DeepSpeed, read_deepspeed, read_deepspeed_text
from harness.preflight._dialects import DIALECTS
from harness.preflight._finding import Finding, Level, worst
from harness.preflight._grouped import grouped
from harness.preflight._inventory import Inventory, Parameter
from harness.preflight._json_text import read_json
from harness.preflight._known import _SITUATIONS, known_to_bite
from harness.preflight._layers import layers_of, layers_to_keep
from harness.preflight._matched import Matched, match
from harness.preflight._memory import optimizer_bytes
from harness.preflight._plan import Adapter, Plan
from harness.preflight._rehearsal import _found, case_source, options_of
from harness.preflight._source import Source, find_source
from harness.preflight._static import look
from harness.preflight._trainer import read_trainer

LAYERS = 12
NAMES = [
    "model.embed_tokens.weight",
    *(
        f"model.layers.{layer}.{part}.weight"
        for layer in range(LAYERS)
        for part in ("self_attn.q_proj", "self_attn.v_proj", "mlp.up_proj", "input_layernorm")
    ),
    "model.norm.weight",
    "lm_head.weight",
]
LLAMA = Inventory(tuple(Parameter(name, (64,) if "norm" in name else (64, 32)) for name in NAMES), "LlamaForCausalLM")
TIED = Inventory(
    (Parameter(NAMES[0], (64, 32), others=("lm_head.weight",)), *LLAMA.parameters[1:-1]), "LlamaForCausalLM"
)
ZERO_3: dict[str, Any] = {"zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True}}


def plan(**changes: Any) -> Plan:
    said, _ = read_deepspeed(ZERO_3, "zero3.json", "deepspeed")
    return Plan(**{"tool": "deepspeed", "source": Source(), "key": "--train", "deepspeed": said, **changes})


def told(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(str(one.level), one.code) for one in findings]


# -- reading ---------------------------------------------------------------------------------


def test_json_as_people_write_it_is_read_and_told_of_by_line() -> None:
    text = (
        '{\n  // one\n  "a": "http://x#y, ]", # two\n  "b": [1, 2,], /* three\n  */\n'
        '  "c": {"d": 1,\n // four\n },\n}\n'
    )

    read = read_json(text)

    assert read.value == {"a": "http://x#y, ]", "b": [1, 2], "c": {"d": 1}}
    assert read.lax == [
        "line 2: a comment",
        "line 3: a comment",
        "line 4: a comment",
        "line 7: a comment",
        "line 4: a comma before a closing bracket",
        "line 6: a comma before a closing bracket",
        "line 8: a comma before a closing bracket",
    ]
    assert not read.broken
    assert read_json('{"a": 1}').lax == []


@pytest.mark.parametrize(
    ("text", "place"),
    [("", "line 1, column 1"), ('{"a": 1\n "b": 2}', "line 2, column 2"), ("{'a': 1}", "line 1, column 2")],
)
def test_what_is_no_json_is_told_with_its_place(text: str, place: str) -> None:
    assert read_json(text).broken.startswith(place)


def test_a_json_nested_without_end_is_no_traceback() -> None:
    assert read_json("[" * 100_000).broken == "it is nested too deeply"


def test_what_deepspeed_is_told() -> None:
    said, findings = read_deepspeed(
        {
            "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
            "bf16": {"enabled": True},
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.1}},
            "gradient_accumulation_steps": 4,
            "gradient_clipping": 1,
        },
        "ds.json",
        "deepspeed",
    )

    assert findings == []
    assert (said.stage, said.precision, said.optimizer, said.lr) == (2, "bf16", "AdamW", 1e-4)
    assert (said.weight_decay, said.offload, said.accumulation, said.clipping) == (0.1, "cpu", 4, 1)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_every_stage_is_one(stage: int) -> None:
    said, findings = read_deepspeed({"zero_optimization": {"stage": stage}}, "ds.json", "deepspeed")
    assert (said.stage, findings) == (stage, [])


@pytest.mark.parametrize(
    ("block", "tool", "expected", "text"),
    [
        ([], "deepspeed", ("bad input", "json"), "it must be an object with keys, found []"),
        ({"zero_optimization": {"stage": 4}}, "deepspeed", ("bad input", "stage"), "ZeRO stages are 0 to 3, found 4"),
        ({"zero_optimization": {"stage": "3"}}, "deepspeed", ("bad input", "type"), "it must be a whole number, foun"),
        ({"zero_optimization": {"stage": True}}, "deepspeed", ("bad input", "type"), "it must be a whole number, foun"),
        ({"zero_optimization": {"stage": "auto"}}, "trainer", ("bad input", "stage"), "the stage is one of 0 to 3"),
        ({"zero_optimization": 3}, "deepspeed", ("bad input", "type"), "it must be a block, found 3"),
        ({**ZERO_3, "bf16": True}, "deepspeed", ("bad input", "type"), "it must be a block, found True"),
        ({**ZERO_3, "stage": 3}, "deepspeed", ("not safe", "misplaced"), "it stands where nothing reads it"),
        ({**ZERO_3, "offload_optimizer": {}}, "trainer", ("not safe", "misplaced"), "it stands where nothing reads"),
        (
            {"zero_optimization": {"stage": 3, "train_batch_size": 8}},
            "deepspeed",
            ("not safe", "misplaced"),
            "it stands where nothing reads it",
        ),
        (
            {**ZERO_3, "optimizer": {"type": "AdamW", "lr": 1e-5}},
            "deepspeed",
            ("not safe", "misplaced"),
            "it stands where nothing reads it",
        ),
        (
            {**ZERO_3, "zero_optimisation": {}},
            "deepspeed",
            ("safe but", "unknown-key"),
            "nothing of DeepSpeed reads it",
        ),
        ({"zero_optimization": {"stage": 3, "stages": 1}}, "deepspeed", ("safe but", "unknown-key"), "DeepSpeed knows"),
        ({**ZERO_3, "train_batch_size": "auto"}, "deepspeed", ("not safe", "auto"), "`auto` is for the Trainer"),
        (
            {**ZERO_3, "bf16": {"enabled": True}, "fp16": {"enabled": True}},
            "deepspeed",
            ("bad input", "precision"),
            "both are enabled",
        ),
        (
            {"zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}},
            "deepspeed",
            ("not safe", "offload"),
            "stage 0 offloads nothing",
        ),
        (
            {"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}},
            "deepspeed",
            ("safe but", "offload"),
            "only stage 3 offloads parameters",
        ),
        ({}, "deepspeed", ("safe but", "stage"), "it has no zero_optimization block"),
    ],
)
def test_a_fault_of_the_json_is_told(block: Any, tool: Any, expected: tuple[str, str], text: str) -> None:
    _, findings = read_deepspeed(block, "ds.json", tool)

    assert told(findings) == [expected], findings
    assert findings[0].text.startswith(text)


def test_where_a_misplaced_key_belongs_is_told() -> None:
    _, findings = read_deepspeed({**ZERO_3, "stage3_max_live_parameters": 1}, "ds.json", "deepspeed")
    assert [one.instead for one in findings] == ["write zero_optimization.stage3_max_live_parameters"]
    _, findings = read_deepspeed({**ZERO_3, "optimizer": {"type": "A", "lr": 1}}, "ds.json", "deepspeed")
    assert [one.instead for one in findings] == ["write optimizer.params.lr"]


def test_all_faults_of_a_json_come_at_once() -> None:
    text = '{"zero_optimization": {"stage": 9, "stage": 7}, "bf16": 1, "lr": 2, /* x */ "train_batch_size": "many"}'

    _, findings = read_deepspeed_text(text, "ds.json", "trainer")

    assert [one.code for one in findings] == ["lax-json", "key-twice", "unknown-key", "type", "type", "stage"]


@pytest.mark.parametrize(("tool", "level"), [("deepspeed", Level.CAUTION), ("trainer", Level.WRONG)])
def test_comments_are_fine_for_deepspeed_alone(tool: Any, level: Level) -> None:
    _, findings = read_deepspeed_text('{"zero_optimization": {"stage": 3,}}', "ds.json", tool)
    assert [(one.level, one.code) for one in findings] == [(level, "lax-json")]


def axolotl(folder: Path, text: str) -> tuple[Plan | None, list[Finding]]:
    (folder / "m").mkdir(exist_ok=True)
    (folder / "m" / "config.json").write_text('{"model_type": "llama"}')
    (folder / "zero3.json").write_text(json.dumps(ZERO_3))
    (folder / "a.yaml").write_text(text)
    return read_axolotl(folder / "a.yaml")


def test_what_an_axolotl_file_says(tmp_path: Path) -> None:
    made, findings = axolotl(
        tmp_path,
        "base_model: m\ndeepspeed: zero3.json\nbf16: auto\nlearning_rate: 2e-5\nweight_decay: 0.1\n"
        "gradient_checkpointing: true\ngradient_checkpointing_kwargs:\n  use_reentrant: false\n"
        "gradient_accumulation_steps: 4\noptimizer: adamw_torch\nunfrozen_parameters:\n  - model.layers.2.\n",
    )

    assert findings == []
    assert made is not None
    assert made.source.config == {"model_type": "llama"}
    assert (made.train, made.dialect, made.precision) == (("model.layers.2.",), "axolotl", "bf16")
    assert (made.lr, made.weight_decay, made.accumulation) == (2e-5, 0.1, 4)
    assert (made.checkpointing, made.optimizer) == ("non_reentrant", "adamw_torch")
    assert made.deepspeed is not None
    assert made.deepspeed.stage == 3


@pytest.mark.parametrize(
    ("text", "code", "start"),
    [
        ("a: [1\nb: 2", "yaml", "it is no YAML: line 2, column 2"),
        ("base_model: m\n\tdeepspeed: x", "yaml", "it is no YAML: line 2, column 1"),
        ("- a\n- b", "yaml", "it must be keys and values, found ['a', 'b']"),
        ("", "yaml", "it must be keys and values, found None"),
        ("deepspeed: zero3.json", "model", "it is missing; name a model's folder"),
        ("base_model: 3", "type", "it must be a text, found 3"),
        ("base_model: nowhere", "file", "there is no file"),
        ("base_model: some/model", "model", "there is no folder 'some/model', and no model of that name was"),
        ("base_model: m\ndeepspeed: zero4.json", "file", "there is no file"),
        ("base_model: m\nunfrozen_parameters: lm_head", "type", "it must be a list, found 'lm_head'"),
        ("base_model: m\nunfrozen_parameters: [3]", "type", "its entries are texts, found 3"),
        ("base_model: m\nunfrozen_parameters: []", "freezes-nothing", "it is empty, which freezes nothing"),
        ("base_model: m\nunfrozen_parameter: [a]", "unknown-key", "it is not 'unfrozen_parameters', so that is not"),
        ("base_model: m\nlearning_rate: fast", "type", "it must be a number, found 'fast'"),
        ("base_model: m\nlora_r: true", "type", "it must be a whole number, found True"),
        ("base_model: m\ndeepspeed: zero3.json\nfsdp: [full]", "two-engines", "fsdp is given as well"),
        ("base_model: m\nbase_model: m", "key-twice", "'base_model' is given twice (lines 1 and 2), and the last"),
        (
            "base_model: m\nadapter: lora\nunfrozen_parameters: [a]",
            "adapter-and-freezing",
            "freezing comes after the adapter",
        ),
        (
            "{base_model: m, unfrozen_parameters: [a], gradient_checkpointing: true, "  # noqa: ISC004  # one file
            "gradient_checkpointing_kwargs: {use_reentrant: true}}",
            "checkpointing",
            "use_reentrant is true, which Axolotl refuses",
        ),
    ],
)
def test_a_fault_of_an_axolotl_file_is_told(
    tmp_path: Path, text: str, code: str, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))  # none of this machine's own models
    _, findings = axolotl(tmp_path, text)

    assert [one.code for one in findings] == [code], findings
    assert findings[0].text.startswith(start), findings


def test_the_arguments_of_the_trainer(tmp_path: Path) -> None:
    (tmp_path / "zero3.json").write_text(json.dumps(ZERO_3))
    (tmp_path / "t.yaml").write_text("deepspeed: zero3.json\nbf16: true\nlearning_rate: 1e-4\nmax_grad_norm: 0.5\n")

    arguments, said, findings = read_trainer(tmp_path / "t.yaml")

    assert findings == []
    assert (arguments.bf16, arguments.lr, arguments.clipping, arguments.weight_decay) == (True, 1e-4, 0.5, 0.0)
    assert said is not None
    assert said.stage == 3


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ('{"learning_rates": 1}', "unknown-key"),
        ('{"bf16": "yes"}', "type"),
        ('{"bf16": true, "fp16": true}', "precision"),
        ('{"bf16": true,}', "lax-json"),
        ("[]", "arguments"),
        ("{", "arguments"),
        ('{"deepspeed": "no.json"}', "file"),
    ],
)
def test_a_fault_of_the_arguments_is_told(tmp_path: Path, given: str, code: str) -> None:
    (tmp_path / "t.json").write_text(given)
    _, _, findings = read_trainer(tmp_path / "t.json")
    assert [one.code for one in findings] == [code]


def _write_header(path: Path, header: dict[str, Any]) -> None:
    head = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head)


def test_names_and_shapes_come_from_headers_alone(tmp_path: Path) -> None:
    """There are no weights behind them, and none are looked for."""
    first, second = {"a.weight": {"dtype": "BF16", "shape": [4, 2]}}, {"b.weight": {"dtype": "F32", "shape": [3]}}
    _write_header(tmp_path / "one.safetensors", {"__metadata__": {}, **first})
    _write_header(tmp_path / "two.safetensors", second)
    index = {"weight_map": {"a.weight": "one.safetensors", "b.weight": "two.safetensors", "c": "gone.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))

    for asked in (".", "model.safetensors.index.json"):
        source, findings = find_source(asked, "--model", tmp_path)
        assert findings == []
        assert source.stored == (Parameter("a.weight", (4, 2), "bfloat16"), Parameter("b.weight", (3,), "float32"))
    source, _ = find_source("one.safetensors", "--model", tmp_path)
    assert [one.name for one in source.stored] == ["a.weight"]
    assert source.config is None


@pytest.mark.parametrize(
    ("files", "asked", "start"),
    [
        ({}, "nothing", "there is no file"),
        ({"m/other.txt": ""}, "m", "'m' has neither config.json nor safetensors"),
        ({"m/adapter_config.json": "{}"}, "m", "'m' is an adapter, which has no model of its own"),
        ({"m/config.json": "{"}, "m", "'{folder}/m/config.json' is no JSON: line 1, column 2"),
        ({"m/config.json": "[]"}, "m", "'{folder}/m/config.json' is no model's configuration"),
        ({"ds.json": '{"zero_optimization": {}}'}, "ds.json", "'{folder}/ds.json' has no model_type"),
        ({"m/config.json": "\xff"}, "m/", ""),
    ],
)
def test_what_is_no_model_is_told(tmp_path: Path, files: dict[str, str], asked: str, start: str) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(text.encode("latin-1"))

    _, findings = find_source(asked, "--model", tmp_path)

    assert [one.level for one in findings] == [Level.INPUT]
    assert findings[0].text.startswith(start.format(folder=tmp_path))


def test_a_broken_header_is_told_and_the_rest_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    for broken in (b"", struct.pack("<Q", 1 << 62), struct.pack("<Q", 4) + b"nope", struct.pack("<Q", 2) + b"[]"):
        (tmp_path / "model.safetensors").write_bytes(broken)
        source, findings = find_source(".", "--model", tmp_path)
        assert told(findings) == [("safe but", "safetensors")]
        assert source.config == {"model_type": "llama"}


# -- patterns --------------------------------------------------------------------------------


def codes(pattern: str, dialect: str = "glob", inventory: Inventory = LLAMA, **more: Any) -> list[Finding]:
    _, findings = match([pattern], inventory, dialect=dialect, key="--train", stage=more.pop("stage", 2), **more)
    return findings


@pytest.mark.parametrize(
    ("pattern", "dialect"),
    [
        ("model.layers.8.*", "glob"),
        ("*.q_proj.weight", "glob"),
        ("lm_head.weight", "glob"),
        ("*", "glob"),
        ("model.layers.1[01].*", "glob"),
        ("layers.1.", "substring"),
        ("lm_head", "substring"),
        ("model.layers.1.", "prefix"),
        ("norm.weight", "suffix"),
        (r"model\.layers\.1\.", "match"),
        (r".*layers\.(1|2)\.", "match"),
        (r"layers\.1[01]?\.", "search"),
        (r".*q_proj\.weight", "fullmatch"),
        ("model.layers.1.", "axolotl"),
        ("^lm_head.weight$", "axolotl"),
        ("^lm_head.weight$[2:5]", "axolotl"),
        ("model.layers.(1|2).", "axolotl"),
        ("model.layers.1[01].", "axolotl"),
        (".+.q_proj", "axolotl"),
    ],
)
def test_what_is_right_is_called_clean(pattern: str, dialect: str) -> None:
    assert codes(pattern, dialect) == []


@pytest.mark.parametrize(
    ("pattern", "dialect", "code", "rewrite"),
    [
        ("model.layers.1", "prefix", "number", "model.layers.1."),
        ("model.layers.1", "axolotl", "number", "model.layers.1."),
        ("model.layers.1*", "glob", "number", "model.layers.1.*"),
        ("layers.1", "substring", "number", "layers.1."),
        (r"model\.layers\.1", "match", "number", r"model\.layers\.1\."),
        ("model.layers.1.", "match", "bare-dot", r"model\.layers\.1\."),
        ("layers.1.", "search", "bare-dot", r"layers\.1\."),
        ("layers.2.*", "glob", "prefix", "model.layers.2.*"),
        ("layers.2.", "axolotl", "prefix", "model.layers.2."),
        ("language_model.model.layers.2.*", "glob", "prefix", "model.layers.2.*"),
        ("_orig_mod.model.layers.2.*", "glob", "prefix", "model.layers.2.*"),
        ("q_proj", "glob", "dialect", "*q_proj*"),
        ("^model.layers.2.*", "glob", "dialect", "model.layers.2.*"),
        (r"model\.layers\.2\..*", "glob", "dialect", "model.layers.2.*"),
        (r"model\.layers\.2\.", "axolotl", "pattern", ""),
        ("model.layers.2.*", "axolotl", "pattern", ""),
        ("model.layers.2.*", "prefix", "dialect", "model.layers.2"),
        ("model.layer.2.*", "glob", "nothing", ""),
        ("transformer.h.2.*", "glob", "nothing", ""),
    ],
)
def test_a_pattern_that_will_not_do_what_it_seems_to(pattern: str, dialect: str, code: str, rewrite: str) -> None:
    findings = codes(pattern, dialect)

    assert [one.code for one in findings] == [code], findings
    assert findings[0].rewrite == rewrite
    if rewrite:
        assert codes(rewrite, dialect) == []
        assert set(DIALECTS[dialect].matching(rewrite, NAMES)) == {
            name
            for name in NAMES
            if ("layers.1." if "1" in pattern else "q_proj" if "q_" in pattern else "s.2.") in name
        }


def test_a_tied_head_has_no_name_of_its_own() -> None:
    (found,) = codes("lm_head.*", inventory=TIED)
    assert (found.code, found.level) == ("tied", Level.WRONG)
    assert "'lm_head.weight' is tied to 'model.embed_tokens.weight'" in found.text
    assert codes("lm_head.*") == []


def test_a_name_of_the_files_alone_was_renamed() -> None:
    (found,) = codes("vision.block.*", stored=[Parameter("vision.block.weight", (2, 2))])
    assert found.code == "renamed"


def test_single_experts_are_named_where_they_are_one_parameter() -> None:
    experts = Inventory((*LLAMA.parameters, Parameter("model.layers.0.mlp.experts.gate_up_proj", (8, 4, 2))))
    (found,) = codes("model.layers.*.mlp.experts.3.w1.weight", inventory=experts)
    assert found.code == "fused"
    assert "'model.layers.0.mlp.experts.gate_up_proj'" in found.text


@pytest.mark.parametrize(
    ("rows", "outside"), [("[2:5]", False), ("[60:]", False), ("[63]", False), ("[2:65]", True), ("[64]", True)]
)
def test_rows_are_held_against_the_shape(rows: str, outside: bool) -> None:  # noqa: FBT001  # a parameter of the test
    findings = codes(f"^lm_head.weight${rows}", "axolotl")
    assert [one.code for one in findings] == (["rows"] if outside else [])


def test_rows_at_stage_3_are_what_axolotl_gets_wrong() -> None:
    (found,) = codes("^lm_head.weight$[2:5]", "axolotl", stage=3)
    assert found.evidence == ("axolotl_closed_row_range", "axolotl_open_row_range")


@pytest.mark.parametrize(("pattern", "dialect"), [("(", "search"), ("*", "match"), ("*layers.2.", "axolotl")])
def test_what_is_no_pattern_is_bad_input(pattern: str, dialect: str) -> None:
    assert worst(codes(pattern, dialect)) in (Level.INPUT, Level.WRONG)
    assert "is no regular expression" in codes(pattern, dialect)[0].text


# -- all of a plan ---------------------------------------------------------------------------


def test_patterns_that_choose_nothing_together() -> None:
    seen = look(plan(train=("nothing.*",)), LLAMA, {})
    assert "nothing-trains" in [one.code for one in seen.findings]
    assert look(plan(train=("lm_head.*",)), LLAMA, {}).findings == ()


def test_what_trains_and_what_its_optimizer_holds() -> None:
    seen = look(plan(train=("lm_head.*", "model.norm.*"), precision="bf16"), LLAMA, {})

    assert seen.trained_count == 64 * 32 + 64
    assert optimizer_bytes(plan(precision="bf16"), 1000, world=8) == 12 * 1000 // 8
    assert optimizer_bytes(plan(optimizer="SGD"), 1000, world=8) == 0
    assert optimizer_bytes(plan(deepspeed=DeepSpeed(stage=0)), 1000, world=8) == 8 * 1000


def test_targets_of_an_adapter_that_no_module_has() -> None:
    right = plan(adapter=Adapter("lora", targets=("q_proj", "v_proj"), whole=("lm_head",)), tool="trainer")
    assert [one.code for one in look(right, LLAMA, {}).findings] == []
    wrong = plan(adapter=Adapter("lora", targets=("query_key_value",), whole=("head",)), tool="trainer")
    assert [one.code for one in look(wrong, LLAMA, {}).findings] == ["adapter-target", "adapter-target"]


def test_the_json_and_the_arguments_say_different_things() -> None:
    said, _ = read_deepspeed(
        {**ZERO_3, "optimizer": {"type": "SGD", "params": {"lr": 1e-3}}, "bf16": {"enabled": True}}, "d", "trainer"
    )
    seen = look(plan(tool="trainer", deepspeed=said, optimizer="adamw_torch", lr=1e-5), LLAMA, {})
    assert [(one.code, one.where) for one in seen.findings] == [
        ("mismatch", "optimizer.params.lr"),
        ("mismatch", "precision"),
        ("optimizer", "optimizer"),
    ]


def test_what_was_measured_on_these_versions_is_told_with_the_case() -> None:
    entry = Expectation(
        Verdict.RAISES,
        case="frozen_norms_in_checkpoint",
        where={"stage": (3,)},
        versions={"deepspeed": "<0.19.8"},
        moment="backward",
        type="CheckpointError",
    )
    mixed = plan(tool="trainer", checkpointing="non_reentrant", train=("*.q_proj.*",))
    trained = frozenset(name for name in NAMES if "q_proj" in name)

    def bites(one: Plan, version: str) -> list[tuple[str, ...]]:
        found = known_to_bite(one, trained, NAMES, {"deepspeed": version}, Expectations([entry]))
        return [each.evidence for each in found]

    assert bites(mixed, "0.16.9") == [("frozen_norms_in_checkpoint",)]
    assert bites(mixed, "0.19.8") == []
    assert bites(replace(mixed, deepspeed=DeepSpeed(stage=2)), "0.16.9") == []
    assert bites(plan(tool="trainer", train=("*.q_proj.*",)), "0.16.9") == []


def test_a_recipe_that_works_elsewhere_is_not_said_to_work_here() -> None:
    entry = Expectation(
        Verdict.WRONG_UPDATE, case="freeze_except_before_engine", note="measured on 2 gloo ranks; it steps twice"
    )
    (found,) = known_to_bite(plan(train=("lm_head.*",)), frozenset(NAMES[-1:]), NAMES, {}, Expectations([entry]))
    assert found.text == "measured on these versions at stage 3: WRONG_UPDATE (it steps twice)"


def test_every_situation_names_cases_that_exist() -> None:
    for situation in _SITUATIONS:
        for name in situation.cases:
            assert find(name).name == name


def test_changes_are_tried_the_smallest_first() -> None:
    told_of = plan(tool="axolotl", dialect="axolotl", train=("model.layers.1", "lm_head"), checkpointing="reentrant")
    findings = look(told_of, LLAMA, {}).findings

    first, second, *_ = candidates(told_of, findings)

    assert first.plan.train == ("model.layers.1.", "lm_head")
    assert first.told == "write 'model.layers.1.' for 'model.layers.1'"
    assert second.plan.checkpointing == "non_reentrant"
    cure = find_cure(told_of, look(told_of, LLAMA, {}), findings, {}, None)
    assert cure is not None
    assert cure.told == first.told


# -- what a tiny model must keep -------------------------------------------------------------

_PIECES = [
    "model",
    "layers",
    ".",
    ".+",
    "*",
    ".*",
    "1",
    "0",
    "10",
    "self_attn",
    "q_proj",
    "weight",
    "lm_head",
    "[12]",
    "^",
]
_PATTERNS = st.one_of(
    st.lists(st.sampled_from(_PIECES), min_size=1, max_size=7).map("".join),
    st.builds(lambda layer, dot: f"model.layers.{layer}{dot}", st.integers(0, 79), st.sampled_from(["", ".", ".*"])),
)


def _deep(layers: int) -> list[str]:
    middle = [f"model.layers.{n}.{part}.weight" for n in range(layers) for part in ("self_attn.q_proj", "mlp.up_proj")]
    return ["model.embed_tokens.weight", *middle, "lm_head.weight"]


@settings(max_examples=200, deadline=None)
@given(patterns=st.lists(_PATTERNS, min_size=1, max_size=4), dialect=st.sampled_from([*DIALECTS]))
@example(patterns=["model.+model"], dialect="match")  # without its first word it is no regular expression
def test_fewer_layers_keep_what_patterns_mean(patterns: list[str], dialect: str) -> None:
    """Each that matches something still does, the same names match, and what trained in part still does."""
    real = _deep(80)
    inventory = Inventory(tuple(Parameter(name, (4, 4)) for name in real))
    matched, _ = match(patterns, inventory, dialect=dialect, key="--train", stage=2)

    keep = layers_to_keep(matched, real)

    tiny = [name for name in real if all(number < keep for number in layers_of(name))]
    assert tiny == _deep(min(keep, 80))
    for one in matched:
        again = DIALECTS[dialect].matching(one.pattern, tiny)
        assert again == [name for name in one.names if name in tiny]
        assert bool(again) == bool(one.names)
        assert (len(again) == len(tiny)) == (len(one.names) == len(real))


def test_the_layers_that_are_kept() -> None:
    def keep(*names: str) -> int:
        return layers_to_keep([Matched("", names)], _deep(80))

    assert keep("lm_head.weight") == 12
    assert keep("model.layers.3.mlp.up_proj.weight") == 12
    assert keep("model.layers.60.mlp.up_proj.weight", "model.layers.61.mlp.up_proj.weight") == 61


class _Axolotl:
    """The real pattern class, in a process of its own, since it imports torch."""

    _CODE = (
        "import json, re, sys\n"
        "from axolotl.utils.freeze import LayerNamePattern\n"
        "for line in sys.stdin:\n"
        "    pattern, names = json.loads(line)\n"
        "    try:\n"
        "        read = LayerNamePattern(pattern)\n"
        "        said = [name for name in names if read.match(name)]\n"
        "    except re.error:\n"
        "        said = 're.error'\n"
        "    except Exception as error:\n"
        "        said = type(error).__name__\n"
        "    print(json.dumps(said), flush=True)\n"
    )

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", self._CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def matching(self, pattern: str, names: list[str]) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([pattern, names]) + "\n")
        self.process.stdin.flush()
        while True:
            line = self.process.stdout.readline()
            assert line, "it ended"
            if line.startswith(("[", '"')):  # what its imports print is none of ours
                return json.loads(line)


@pytest.fixture(scope="module")
def real_axolotl() -> Iterator[_Axolotl]:
    one = _Axolotl()
    yield one
    assert one.process.stdin is not None
    assert one.process.stdout is not None
    one.process.stdin.close()
    one.process.wait(30)
    one.process.stdout.close()


@settings(max_examples=300, deadline=None)
@given(
    pattern=st.lists(st.sampled_from([*_PIECES, "(1|2)", "$", "\\.", "?", "re:"]), min_size=1, max_size=8).map("".join),
    rows=st.sampled_from(["", "", "[3]", "[2:5]", "[2:]", "[:5]"]),
)
def test_patterns_are_read_as_axolotl_reads_them(real_axolotl: _Axolotl, pattern: str, rows: str) -> None:
    try:
        ours: Any = AxolotlPattern(pattern + rows).matching(NAMES)
    except re.error:
        ours = "re.error"
    theirs = real_axolotl.matching(pattern + rows, NAMES)
    if isinstance(theirs, str):
        assert ours == "re.error"
    else:
        assert ours == theirs


# -- what the ranks are told, and tell --------------------------------------------------------


def test_the_settings_of_a_plan_are_those_of_the_ranks() -> None:
    said, _ = read_deepspeed(
        {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}, "d", "trainer"
    )
    made = options_of(
        plan(tool="trainer", deepspeed=said, precision="bf16", checkpointing="reentrant", accumulation=16, clipping=1.0)
    )
    assert made.faults() == []
    assert made.id == "tiny_llama-z3-zero_init-persist_zero-bf16-ckpt_reentrant-offload_cpu-accum2-clip1"
    assert options_of(plan()).id == "tiny_llama-z3-plain-persist_zero"


def test_what_the_ranks_run_is_a_case_of_its_own(tmp_path: Path) -> None:
    """Written as anyone would write one, so that it can be handed on."""
    asked = plan(
        train=(r"model\.layers\.'2'", '"'), dialect="search", weight_decay=0.1, source=Source({"a": None}, tmp_path)
    )
    file = tmp_path / "handed_on.py"
    file.write_text(case_source(asked, look(asked, LLAMA, {}), "handed_on"))

    case = find_case(file.stem, str(file), "handed_on")

    assert [one.stage for one in case.variants] == [3]
    written = sys.modules[case.module].PLAN
    assert written["train"] == [r"model\.layers\.'2'", '"']
    assert (written["layers"], written["weight_decay"], written["model"]) == (12, 0.1, {"a": None})


@pytest.mark.parametrize(
    ("verdict", "moment", "level"),
    [
        (Verdict.TRAINS, "", None),
        (Verdict.NO_UPDATE, "", Level.WRONG),
        (Verdict.FROZEN_DRIFT, "", Level.WRONG),
        (Verdict.RAISES, "engine", Level.WRONG),
        (Verdict.RAISES, "loaded", Level.WRONG),
        (Verdict.HANG, "backward", Level.WRONG),
        # Nothing of the user's has run by then.
        (Verdict.RAISES, "start", Level.UNKNOWN),
        (Verdict.RAISES, "constructed", Level.UNKNOWN),
        (Verdict.NOT_RUN, "", Level.UNKNOWN),
    ],
)
def test_what_a_verdict_of_the_ranks_means(verdict: Verdict, moment: str, level: Level | None) -> None:
    failure = Failure(moment, "ValueError", "because\n  of this") if moment else None
    record = CaseRecord("c", "CONTROL", {}, "c", verdict, "told", 2, "cpu", "zygote", failure=failure)

    levels = [one.level for one in _found(record)]

    assert levels == ([] if level is None else [level])


# -- what is told ----------------------------------------------------------------------------


def test_three_hundred_parameters_are_told_on_one_screen() -> None:
    def verdict(name: str) -> Verdict:
        if ".8." in name:
            return Verdict.NO_UPDATE if "q_proj" in name else Verdict.TRAINS
        return Verdict.FROZEN

    names = [
        "model.embed_tokens.weight",
        *(f"model.layers.{n}.{part}.weight" for n in range(32) for part in ("a.q_proj", "a.k_proj", "mlp.up", "norm")),
        "lm_head.weight",
    ]
    lines = grouped(ParameterVerdict(one, verdict(one), False, False, [], []) for one in names)

    assert [line.split() for line in lines] == [
        ["model.embed_tokens.*", "FROZEN", "1"],
        ["model.layers.0-7,9-31.*", "FROZEN", "124"],
        ["model.layers.8.a.q_proj.*", "NO_UPDATE", "1"],
        ["model.layers.8.a.k_proj.*", "TRAINS", "1"],
        ["model.layers.8.mlp.*", "TRAINS", "1"],
        ["model.layers.8.norm.*", "TRAINS", "1"],
        ["lm_head.*", "FROZEN", "1"],
    ]


@pytest.fixture
def known_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with a model whose names are those above, without torch to ask."""
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "zero3.json").write_text(json.dumps(ZERO_3))
    monkeypatch.setattr(_check, "_inventory", lambda _: LLAMA)
    monkeypatch.setattr(_check, "installed_versions", dict)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(*arguments: str) -> int:
    return cli.main(["check", "--fast", *arguments])


def test_the_answers_and_their_statuses(known_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given_ = ("--model", "m", "--deepspeed", "zero3.json", "--train")
    assert check(*given_, "model.layers.8.*") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "safe: nothing was found, and no rank was asked"
    assert check(*given_, "model.layers.1*") == 1
    last = capsys.readouterr().out.splitlines()[-2:]
    assert last[0].startswith("not safe: --train 'model.layers.1*': it matches layer 1, and 10, 11 as well")
    assert last[1] == "change: write 'model.layers.1.*' for 'model.layers.1*' (not seen on ranks yet)"
    assert check("--model", "none", *given_[2:], "x") == 2
    (known_model / "zero3.json").write_text('{"zero_optimization": {"stage": 7}}')
    assert check(*given_, "x", "--json") == 2
    plain = json.loads(capsys.readouterr().out.partition("{")[2].join(("{", "")))
    assert plain["answer"] == "bad input"


@pytest.mark.usefixtures("known_model")
def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("--model", "m", "--deepspeed", "zero3.json", "--train", "lm_head.*", "--world", "4", "--json") == 0
    plain = json.loads(capsys.readouterr().out)
    assert (plain["answer"], plain["trained"], plain["stage"], plain["world"]) == ("safe", ["lm_head.weight"], 3, 4)
    assert plain["patterns"] == [{"pattern": "lm_head.*", "rows": "", "names": ["lm_head.weight"]}]


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ([], "name what to check"),
        (["--model", "m"], "--model: name what trains it, too"),
        (["--axolotl", "a", "--train", "x"], "--axolotl says that itself: leave --train out"),
        (["--axolotl", "a", "--world", "0"], "--world must be 1 rank or more, found 0"),
    ],
)
def test_bad_usage(arguments: list[str], fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(*arguments) == 2
    assert fault in capsys.readouterr().err


def test_the_command_imports_no_torch() -> None:
    code = "import sys, harness.control.cli; assert not {'torch', 'transformers', 'yaml'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", code], check=True)
