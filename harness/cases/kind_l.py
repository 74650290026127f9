"""Kind L: ranks that run different sub-graphs, or train different parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.cell import Options, case, freeze_except
from harness.cell.models import branches

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from harness.cell._run import Run
    from harness.cell.models import Batch

_STAGES = [Options(model="branches", stage=stage) for stage in (2, 3)]
_LLAMA = [Options(stage=stage) for stage in (2, 3)]


def _with(**extra: Any) -> Callable[[torch.Generator], Batch]:
    """Draws the model's own batch, and ``extra`` beside it."""

    def draw(generator: torch.Generator) -> Batch:
        import torch

        return {**branches.batch(generator), **{key: torch.as_tensor(one) for key, one in extra.items()}}

    return draw


def _image(**extra: Any) -> Callable[[torch.Generator], Batch]:
    def draw(generator: torch.Generator) -> Batch:
        import torch

        return {**_with(**extra)(generator), "image": torch.randn(4, 16, generator=generator)}

    return draw


def _train_block(run: Run, *batches: Any, **config: Any) -> None:
    """One optimizer step for each of ``batches``."""
    model = run.model()
    freeze_except(model, run.part("block"))
    engine = run.engine(model, **config)
    for batch in batches:
        run.train(engine, intent=run.part("block"), steps=1, batch=batch)


@case(
    kind="L",
    refs=["deepspeedai/DeepSpeed#7170", "OpenBMB/MiniCPM-V#644"],
    recipe="a frozen tower that only some ranks run",
    moment="in forward",
    happens="Stage 3 dies or hangs in the first forward: one rank gathers the tower while another gathers what comes "
    "next, and that the tower is frozen does not help. Stages 0 to 2 train.",
    instead="run the tower on every rank, on a dummy image if need be, and add nothing of what it gives.",
    cure="frozen_tower_on_every_rank",
    variants=_STAGES,
    deadline=3.0,
)
def frozen_tower_on_some_ranks(run: Run) -> None:
    """Only rank 0 has images; the tower for them is frozen, a block behind it trains.

    ZeRO-3 gathers a module's weights in a hook before its forward, which all ranks must join in the same order
    (0.19.8: ``_pre_forward_module_hook`` in runtime/zero/parameter_offload.py).  On a CPU gloo sees that the sizes
    differ and aborts; NCCL does not compare them and waits.
    """
    batch = _image() if run.rank == 0 else None
    _train_block(run, batch, batch)


@case(
    kind="CONTROL",
    refs=["deepspeedai/DeepSpeed#7170"],
    recipe="a frozen tower that every rank runs",
    moment="in forward",
    happens="Trains: the dummy image goes through the tower and counts for nothing.",
    variants=_STAGES,
)
def frozen_tower_on_every_rank(run: Run) -> None:
    """The frozen tower runs on all ranks; those without an image send a dummy through, times zero."""
    batch = _image(image_share=1.0 if run.rank == 0 else 0.0)
    _train_block(run, batch, batch)


@case(
    kind="CONTROL",
    refs=[
        "deepspeedai/DeepSpeed#6870",
        "deepspeedai/DeepSpeed#7039",
        "hiyouga/LlamaFactory#6760",
        "huggingface/open-r1#119",
    ],
    recipe="a tower that all ranks run, but not in every step",
    moment="in forward",
    happens="Trains: modules may come and go from step to step, so long as they do so on all ranks at once. DeepSpeed "
    "then throws its recorded order of modules away and gathers without looking ahead.",
    variants=[Options(model="branches"), Options(model="branches", persistence="default")],
)
def tower_in_some_steps(run: Run) -> None:
    """All ranks have images in the second step and in no other."""
    _train_block(run, None, _image(), None)


@case(
    kind="L",
    refs=["hiyouga/LlamaFactory#6233"],
    recipe="a tower that trains, and that only some ranks run",
    moment="in forward",
    happens="Stages 2 and 3 die or hang: at stage 2 in backward, where the rank without an image has fewer gradients "
    "to reduce. Stage 0 fills in zeros and trains.",
    instead="run the tower on every rank, on a dummy image if need be, and add zero times what it gives.",
    cure="trained_tower_on_every_rank",
    variants=[Options(model="branches", stage=0), *_STAGES],
    deadline=3.0,
)
def trained_tower_on_some_ranks(run: Run) -> None:
    """Only rank 0 has images, and the tower for them trains.

    Stages 1 and 2 put gradients into a bucket as they come and reduce it as a whole; one that does not come leaves
    the bucket shorter (0.19.8: ``reduce_independent_p_g_buckets_and_remove_grads`` in runtime/zero/stage_1_and_2.py).
    """
    parts = (*run.part("block"), *run.part("tower"))
    model = run.model()
    freeze_except(model, parts)
    engine = run.engine(model)
    run.train(engine, intent=parts, batch=_image() if run.rank == 0 else None)


@case(
    kind="CONTROL",
    recipe="a tower that trains, and that every rank runs",
    moment="in forward",
    happens="Trains: zero times the output makes a gradient of zeros, which is what is missing otherwise.",
    variants=[Options(model="branches", stage=0), *_STAGES],
)
def trained_tower_on_every_rank(run: Run) -> None:
    """The tower that trains runs on all ranks; those without an image send a dummy through, times zero."""
    parts = (*run.part("block"), *run.part("tower"))
    model = run.model()
    freeze_except(model, parts)
    engine = run.engine(model)
    run.train(engine, intent=parts, batch=_image(image_share=1.0 if run.rank == 0 else 0.0))


@case(
    kind="L",
    refs=["deepspeedai/DeepSpeed#7998", "OpenBMB/MiniCPM-V#644"],
    recipe="a layer that one rank runs more often",
    moment="in forward",
    happens="Stage 3 dies or hangs in forward, at the gather that no other rank joins. Stages 0 to 2 train.",
    instead="run it equally often on every rank, and add zero times what the extra rounds give.",
    cure="layer_equally_often",
    variants=_STAGES,
    deadline=3.0,
)
def layer_more_often_on_one_rank(run: Run) -> None:
    """Rank 0 runs the same layer three times in a row, every other rank once: as many rounds as its image has tiles.

    Every call of a module is a gather of its own, at least while the order of modules is being recorded (0.19.8:
    ``fetch_sub_module`` in runtime/zero/partitioned_param_coordinator.py).
    """
    batch = _with(route=[0, 1, 2, 2, 2, 3] if run.rank == 0 else [0, 1, 2, 3])
    _train_block(run, batch, batch)


@case(
    kind="CONTROL",
    refs=["deepspeedai/DeepSpeed#7998"],
    recipe="a layer that all ranks run equally often",
    moment="in forward",
    happens="Trains.",
    variants=_STAGES,
)
def layer_equally_often(run: Run) -> None:
    """All ranks run the layer three times in a row, all but rank 0 twice for nothing."""
    shares = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0] if run.rank == 0 else [1.0, 1.0, 1.0, 0.0, 0.0, 1.0]
    batch = _with(route=[0, 1, 2, 2, 2, 3], shares=shares)
    _train_block(run, batch, batch)


@case(
    kind="L",
    refs=["deepspeedai/DeepSpeed#1888", "huggingface/transformers#16717"],
    recipe="each rank skips another layer",
    moment="in forward, from the first step",
    happens="Stage 3 joins halves of two layers' weights in the first step, and steps by what comes out; the second "
    "forward raises, since DeepSpeed compares the order of modules between ranks while it records it.",
    instead="run the layer all the same, and drop what it gives.",
    cure="skipped_layer_runs_all_the_same",
    variants=_STAGES,
    deadline=3.0,
)
def each_rank_skips_another_layer(run: Run) -> None:
    """Layer dropping with a random state of its own on each rank: rank 0 skips one layer, the others another.

    The layers are of one size, as in a transformer, so no gather stumbles.  ``reset_step`` in
    runtime/zero/partitioned_param_coordinator.py compares the ranks' orders at the start of a forward, those of the
    one before, until one was recorded in full (0.19.8).
    """
    batch = _with(route=[1, 2, 3] if run.rank == 0 else [0, 2, 3])
    _train_block(run, batch, batch)


@case(
    kind="L",
    recipe="each rank skips another layer",
    moment="in forward, from the second step on",
    happens="Silent at stage 3: the ranks compute with weights that are half one layer's and half another's, and step "
    "by what comes out. Here prefetching is off; with it, ranks may also die or hang over gathers of other sizes.",
    instead="run the layer all the same, and drop what it gives.",
    cure="skipped_layer_runs_all_the_same",
    variants=_STAGES,
    deadline=3.0,
)
def each_rank_skips_another_layer_later(run: Run) -> None:
    """Each rank skips another layer, but in the first step, in which none skips any.  No prefetching.

    By then DeepSpeed has recorded an order of modules and compares no more; a rank that leaves it throws it away,
    and what is compared next is an empty list (``reset_step`` in runtime/zero/partitioned_param_coordinator.py,
    0.19.8).
    """
    batches = None, _with(route=[1, 2, 3] if run.rank == 0 else [0, 2, 3]), None
    _train_block(run, *batches, zero_optimization={"stage3_prefetch_bucket_size": 0})


@case(
    kind="CONTROL",
    refs=["huggingface/transformers#16717"],
    recipe="each rank drops another layer's output",
    moment="in forward",
    happens="Trains: all ranks run all layers, and zero times what the dropped one gives is added.",
    variants=_STAGES,
)
def skipped_layer_runs_all_the_same(run: Run) -> None:
    """All ranks run all layers and multiply what they drop by zero, as transformers' own models do."""
    batch = _with(shares=[0.0, 1.0, 1.0, 1.0] if run.rank == 0 else [1.0, 0.0, 1.0, 1.0])
    _train_block(run, batch, batch)


@case(
    kind="L",
    refs=["deepspeedai/DeepSpeed#860", "deepspeedai/DeepSpeed#7128", "huggingface/transformers#36638"],
    recipe="ranks generate different numbers of tokens",
    moment="between two steps",
    happens="Stage 3 dies or hangs: the rank that is done goes on to the next step while the other asks for one more "
    "token. Stages 0 to 2 train.",
    instead="call `generate(..., synced_gpus=True)`.",
    cure="generation_in_step",
    variants=_LLAMA,
    deadline=3.0,
)
def generation_out_of_step(run: Run) -> None:
    """Rank 0 generates 4 tokens, the others 2, and then all train on.

    ``_has_unfinished_sequences`` in transformers/generation/utils.py (5.16.1) asks the other ranks only with
    ``synced_gpus``, and every token is a forward, with all the gathers of one. Left alone, ``synced_gpus`` is on where
    transformers knows of ZeRO-3.
    """
    _generate_between(run, synced_gpus=False)


@case(
    kind="CONTROL",
    refs=["deepspeedai/DeepSpeed#860"],
    recipe="ranks generate different numbers of tokens, in step",
    moment="between two steps",
    happens="Trains: with `synced_gpus` the rank that is done runs forward for nothing until all are.",
    variants=_LLAMA,
)
def generation_in_step(run: Run) -> None:
    """Rank 0 generates 4 tokens, the others 2, with ``synced_gpus``."""
    _generate_between(run, synced_gpus=True)


@case(
    kind="L",
    recipe="ranks generate different numbers of tokens, in step, without a cache",
    moment="between two steps",
    happens="Raises on the rank that is done, whatever the stage: its attention mask grows with every further round, "
    "and its tokens do not.",
    instead="leave the cache on while generating.",
    cure="generation_in_step",
    variants=_LLAMA,
    deadline=3.0,
)
def generation_in_step_without_cache(run: Run) -> None:
    """With ``synced_gpus`` and ``use_cache=False``, as training configurations often have it.

    ``_sample`` in transformers/generation/utils.py (5.16.1) brings the mask up to date before it asks whether this
    rank is done, and the tokens after.
    """
    _generate_between(run, synced_gpus=True, use_cache=False)


def _generate_between(run: Run, *, synced_gpus: bool, use_cache: bool = True) -> None:
    import torch

    model = run.model()
    freeze_except(model, run.part("block"))
    engine = run.engine(model)
    run.train(engine, intent=run.part("block"), steps=1)
    new = 4 if run.rank == 0 else 2
    prompt = torch.ones(1, 4, dtype=torch.long, device=run.device)
    with torch.no_grad():
        engine.module.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=new,
            do_sample=False,
            use_cache=use_cache,
            synced_gpus=synced_gpus,
        )
    run.train(engine, intent=run.part("block"), steps=1)


@case(
    kind="CONTROL",
    recipe="a choice made on rank 0 and broadcast",
    moment="before the engine",
    happens="Trains: all ranks train what rank 0 chose.",
    variants=[Options(model="mlp", stage=stage) for stage in (0, 1, 2, 3)],
)
def freeze_by_broadcast_choice(run: Run) -> None:
    """The ranks would choose differently; they take rank 0's choice."""
    import torch.distributed as dist

    choice = ["block" if run.rank == 0 else "other block"]
    dist.broadcast_object_list(choice, src=0)
    model = run.model()
    freeze_except(model, run.part(choice[0]))
    engine = run.engine(model)
    run.train(engine, intent=run.part("block"))
