"""The core recipes on the roads people take to the engine: the Trainer, and Axolotl's own function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.cell import case, freeze_except, unfreeze
from harness.drivers.axolotl import freeze_layers_except
from harness.drivers.trainer import at_train_begin, train_with_trainer

if TYPE_CHECKING:
    from harness.cell._run import Run


@case(
    kind="CONTROL",
    recipe="exclusion freezing",
    moment="before the Trainer",
    happens="Trains through the Hugging Face Trainer as it does through a plain loop. transformers 5.1.0 alone makes "
    "no engine (`trainer_without_an_engine`).",
    needs=("transformers", "accelerate"),
)
def trainer_freeze_except_before(run: Run) -> None:
    """Freeze, hand the model to the Trainer, train."""
    train_with_trainer(run, freeze=lambda model: freeze_except(model, run.part("block")), intent=run.part("block"))


@case(
    kind="C",
    refs=["OptimalScale/LMFlow#726"],
    recipe="a Trainer callback unfreezes more",
    moment="on_train_begin (after the engine)",
    happens="Silent, as in a plain loop: the Trainer has made the engine before it calls the callback, and what is "
    "unfrozen there never moves; at stage 0 neither, since the Trainer gave its optimizer only what trained then.",
    instead="unfreeze before `trainer.train()`.",
    cure="trainer_freeze_except_before",
    needs=("transformers", "accelerate"),
)
def trainer_callback_unfreezes(run: Run) -> None:
    """Train the head; a callback unfreezes a block at ``on_train_begin``.

    ``create_optimizer`` in transformers/trainer.py (5.16.1) takes what trains at the moment, and
    ``accelerator.prepare`` makes the engine, both in ``_prepare_for_training``; ``_inner_training_loop`` calls
    ``on_train_begin`` after that. What becomes of a block that is unfrozen by then is told in
    ``unfreeze_more_after_engine``.
    """
    train_with_trainer(
        run,
        freeze=lambda model: freeze_except(model, run.part("head")),
        callbacks=[at_train_begin(unfreeze, run.part("block"))],
        intent=(*run.part("head"), *run.part("block")),
    )


@case(
    kind="CONTROL",
    refs=["axolotl-ai-cloud/axolotl#1747"],
    recipe="Axolotl's own function",
    moment="before the engine",
    happens="Trains: Axolotl's own function, on patterns that match, is exclusion freezing.",
    needs=("axolotl",),
)
def axolotl_freeze_layers_except(run: Run) -> None:
    """The function behind ``unfrozen_parameters``, where Axolotl calls it."""
    model = run.model()
    freeze_layers_except(model, ["model.layers.2.", "layers.2."])
    engine = run.engine(model)
    run.train(engine, intent=run.part("block"))


@case(
    kind="Q",
    refs=["axolotl-ai-cloud/axolotl#1747"],
    recipe="Axolotl's own function",
    moment="before the engine, no name starts so",
    happens="Axolotl warns that all parameters are frozen and goes on; engine creation then fails deep inside "
    "DeepSpeed (stage 0 fails in backward).",
    instead="write the name from its first letter: Axolotl matches from the start.",
    cure="axolotl_freeze_layers_except",
    models=("tiny_llama",),
    needs=("axolotl",),
)
def axolotl_pattern_matches_nothing(run: Run) -> None:
    """``layers.2.`` for parameters that are called ``model.layers.2.*``.

    ``LayerNamePattern.match`` in axolotl/utils/freeze.py (0.19.0) is ``re.match``, which starts at the first letter of
    a name; the docstring of ``freeze_layers_except`` there says that a pattern without ``^`` matches anywhere, and it
    does not.
    """
    model = run.model()
    freeze_layers_except(model, ["layers.2."])
    engine = run.engine(model)
    run.train(engine, intent=run.part("block"))


@case(
    kind="Q",
    recipe="Axolotl's own function",
    moment="before the engine, dots escaped",
    happens="Axolotl warns that all parameters are frozen, and engine creation fails deep inside DeepSpeed (stage 0 "
    "fails in backward): Axolotl escapes every dot itself, and escapes an escaped one again, which then wants a "
    "backslash in the name.",
    instead="write plain dots.",
    cure="axolotl_freeze_layers_except",
    models=("tiny_llama",),
    needs=("axolotl",),
)
def axolotl_pattern_with_escaped_dots(run: Run) -> None:
    """A correct regular expression, which Axolotl rewrites.

    ``LayerNamePattern`` in axolotl/utils/freeze.py (0.19.0) puts a backslash before each dot that no plus follows,
    whether there is one or not.
    """
    model = run.model()
    freeze_layers_except(model, [r"model\.layers\.2\."])
    engine = run.engine(model)
    run.train(engine, intent=run.part("block"))
