"""Kind M: experts that only some ranks reach, and ZeRO-3's leaf modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.cell import Fix, Hyper, Options, case, freeze_except
from harness.cell.models import experts

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from harness.cell._run import Run
    from harness.cell.models import Batch

_ANY = [Options(model="experts", stage=stage) for stage in (0, 2, 3)]
_STAGE_3 = [Options(model="experts"), Options(model="experts", init="zero_init")]
#: the first release that has them is 0.13.0
_LEAVES = ("deepspeed.utils.z3_leaf_module",)


def _choosing(*choice: int, everyone: bool = False) -> Callable[[torch.Generator], Batch]:
    """Draws the model's own batch, whose rows choose these experts."""

    def draw(generator: torch.Generator) -> Batch:
        import torch

        batch = {**experts.batch(generator), "choice": torch.tensor(choice)}
        return {**batch, "everyone": torch.tensor(1)} if everyone else batch

    return draw


def _own_experts(run: Run, **how: bool) -> Callable[[torch.Generator], Batch]:
    """Rank 0 reaches experts 0 and 1, every other rank 2 and 3."""
    return _choosing(0, 1, 0, 1, **how) if run.rank == 0 else _choosing(2, 3, 2, 3, **how)


def _set_leaves(model: Any) -> None:
    from deepspeed.utils import set_z3_leaf_modules

    from harness.cell.zoo._experts import Experts

    set_z3_leaf_modules(model, [Experts])


@case(
    kind="M",
    refs=[
        "hiyouga/LlamaFactory#1845",
        "hiyouga/LlamaFactory#1998",
        "hiyouga/LlamaFactory#2315",
        "deepspeedai/DeepSpeed#4966",
    ],
    recipe="experts that only some ranks reach",
    moment="in forward",
    happens="Stage 3 mixes the halves of two experts' weights, silently in the first step; the second raises, since "
    "DeepSpeed compares the order of modules between ranks only then. Stage 2 adds one expert's gradient to another's "
    "and never says so. Stage 0 trains.",
    instead="run every expert on every rank, those without tokens on no rows; or, at stage 3, make the mixture a leaf.",
    cure="every_expert_on_every_rank",
    variants=_ANY,
    deadline=3.0,
)
def experts_by_rank(run: Run) -> None:
    """Each rank's tokens reach other experts, and only those that some token reaches run.

    A gather and a reduction carry no name: the ranks' n-th ones are joined whatever they are of (0.19.8:
    ``__all_gather_params_`` in runtime/zero/partitioned_param_coordinator.py, the bucket of
    runtime/zero/stage_1_and_2.py in order of arrival).  Experts are of one size, so nothing stumbles.
    """
    model = run.model()
    engine = run.engine(model)
    run.train(engine, intent="*", batch=_own_experts(run))


@case(
    kind="CONTROL",
    recipe="experts that only some ranks reach, the others on no rows",
    moment="in forward",
    happens="Trains: an expert that runs on no rows has a gradient of zeros on every rank, and all ranks gather and "
    "reduce the same.",
    variants=_ANY,
)
def every_expert_on_every_rank(run: Run) -> None:
    """Each rank's tokens reach other experts, and all run, those that no token reaches on an empty batch."""
    model = run.model()
    engine = run.engine(model)
    run.train(engine, intent="*", batch=_own_experts(run, everyone=True))


@case(
    kind="CONTROL",
    refs=["deepspeedai/DeepSpeed#7824"],
    recipe="experts that only some ranks reach, in a leaf module",
    moment="before the engine",
    happens="Trains: a leaf is gathered and reduced as a whole, and what has no gradient on a rank counts as zero. "
    "Two outputs of the leaf make no difference on a CPU, whose autograd has one thread.",
    variants=_STAGE_3,
    needs=_LEAVES,
)
def leaf_of_experts_by_rank(run: Run) -> None:
    """Each rank's tokens reach other experts; the mixture is a leaf module, which returns its router's logits, too."""
    model = run.model()
    _set_leaves(model)
    engine = run.engine(model)
    run.train(engine, intent="*", batch=_own_experts(run))


@case(
    kind="M",
    recipe="a leaf module is set",
    moment="after the engine",
    happens="As if it had not been set: the engine has put its hooks into each expert by then.",
    instead="call `set_z3_leaf_modules` before the engine is created.",
    cure="leaf_of_experts_by_rank",
    variants=_STAGE_3[:1],
    needs=_LEAVES,
    deadline=3.0,
)
def leaf_set_after_engine(run: Run) -> None:
    """The mixture is made a leaf once the engine exists.

    ``_register_deepspeed_module`` in runtime/zero/parameter_offload.py asks for leaves while the engine is made,
    and never again (0.19.8).
    """
    model = run.model()
    engine = run.engine(model)
    _set_leaves(model)
    run.train(engine, intent="*", batch=_own_experts(run))


@case(
    kind="M",
    refs=["deepspeedai/DeepSpeed#5008", "deepspeedai/DeepSpeed#5074"],
    fixes=[
        Fix(
            "deepspeed",
            "0.13.2",
            "deepspeedai/DeepSpeed#5074",
            because="it lets a leaf without gradients pass, in inference say; one that trains is refused as before.",
        )
    ],
    recipe="a leaf module above frozen layers",
    moment="before the engine",
    happens="Raises. Up to DeepSpeed 0.17.6 the message says what is wrong, that no input of the leaf requires a "
    "gradient; those from 0.18.0 on fail in backward, on weights of size 0.",
    instead="let what the frozen layers give require a gradient, as `enable_input_require_grads` does.",
    cure="leaf_above_frozen_with_input_grad",
    variants=[*_STAGE_3, Options(model="experts", persistence="default")],
    needs=_LEAVES,
)
def leaf_above_frozen(run: Run) -> None:
    """All below the leaf is frozen, so its input requires no gradient.

    The leaf's gradients are reduced, and its weights partitioned again, in a full backward hook
    (``create_reduce_and_remove_grad_hooks`` in runtime/zero/stage3.py, 0.19.8).  With no input that requires a
    gradient, torch calls that hook when the gradient of the module's output is there: before its own backward.
    """
    model = run.model()
    freeze_except(model, "moe.*")
    _set_leaves(model)
    engine = run.engine(model)
    run.train(engine, intent="moe.*")


@case(
    kind="CONTROL",
    recipe="a leaf module above frozen layers, whose output requires a gradient",
    moment="before the engine",
    happens="Trains.",
    variants=[*_STAGE_3, Options(model="experts", persistence="default")],
    needs=_LEAVES,
)
def leaf_above_frozen_with_input_grad(run: Run) -> None:
    """All below the leaf is frozen; a hook makes the stem's output require a gradient."""
    model = run.model()
    freeze_except(model, "moe.*")
    model.stem.register_forward_hook(lambda _module, _inputs, output: output.requires_grad_(True))
    _set_leaves(model)
    engine = run.engine(model)
    run.train(engine, intent="moe.*")


@case(
    kind="CONTROL",
    recipe="frozen experts in a leaf module",
    moment="before the engine",
    happens="Trains what was asked for, below the leaf and in it; the experts stay put.",
    variants=_STAGE_3,
    needs=_LEAVES,
)
def frozen_experts_in_a_leaf(run: Run) -> None:
    """Stem and router train, the experts between them do not."""
    parts = (*run.part("embedding"), *run.part("router"))
    model = run.model()
    freeze_except(model, parts)
    _set_leaves(model)
    engine = run.engine(model)
    run.train(engine, intent=parts, batch=_own_experts(run))


@case(
    kind="M",
    recipe="an expert that no token reaches on any rank",
    moment="in forward",
    happens="It shrinks all the same: DeepSpeed gives it a gradient of zeros where plain PyTorch has none, and AdamW "
    "decays what has a gradient, whatever it is.",
    instead="give experts no weight decay.",
    cure="unreached_expert_without_decay",
    variants=_ANY,
)
def unreached_expert_decays(run: Run) -> None:
    """All ranks reach experts 0 to 2; the last one is never run.

    Where no rank has a gradient DeepSpeed has zeros (0.19.8): ``_get_gradients_for_reduction`` in runtime/engine.py at
    stage 0, ``get_all_grad_tensors`` in runtime/zero/stage_1_and_2.py, a buffer that starts as zeros in
    runtime/zero/stage3.py. torch's AdamW skips None, not zeros (torch/optim/adam.py, 2.13.0).
    """
    model = run.model()
    engine = run.engine(model, hyper=Hyper(weight_decay=0.1))
    run.train(engine, intent="*", batch=_choosing(0, 1, 2, 2))


@case(
    kind="CONTROL",
    recipe="an expert that no token reaches on any rank, no weight decay",
    moment="in forward",
    happens="Trains: without decay a gradient of zeros does nothing to what never had another.",
    variants=_ANY,
)
def unreached_expert_without_decay(run: Run) -> None:
    """All ranks reach experts 0 to 2, the last one is never run, and AdamW does not decay."""
    model = run.model()
    engine = run.engine(model, hyper=Hyper(weight_decay=0.0))
    run.train(engine, intent="*", batch=_choosing(0, 1, 2, 2))
