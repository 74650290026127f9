"""What is said of an Axolotl configuration before anything starts, and that it reads patterns as Axolotl does."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.drivers.axolotl_config import Pattern, config_faults, names_in, pattern_faults

NAMES = [
    "model.embed_tokens.weight",
    *(f"model.layers.{layer}.self_attn.{part}_proj.weight" for layer in range(12) for part in "qkv"),
    "model.norm.weight",
    "lm_head.weight",
]

PATTERNS = [
    "model.layers.2.",
    "model.layers.1",
    "layers.2.",
    "^lm_head.weight$",
    "lm_head",
    ".+.q_proj",
    "model.layers.(1|2).",
    "model.layers.*.self_attn",
    "model.layers.1.*",
    r"model\.layers\.2\.",
    "model.layers.[12]",
    "^lm_head.weight$[2:5]",
    "^lm_head.weight$[5:]",
    "^lm_head.weight$[7]",
    "re:model.layers.2.",
    "model.layers.1[01].",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's: a model with its weights, a DeepSpeed JSON."""
    (tmp_path / "llama").mkdir()
    (tmp_path / "llama" / "config.json").write_text("{}")
    head = json.dumps({"__metadata__": {}, **{name: {} for name in NAMES}}).encode()
    (tmp_path / "llama" / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head)
    (tmp_path / "notes.txt").write_text("stage: 3")
    (tmp_path / "zero3.json").write_text('{"zero_optimization": {"stage": 3}}')
    return tmp_path


def config(**changes: Any) -> dict[str, Any]:
    return {
        "base_model": "llama",
        "deepspeed": "zero3.json",
        "unfrozen_parameters": ["model.layers.2.", "^lm_head.weight$"],
        **changes,
    }


def test_what_is_right_is_left_alone(folder: Path) -> None:
    assert config_faults(config(), folder=folder, stage=3, offline=True) == []
    assert config_faults(config(base_model=str(folder / "llama")), folder=Path("/"), stage=3)[0].endswith(
        "'zero3.json'"
    )
    assert config_faults({"base_model": "llama"}, folder=folder, offline=True) == []
    assert config_faults({"base_model": "HuggingFaceTB/SmolLM2-135M"}, folder=folder) == []


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"base_model": None}, "base_model: must name a model's folder, or its id on the Hub, found None"),
        ({"base_model": "./lama"}, "base_model: there is no folder './lama'; in {folder}, did you mean 'llama'?"),
        ({"base_model": "/nowhere/at/all"}, "base_model: there is no folder '/nowhere/at/all'; in /nowhere/at, there "),
        ({"base_model": "org/model"}, "base_model: there is no folder 'org/model', so it would be looked for on the H"),
        ({"base_model": "."}, "base_model: '.' has no config.json, so it is no model's folder"),
        ({"deepspeed": "zero4.json"}, "deepspeed: there is no file 'zero4.json'"),
        ({"deepspeed": 3}, "deepspeed: must be a JSON file, or what would be in it, found 3"),
        ({"deepspeed": "llama"}, "deepspeed: 'llama' cannot be read: "),
        ({"deepspeed": "llama/model.safetensors"}, "deepspeed: 'llama/model.safetensors' cannot be read: "),
        ({"deepspeed": "notes.txt"}, "deepspeed: notes.txt is no JSON: "),
        ({"deepspeed": {"zero_optimization": {"stage": "3"}}}, "deepspeed: ZeRO stages are 0 to 3, found zero_optimi"),
        (
            {"deepspeed": {"zero_optimization": {"stage": 2}}},
            "deepspeed: the ZeRO stage is given twice, 2 there and 3 ",
        ),
        ({"fsdp_config": {"version": 2}}, "deepspeed: fsdp_config is given as well, and Axolotl goes by only one of "),
        ({"unfrozen_parameters": "lm_head"}, "unfrozen_parameters: must be a list of patterns, found 'lm_head'"),
        ({"unfrozen_parameters": [2]}, "unfrozen_parameters: must be a list of patterns, found [2]"),
        ({"unfrozen_parameters": []}, "unfrozen_parameters: is empty, which freezes nothing"),
    ],
)
def test_a_fault_is_told_with_its_key(folder: Path, changes: dict[str, Any], fault: str) -> None:
    found = config_faults(config(**changes), folder=folder, stage=3, offline=True)

    assert len(found) == 1, found
    assert found[0].startswith(fault.format(folder=folder))


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        (
            "layers.2.",
            "matches none of the model's 39 parameters; Axolotl matches from the start of a name, and it stan",
        ),
        ("q_proj", "matches none of the model's 39 parameters; Axolotl matches from the start of a name"),
        ("model.layer.2.", "matches none of the model's 39 parameters; did you mean 'model.layers.2'"),
        ("model.layers.?.self_attn.q*", "matches none of the model's 39 parameters; as a shell pattern it would match"),
        (r"model\.layers\.2\.", "escapes a dot, which Axolotl does by itself"),
        ("model.layers.*.self_attn.", "has `.*`, which is `anything` in shell patterns"),
        ("model.layers.2.*", "has `.*`, which is `anything` in shell patterns"),
        ("re:.+q_proj", "begins with `re:`, as compressed-tensors marks"),
        ("*layers.2.", "is no regular expression: nothing to repeat"),
        ("model.layers.[12]", "ends with digits in brackets, which are rows"),
        ("^lm_head.weight$[5:2]", "ends before it starts"),
        ("^lm_head.weight$[2:5]", "asks for rows of a parameter, and at ZeRO stage 3"),
        ("^lm_head.weight$[5:]", "asks for rows of a parameter, and at ZeRO stage 3"),
    ],
)
def test_a_pattern_that_will_not_do_what_it_seems_to(folder: Path, pattern: str, fault: str) -> None:
    """Each by itself, and beside one that is right; names come from the model's files."""
    found = config_faults(config(unfrozen_parameters=["model.norm.", pattern]), folder=folder)

    assert len(found) == 1, found
    assert found[0].startswith(f"unfrozen_parameters: {pattern!r} {fault}")


def test_all_faults_come_at_once(folder: Path) -> None:
    (folder / "twice.json").write_text('{"zero_optimization": {"stage": 2, "overlap_comm": true, "stage": 3}}')

    found = config_faults(
        {"base_model": "./no", "deepspeed": "twice.json", "fsdp": ["full"], "unfrozen_parameters": ["re:a", "*"]},
        folder=folder,
    )

    assert [fault.partition(": ")[0] for fault in found] == [
        "base_model",
        "deepspeed",
        "deepspeed",
        "unfrozen_parameters",
        "unfrozen_parameters",
    ]
    assert "in twice.json the ZeRO stage is given twice, and the last, 3, counts" in "\n".join(found)


def test_what_is_suggested_instead_matches() -> None:
    (fault,) = pattern_faults(["layers.2."], NAMES)
    suggested = fault.rpartition("write ")[2].strip("'")

    assert pattern_faults([suggested], NAMES) == []
    assert Pattern(suggested).matching(NAMES) == [name for name in NAMES if name.startswith("model.layers.2.")]


def test_rows_are_fine_where_nothing_is_partitioned(folder: Path) -> None:
    rows = config(unfrozen_parameters=["^lm_head.weight$[2:5]"])

    assert config_faults({**rows, "deepspeed": {"zero_optimization": {"stage": 2}}}, folder=folder) == []
    assert len(config_faults(rows, folder=folder)) == 1


def test_names_come_from_all_kinds_of_folders(folder: Path) -> None:
    model = folder / "llama"
    assert names_in(model) == NAMES

    (model / "model.safetensors.index.json").write_text('{"weight_map": {"a.weight": "1", "b.weight": "2"}}')
    assert names_in(model) == ["a.weight", "b.weight"]

    for broken in ("{", '{"weight_map": 1}', "[]"):
        (model / "model.safetensors.index.json").write_text(broken)
        assert names_in(model) == []
    (model / "model.safetensors.index.json").unlink()
    for broken_head in (b"", b"\0", struct.pack("<Q", 1 << 62), struct.pack("<Q", 4) + b"nope"):
        (model / "model.safetensors").write_bytes(broken_head)
        assert names_in(model) == []
    assert names_in(folder / "nowhere") == []


def test_a_model_without_readable_names_is_not_asked_about_patterns(folder: Path) -> None:
    (folder / "llama" / "model.safetensors").unlink()

    assert config_faults(config(unfrozen_parameters=["whatever."]), folder=folder) == []


def test_patterns_are_read_as_axolotl_reads_them() -> None:
    """The real one, in a process of its own: it imports torch."""
    code = (
        "import json, sys\n"
        "from axolotl.utils.freeze import LayerNamePattern\n"
        "names, patterns = json.load(sys.stdin)\n"
        "read = [LayerNamePattern(one) for one in patterns]\n"
        "print(json.dumps([[one.range is not None, [name for name in names if one.match(name)]] for one in read]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps([NAMES, PATTERNS]), capture_output=True, text=True, check=True
    )

    ours = [[one.rows is not None, one.matching(NAMES)] for one in map(Pattern, PATTERNS)]
    assert json.loads(done.stdout.splitlines()[-1]) == ours
