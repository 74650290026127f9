"""Cases that reach the engine through a library, for ``test_drivers``."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from typing import TYPE_CHECKING
from unittest import mock

from harness.cell import (
    Hyper,
    Options,
    case,
    freeze_all,
    freeze_all_then_unfreeze,
    freeze_except,
    grid,
    unfreeze,
)
from harness.cell.models import mlp, tiny_llama
from harness.drivers._axolotl_files import write_texts, write_tokenizer
from harness.drivers._offline import offline
from harness.drivers.axolotl import freeze_layers_except
from harness.drivers.axolotl_past import checked_ranges, first_loop, unchecked_ranges
from harness.drivers.axolotl_train import NEEDS, train_with_axolotl
from harness.drivers.pretrained import as_told
from harness.drivers.trainer import _arguments, at_step_begin, at_train_begin, train_with_trainer

if TYPE_CHECKING:
    import torch

    from harness.cell._run import Run
    from harness.cell.models import Batch

_LLAMA = tuple(grid(("tiny_llama",), (0, 1, 2, 3)))


@case(kind="CONTROL", variants=[*_LLAMA, Options(model="mlp", init="zero_init")])
def freezes_before_the_trainer(run: Run) -> None:
    def freeze(model: torch.nn.Module) -> None:
        empty = {tuple(one.shape) == (0,) for one in model.parameters()}
        assert empty == {run.options.init == "zero_init"}, "partitioned when loaded, and only then"
        freeze_except(model, run.part("block"))

    train_with_trainer(run, freeze=freeze, intent=run.part("block"))


@case(kind="CONTROL", variants=[Options(stage=1), Options(stage=3, init="zero_init")])
def trains_all(run: Run) -> None:
    train_with_trainer(run, intent="*", hyper=Hyper(weight_decay=0.3, betas=(0.8, 0.9), eps=1e-4, lr=3e-3))


@case(kind="CONTROL", variants=[Options(init="zero_init"), Options()])
def stays_told_of_zero_3(run: Run) -> None:
    """By its arguments, through loading and wrapping; the twin's model, which is whole, is wrapped untold."""
    from transformers.integrations import is_deepspeed_zero3_enabled

    told = []

    def wrap(model: torch.nn.Module) -> torch.nn.Module:
        told.append(is_deepspeed_zero3_enabled())
        return model

    train_with_trainer(
        run, freeze=lambda _: told.append(is_deepspeed_zero3_enabled()), wrap=as_told(run, wrap), intent="*"
    )
    assert told == [False, *[run.options.init == "zero_init"] * 2], told


@case(kind="CONTROL", variants=[Options(model="mlp")])
def tells_accelerate_of_deepspeed(run: Run) -> None:
    """From the start, as on GPUs: older releases of accelerate make no engine otherwise."""
    arguments = _arguments(run, steps=2)
    state = arguments.distributed_state
    assert (state.distributed_type.value, state.device.type, state.num_processes) == ("DEEPSPEED", "cpu", 2)
    assert (arguments.device.type, arguments.world_size, arguments.process_index) == ("cpu", 2, run.rank)
    assert "ACCELERATE_TORCH_DEVICE" not in os.environ, "it would hold for what else this process does"

    trainer = train_with_trainer(run, intent="*")
    assert trainer.accelerator.device.type == "cpu"


@case(
    kind="C",
    variants=[*(Options(stage=stage) for stage in (0, 1, 2, 3)), Options(init="zero_init", persistence="default")],
)
def unfreezes_at_train_begin(run: Run) -> None:
    train_with_trainer(
        run,
        freeze=lambda model: freeze_except(model, run.part("head")),
        callbacks=[at_train_begin(unfreeze, run.part("block"))],
        intent=(*run.part("head"), *run.part("block")),
    )


@case(kind="CONTROL", variants=[Options(stage=0)])
def rotates_blocks_at_step_begin(run: Run) -> None:
    def block(step: int) -> tuple[str, ...]:
        return run.part("other block" if step == 1 else "block")

    train_with_trainer(run, callbacks=[at_step_begin(freeze_all_then_unfreeze, block)], intent=block, steps=3)


@case(kind="A", variants=[Options(stage=stage) for stage in (1, 2, 3)])
def freezes_all_before_the_trainer(run: Run) -> None:
    train_with_trainer(
        run,
        freeze=freeze_all,
        callbacks=[at_train_begin(freeze_all_then_unfreeze, run.part("block"))],
        intent=run.part("block"),
    )


def _prompts_masked(generator: torch.Generator) -> Batch:
    """Every micro-batch with another number of tokens that count."""
    batch = tiny_llama.batch(generator)
    prompt = 1 + int(batch["input_ids"][0, 0]) % 13
    batch["labels"][:, :prompt] = -100
    return batch


@case(
    kind="CONTROL",
    variants=[
        Options(stage=2),
        Options(stage=0, accumulation=2),
        Options(stage=3, accumulation=2, init="zero_init"),
        Options(stage=3, accumulation=2, clipping=0.01),
    ],
)
def weighs_tokens(run: Run) -> None:
    train_with_trainer(
        run,
        freeze=lambda model: freeze_except(model, run.part("block")),
        intent=run.part("block"),
        batch=_prompts_masked,
    )


@case(kind="CONTROL", variants=[Options(model="mlp", accumulation=2)])
def averages_micro_batches(run: Run) -> None:
    train_with_trainer(run, freeze=lambda model: freeze_except(model, run.part("block")), intent=run.part("block"))


@case(kind="CONTROL", variants=[Options(model="mlp", stage=2)])
def makes_no_engine(run: Run) -> None:
    """As transformers 5.1.0: what accelerate prepares comes back as it was."""
    with mock.patch("accelerate.Accelerator.prepare", lambda _, *given, **__: given if given[1:] else given[0]):
        train_with_trainer(run, intent="*")


@case(kind="CONTROL", variants=[Options(model="mlp", stage=0)])
def asks_for_nonsense(run: Run) -> None:
    train_with_trainer(run, intent="*", steps=0, hyper=Hyper(optimizer="SGD"))


@case(kind="CONTROL", variants=[Options(), Options(init="zero_init"), Options(stage=2)], needs=("axolotl",))
def axolotl_freezes(run: Run) -> None:
    model = run.model()
    freeze_layers_except(model, ["^model.layers.2."])
    run.train(run.engine(model), intent=run.part("block"))


@case(kind="CONTROL", variants=[Options(init="zero_init")], needs=("axolotl",))
def axolotl_freezes_before_the_trainer(run: Run) -> None:
    train_with_trainer(
        run,
        freeze=lambda model: freeze_layers_except(model, ["^model.layers.2."]),
        intent=run.part("block"),
    )


@case(kind="Q", variants=[Options(init="zero_init")], needs=("axolotl",))
def axolotl_counts_rows_of_a_partition(run: Run) -> None:
    model = run.model()
    freeze_layers_except(model, ["^lm_head.weight$[32:]"])
    run.train(run.engine(model), intent=run.part("head"))


@case(kind="CONTROL", variants=[Options(model="mlp", stage=0)])
def axolotl_cannot_be_imported(run: Run) -> None:
    sys.modules["axolotl.utils.freeze"] = None  # type: ignore[assignment]  # how Python marks one that must fail
    freeze_layers_except(run.model(), ["^layers.2."])


@case(kind="CONTROL", variants=[Options(model="mlp", stage=0)])
def reaches_for_the_network(run: Run) -> None:
    """And trains all the same."""
    with offline():
        with contextlib.suppress(Exception), socket.socket() as one:
            one.connect(("192.0.2.1", 9))
        run.train(run.engine(run.model()), intent="*")


@case(kind="CONTROL", variants=[Options(model="mlp", stage=0)], needs=("tokenizers",))
def reads_back_texts_and_tokenizer(run: Run) -> None:
    from transformers import AutoTokenizer

    folder = run.folder / f"of rank {run.rank}"
    folder.mkdir()
    write_tokenizer(folder, 64)
    write_texts(folder / "data.jsonl", 8, 64)
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    texts = [json.loads(line)["text"] for line in (folder / "data.jsonl").read_text().splitlines()]
    numbers = [tokenizer(text)["input_ids"] for text in texts]
    assert len(tokenizer) == 64
    assert [tokenizer.decode(one) for one in numbers] == texts
    assert len({len(one) for one in numbers}) > 1, "padding is tried as well"
    assert tokenizer.pad_token_id != tokenizer.eos_token_id, "else labels of the end would be masked"

    run.train(run.engine(run.model()), intent="*")


@case(kind="CONTROL", variants=[Options(init="zero_init")], needs=NEEDS)
def axolotl_trains(run: Run) -> None:
    train_with_axolotl(run, ["model.layers.2."], intent=run.part("block"))


@case(kind="CONTROL", variants=[Options(init="zero_init")])
def axolotl_trains_without_its_dependencies(run: Run) -> None:
    train_with_axolotl(run, ["model.layers.2."], intent=run.part("block"))


@case(kind="CONTROL", variants=[Options(stage=2, offload="cpu", precision="bf16"), Options()])
def asks_for_nonsense_of_axolotl(run: Run) -> None:
    train_with_axolotl(
        run, ["a"], intent="*", steps=0, hyper=Hyper(optimizer="SGD"), settings={"deepspeed": {"stage": 1}}
    )


@case(kind="CONTROL", variants=[Options(model="mlp", stage=0)], needs=("axolotl",))
def remakes_axolotl(run: Run) -> None:
    """Ours of a time before packages and that of a package, on a model that is whole: flags and gradients are equal."""
    for patterns in (
        ["^head.weight$[2:5]"],
        ["^head.weight$[5:]", "layers.2."],
        ["^head.weight$[:2]", "^head.weight$[4:6]", "^head.bias$"],
        ["layers.1.weight", "ayers.2."],
    ):
        seen = []
        for freeze in (freeze_layers_except, checked_ranges, unchecked_ranges):
            model = run.bystander(mlp, under="plain")
            freeze(model, patterns)
            model(**mlp.batch(_generator())).backward()
            flags = {name: one.requires_grad for name, one in model.named_parameters()}
            seen.append((flags, {name: one.grad for name, one in model.named_parameters() if one.grad is not None}))
        (flags, grads), *others = seen
        assert any(flags.values())
        for their_flags, their_grads in others:
            assert flags == their_flags, patterns
            assert {*grads} == {*their_grads}, patterns
            assert all(grads[name].equal(one) for name, one in their_grads.items()), patterns
        plain = run.bystander(mlp, under="plain")
        first_loop(plain, [one.partition("[")[0] for one in patterns])
        assert flags == {name: one.requires_grad for name, one in plain.named_parameters()}, patterns
    model = run.model()
    run.train(run.engine(model), intent="*")


def _generator() -> torch.Generator:
    """The same micro-batch for each."""
    import torch

    return torch.Generator().manual_seed(1)
