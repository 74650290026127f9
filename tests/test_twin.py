"""The twin against training loops written out by hand."""

from __future__ import annotations

import pytest
import torch
from honest_run import Small, micro, start_of, twin_of
from torch import nn

from harness.cell import Group, Hyper
from harness.cell.oracle._observer import Micro
from harness.cell.oracle._twin import Twin

_ALL = frozenset(start_of(0))
_ADAMW = Hyper(lr=0.05, weight_decay=0.2)
_SGD = Hyper(optimizer="SGD", lr=0.3, momentum=0.9, weight_decay=0.2)


def make(hyper: Hyper = _ADAMW, precision: str = "fp32", clipping: float = 0.0) -> Twin:
    return twin_of(start_of(0), hyper, precision, clipping=clipping)


def shards_of(number: int, ranks: int, micros: int) -> list[list[Micro]]:
    return [[micro(100 * number + 10 * rank + one) for one in range(micros)] for rank in range(ranks)]


def assert_close(one: torch.Tensor, other: torch.Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("ranks", "micros"), [(1, 1), (3, 1), (1, 2), (3, 2)])
@pytest.mark.parametrize("clipping", [0.0, 0.05])
@pytest.mark.parametrize("hyper", [_ADAMW, _SGD], ids=["AdamW", "SGD"])
def test_it_trains_as_one_process_on_all_shards_does(hyper: Hyper, clipping: float, ranks: int, micros: int) -> None:
    twin = make(hyper, clipping=clipping)
    model = Small()
    model.load_state_dict(start_of(0))
    optimizer = (
        torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9, weight_decay=0.2)
        if hyper is _SGD
        else torch.optim.AdamW(model.parameters(), lr=0.05, betas=(0.9, 0.999), eps=1e-5, weight_decay=0.2)
    )
    for number in range(3):
        shards = shards_of(number, ranks, micros)

        twin.step(shards, _ALL, {})

        optimizer.zero_grad()
        losses = [model(*one.args) for micros_of_rank in shards for one in micros_of_rank]
        torch.stack(losses).mean().backward()  # type: ignore[no-untyped-call]
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            assert_close(twin.grads[name], parameter.grad)
        if clipping:
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clipping)
            assert norm > clipping, "else nothing is clipped and nothing tested"
        optimizer.step()
        for name, parameter in model.named_parameters():
            assert_close(twin.masters[name], parameter)


def test_a_rescaled_loss_rescales_the_gradient() -> None:
    shards = shards_of(0, 2, 1)
    plain = make()
    plain.step(shards, _ALL, {})
    for micros in shards:
        micros[0].scale = 0.25
    scaled = make()

    scaled.step(shards, _ALL, {})

    for name in _ALL:
        assert_close(scaled.grads[name], plain.grads[name] / 4)


def test_what_the_intent_leaves_out_stays_bit_equal() -> None:
    twin = make()

    twin.step(shards_of(0, 2, 1), frozenset({"last.weight"}), {})

    assert set(twin.grads) == {"last.weight"}
    moved = {name for name, master in twin.masters.items() if not torch.equal(master, start_of(0)[name])}
    assert moved == {"last.weight"}


def test_below_fp32_it_steps_fp32_masters_and_computes_with_their_roundings() -> None:
    twin = make(precision="bf16")
    start = {name: one.bfloat16() for name, one in start_of(0).items()}
    assert all(torch.equal(master, start[name].float()) for name, master in twin.masters.items())

    twin.step(shards_of(0, 2, 1), _ALL, {})

    parameters = dict(twin._model.named_parameters())
    assert any(not torch.equal(master, master.bfloat16().float()) for master in twin.masters.values())
    for name, master in twin.masters.items():
        assert master.dtype == torch.float32
        assert parameters[name].dtype == torch.bfloat16
        assert torch.equal(parameters[name], master.bfloat16())


def test_steps_far_below_a_bf16_rounding_add_up() -> None:
    twin = make(Hyper(lr=1e-6, weight_decay=0.0), precision="bf16")
    for _ in range(3):
        twin.step(shards_of(0, 1, 1), _ALL, {})

    moved = twin.masters["scale"].detach() - 1.5
    assert 2e-6 < abs(float(moved)) < 4e-6


def test_it_steps_by_the_gradient_that_the_run_had() -> None:
    shards = shards_of(0, 2, 1)
    own = make(_SGD)
    own.step(shards, _ALL, {})
    given = {name: 2 * grad for name, grad in own.grads.items()}
    twin = make(_SGD)

    twin.step(shards, _ALL, given)

    for name, start in start_of(0).items():
        assert torch.equal(twin.grads[name], own.grads[name])
        assert_close(twin.masters[name], start - 0.3 * (given[name] + 0.2 * start))


def test_it_runs_through_the_linear_of_torch_whatever_replaced_it(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = make()
    plain.step(shards_of(0, 2, 1), _ALL, {})
    twin = make()
    wrong = lambda inputs, weight, bias=None: 2 * inputs @ weight.t() + bias  # noqa: E731  # what zero.Init does
    monkeypatch.setattr(torch.nn.functional, "linear", wrong)

    twin.step(shards_of(0, 2, 1), _ALL, {})

    assert torch.nn.functional.linear is wrong, "the engine goes on with what it has"
    for name in _ALL:
        assert torch.equal(twin.grads[name], plain.grads[name])


@pytest.mark.parametrize("useless", [0.0, float("nan"), float("inf")])
def test_it_steps_by_its_own_gradient_where_the_run_had_none_to_speak_of(useless: float) -> None:
    shards = shards_of(0, 2, 1)
    own = make()
    own.step(shards, _ALL, {})
    twin = make()

    twin.step(shards, _ALL, {name: torch.full_like(grad, useless) for name, grad in own.grads.items()})

    for name in _ALL:
        assert torch.equal(twin.masters[name], own.masters[name])


def test_a_parameter_that_takes_no_part_is_not_decayed() -> None:
    class Spare(Small):
        def __init__(self) -> None:
            super().__init__()
            self.spare = torch.nn.Parameter(torch.ones(2))

    start = {**start_of(0), "spare": torch.ones(2)}
    twin = twin_of(start, _ADAMW, build=Spare)

    twin.step(shards_of(0, 1, 1), frozenset(start), {"spare": torch.ones(2)})

    assert "spare" not in twin.grads
    assert torch.equal(twin.masters["spare"], torch.ones(2))


def test_it_goes_on_from_where_the_run_stands() -> None:
    """Momentum is its own, weights are the run's: the step is the same as if it had always stood there."""
    away = {"scale": torch.tensor(-0.5), "last.bias": torch.ones(3)}
    twin = make(precision="bf16")

    twin.follow(away)

    parameters = dict(twin._model.named_parameters())
    for name, weight in away.items():
        assert torch.equal(twin.masters[name], weight)
        assert torch.equal(parameters[name], weight.bfloat16())
    assert torch.equal(twin.masters["first.bias"], start_of(0)["first.bias"].bfloat16().float())


def test_what_trains_from_later_on_starts_with_fresh_moments() -> None:
    first, later = frozenset({"last.weight"}), frozenset({"last.weight", "first.weight"})
    twin = make()
    twin.step(shards_of(0, 1, 1), first, {})
    reached = twin.masters["last.weight"].detach().clone()

    twin.step(shards_of(1, 1, 1), later, {})

    steps = {name: int(twin._optimizer.state[twin.masters[name]]["step"]) for name in later}  # type: ignore[union-attr]
    assert steps == {"last.weight": 2, "first.weight": 1}
    assert not torch.equal(twin.masters["last.weight"], reached)


def test_what_trains_no_longer_keeps_still() -> None:
    twin = make()
    twin.step(shards_of(0, 1, 1), frozenset({"last.weight", "first.weight"}), {})
    reached = twin.masters["last.weight"].detach().clone()

    twin.step(shards_of(1, 1, 1), frozenset({"first.weight"}), {})

    assert torch.equal(twin.masters["last.weight"], reached)


def test_parameters_without_decay_are_told_by_name() -> None:
    shards = shards_of(0, 1, 1)
    hyper = Hyper(optimizer="SGD", lr=0.1, weight_decay=0.5, split=(Group("first.bias", weight_decay=0.0),))
    twin = make(hyper)

    twin.step(shards, _ALL, {})

    for name, start in start_of(0).items():
        decay = 0.0 if name == "first.bias" else 0.5
        assert_close(twin.masters[name], start - 0.1 * (twin.grads[name] + decay * start))


def test_a_group_has_its_own_rate_and_decay() -> None:
    """What is in none has those of the rest; the first that names a parameter has it."""
    split = (Group("last.*", lr=0.2), Group(["last.weight", "first.*"], lr=0.3, weight_decay=0.0), Group("none.*"))
    twin = make(Hyper(optimizer="SGD", lr=0.1, weight_decay=0.5, split=split))

    twin.step(shards_of(0, 1, 1), _ALL, {})

    for name, start in start_of(0).items():
        rate, decay = {"last": (0.2, 0.5), "first": (0.3, 0.0)}.get(name.partition(".")[0], (0.1, 0.5))
        assert_close(twin.masters[name], start - rate * (twin.grads[name] + decay * start))


def test_a_schedule_holds_for_every_group_and_for_what_joins_later() -> None:
    hyper = Hyper(
        optimizer="SGD",
        lr=0.1,
        weight_decay=0.0,
        split=(Group("last.*", lr=0.4),),
        schedule=lambda n: (1.0, 0.5, 0.0)[n],
    )
    twin = make(hyper)
    intents = (frozenset({"last.bias"}), _ALL, _ALL)
    for number, (intent, factor) in enumerate(zip(intents, (1.0, 0.5, 0.0), strict=True)):
        before = {name: one.detach().clone() for name, one in twin.masters.items()}
        twin.step(shards_of(number, 1, 1), intent, {})
        for name in intent:
            rate = factor * (0.4 if name.startswith("last.") else 0.1)
            assert_close(twin.masters[name], before[name] - rate * twin.grads[name])


@pytest.mark.parametrize("hyper", [_ADAMW, _SGD], ids=["AdamW", "SGD"])
def test_rows_that_do_not_train_keep_still(hyper: Hyper) -> None:
    """Decay and momentum of theirs, too; the others step as if all did."""
    whole, twin, rows = make(hyper), make(hyper), slice(1, 3)
    intent = frozenset({"second.weight"})
    for number in range(3):
        shards = shards_of(number, 2, 1)
        whole.step(shards, intent, {})
        twin.step(shards, intent, {}, {"second.weight": rows})
        whole.follow({"second.weight": _mixed(twin, whole, rows)})

    start, found = start_of(0)["second.weight"], twin.masters["second.weight"]
    assert torch.equal(found[3:], start[3:])
    assert torch.equal(found[:1], start[:1])
    assert_close(found[rows], whole.masters["second.weight"][rows])
    assert not twin.grads["second.weight"][3:].any()
    assert twin.grads["second.weight"][rows].any()


def _mixed(rest: Twin, inside: Twin, rows: slice) -> torch.Tensor:
    weight = rest.masters["second.weight"].detach().clone()
    weight[rows] = inside.masters["second.weight"].detach()[rows]
    return weight


def test_each_parameter_has_the_dtype_that_it_has_in_the_engine() -> None:
    class Mixed(Small):
        def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            hidden = torch.tanh(self.first(inputs)).bfloat16()
            hidden = torch.tanh(self.second(hidden)).float() * self.scale
            return nn.functional.mse_loss(self.last(hidden), targets)

    twin = Twin(
        Mixed,
        start_of(0),
        hyper=_ADAMW,
        dtypes={"second.weight": torch.bfloat16, "second.bias": torch.bfloat16},
        clipping=0.0,
        device="cpu",
        buffers={},
    )

    twin.step(shards_of(0, 2, 1), _ALL, {})

    found = {name: one.dtype for name, one in twin._parameters.items()}
    assert found == {name: torch.bfloat16 if "second" in name else torch.float32 for name in start_of(0)}
    assert {one.dtype for one in twin.masters.values()} == {torch.float32}
    assert {one.dtype for one in twin.grads.values()} == {torch.float32}


def test_operations_are_cast_where_the_engine_casts_them() -> None:
    seen = []

    class Looking(Small):
        def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            seen.append(self.first(inputs).dtype)
            return super().forward(inputs, targets)

    for autocast in (None, torch.bfloat16):
        twin = Twin(
            Looking, start_of(0), hyper=_ADAMW, dtypes={}, clipping=0.0, device="cpu", buffers={}, autocast=autocast
        )
        twin.step(shards_of(0, 1, 1), _ALL, {})
    assert seen == [torch.float32, torch.bfloat16]


def test_buffers_take_the_dtype_that_the_engine_gave_them() -> None:
    class Buffered(Small):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("kept", torch.tensor([0.1]))
            self.register_buffer("rounded", torch.tensor([0.1]), persistent=False)

    start = {**start_of(0), "kept": torch.tensor([0.2])}
    dtypes = {"kept": torch.float32, "rounded": torch.bfloat16}

    twin = twin_of(start, _ADAMW, "bf16", build=Buffered, buffers=dtypes)

    buffers = dict(twin._model.named_buffers())
    assert torch.equal(buffers["kept"], torch.tensor([0.2]))
    assert torch.equal(buffers["rounded"], torch.tensor([0.1]).bfloat16())
