"""How gradients are read from optimizers that hold them elsewhere, or scaled: each was once taken for a finding."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from harness.cell.oracle._engine_facts import reduced_grad


def parameter() -> torch.nn.Parameter:
    made = torch.nn.Parameter(torch.zeros(2, 3))
    made.grad = torch.full((2, 3), 8.0)
    return made


def test_bf16_optimizer_holds_whole_gradients_beside_the_parameters() -> None:
    """Asked through DeepSpeed's own call, it fails where a weight lies in two ranks' partitions."""
    one, other = parameter(), parameter()
    optimizer = SimpleNamespace(
        bf16_groups=[[other, one]],
        fp32_groups_gradients=[[torch.zeros(6), torch.arange(6.0)]],
        fp32_groups_has_gradients=[[False, True]],
    )

    found = reduced_grad(one, optimizer)
    assert found is not None
    assert torch.equal(found, torch.arange(6.0).view(2, 3))
    assert reduced_grad(other, optimizer) is None


def test_a_loss_scale_is_taken_out_again() -> None:
    """As the optimizer does while it steps."""
    found = reduced_grad(parameter(), SimpleNamespace(cur_scale=4))

    assert found is not None
    assert torch.equal(found, torch.full((2, 3), 2.0))


def test_a_gradient_without_a_scale_is_the_parameters_own() -> None:
    one = parameter()

    assert reduced_grad(one, SimpleNamespace()) is one.grad
    one.grad = None
    assert reduced_grad(one, SimpleNamespace(cur_scale=4)) is None
