"""The twin: the same model in plain PyTorch, one process, all ranks' shards, same intent."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import torch

from harness.cell._hyper import Hyper
from harness.cell.oracle._observer import Micro, loss_of

__all__ = ["Twin"]

#: torch's own, as it was before anyone could replace it.
_LINEAR: Final = torch.nn.functional.linear


@contextlib.contextmanager
def _plain_torch() -> Iterator[None]:
    """``zero.Init`` replaces ``torch.nn.functional.linear`` for good, and the twin is not to run through that.

    See ``zero3_linear_wrap`` in deepspeed/runtime/zero/linear.py (read in 0.14.4 and 0.19.8).
    """
    replaced = torch.nn.functional.linear
    torch.nn.functional.linear = _LINEAR
    try:
        yield
    finally:
        torch.nn.functional.linear = replaced


class Twin:
    """Trains beside the engine and is what the engine is held against.

    It keeps what DeepSpeed keeps: weights in the model's precision and, below fp32, fp32 master
    weights that the optimizer steps.

    :param build: the model factory.
    :param start: full starting weights and buffers, fp32.
    :param dtypes: parameter name -> dtype in the engine, where training began; else as in ``start``.
    :param clipping: largest global gradient norm; 0 for none.
    :param autocast: dtype that the engine casts operations to; None: it leaves them alone.
    :param buffers: buffer name -> dtype in the engine.  DeepSpeed rounds them under ``zero.Init``
        and not elsewhere, which alone moves bf16 gradients by 0.7 % (rotary frequencies).
    """

    def __init__(
        self,
        build: Callable[[], torch.nn.Module],
        start: Mapping[str, torch.Tensor],
        *,
        hyper: Hyper,
        dtypes: Mapping[str, torch.dtype],
        clipping: float,
        device: str,
        buffers: Mapping[str, torch.dtype],
        autocast: torch.dtype | None = None,
    ) -> None:
        model = build()
        model.load_state_dict(start)
        self._model = model.to(device).train()
        self._parameters = dict(self._model.named_parameters())
        for name, one in self._parameters.items():
            one.data = one.data.to(dtypes.get(name, one.dtype))
        for name, buffer in self._model.named_buffers():
            buffer.data = buffer.data.to(buffers.get(name, buffer.dtype))
        self.masters = {
            name: torch.nn.Parameter(one.detach().float().clone()) for name, one in self._parameters.items()
        }
        self._hyper = hyper
        self._clipping = clipping
        self._autocast = torch.autocast(torch.device(device).type, autocast, enabled=autocast is not None)
        self._taken = 0
        self._optimizer: torch.optim.Optimizer | None = None
        self.grads: dict[str, torch.Tensor] = {}

    def follow(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Take the weights that the run has, fp32 masters where it keeps them.

        Each step is then judged from where the run really stood: a fault shows at the step that
        makes it, on the parameter that has it, and does not make every later gradient wrong.
        """
        with torch.no_grad():
            for name, master in self.masters.items():
                if name in weights:
                    master.copy_(weights[name])
                    self._parameters[name].copy_(weights[name])

    def step(
        self,
        shards: Sequence[Sequence[Micro]],
        intent: frozenset[str],
        found: Mapping[str, torch.Tensor],
        rows: Mapping[str, slice] = MappingProxyType({}),
    ) -> None:
        """One optimizer step on every rank's micro-batches (rank, then micro-batch).

        The gradient is the mean over ranks of each rank's mean over its micro-batches, as data
        parallelism defines it; it stays in ``grads``.  The optimizer is given the gradients that
        the run had (``found``), so that gradient and step are judged apart: Adam turns the
        rounding of a bf16 reduction into several per cent of a step, and clipping turns one
        parameter's wrong gradient into a wrong step of all.

        :param rows: of some parameters, the only rows that train.
        """
        for name, one in self._parameters.items():
            one.requires_grad_(name in intent)
        self.grads = {}
        for micros in shards:
            for micro in micros:
                with _plain_torch():
                    with self._autocast:
                        loss = loss_of(self._model(*micro.args, **micro.kwargs))
                    assert loss is not None, "the engine's forward gave a loss, so the twin's does"
                    if loss.requires_grad:
                        (loss * (micro.scale / len(micros))).backward()  # type: ignore[no-untyped-call]
                self._collect(1.0 / len(shards))
        for name, kept in rows.items():
            if name in self.grads:
                self.grads[name] = _only(kept, self.grads[name])
        before = {name: self.masters[name].detach().clone() for name in rows}
        self._update(intent, {name: _only(rows[name], one) if name in rows else one for name, one in found.items()})
        with torch.no_grad():
            for name, kept in rows.items():
                before[name][kept] = self.masters[name][kept]
                self.masters[name].copy_(before[name])
            for name, one in self._parameters.items():
                one.copy_(self.masters[name])

    def _collect(self, share: float) -> None:
        """Take one micro-batch's gradients in the model's precision, add them up in fp32."""
        for name, one in self._parameters.items():
            if one.grad is not None:
                grad = one.grad.float() * share
                self.grads[name] = self.grads[name] + grad if name in self.grads else grad
                one.grad = None

    def _update(self, intent: frozenset[str], found: Mapping[str, torch.Tensor]) -> None:
        for name, master in self.masters.items():
            grad = self.grads.get(name)
            theirs = found.get(name)
            both = grad is not None and theirs is not None and grad.any() and theirs.any()
            if both and theirs is not None and theirs.isfinite().all():
                grad = theirs
            master.grad = None if grad is None else grad.clone()
        trained = {name: master for name, master in self.masters.items() if name in intent}
        if self._clipping:
            torch.nn.utils.clip_grad_norm_(trained.values(), self._clipping)
        if self._optimizer is None:
            self._optimizer = self._hyper.torch(trained)
        else:
            held = {id(one) for group in self._optimizer.param_groups for one in group["params"]}
            late = {name: one for name, one in trained.items() if id(one) not in held}
            for group in self._hyper.groups(late):
                self._optimizer.add_param_group(group)
        if self._hyper.schedule is not None:
            for group in self._optimizer.param_groups:
                group["lr"] = group.setdefault("initial_lr", group["lr"]) * self._hyper.schedule(self._taken)
        self._taken += 1
        self._optimizer.step()


def _only(rows: slice, whole: torch.Tensor) -> torch.Tensor:
    """A copy with nothing but zeros in the other rows."""
    copy = torch.zeros_like(whole)
    copy[rows] = whole[rows]
    return copy
