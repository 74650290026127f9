"""Models whose starting weights a library, or a wrong piece of code, has made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.cell import Options, case
from harness.drivers.adapters import adapted
from harness.drivers.pretrained import as_told, from_config, from_pretrained

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.cell._run import Run

_WHOLE = Options(model="mlp", stage=2)
_ZERO_INIT = Options(init="zero_init")


def _wider(differs: Callable[[], float]) -> Callable[[Any], Any]:
    """Puts a new weight into the model; a wrong piece of code makes it differ from call to call."""

    def wrap(model: Any) -> Any:
        import torch  # noqa: PLC0415  # pytest imports the cases, too, and has no need of it

        model.head.bias = torch.nn.Parameter(torch.randn(8) + differs())
        return model

    return wrap


@case(kind="CONTROL", variants=[_WHOLE])
def drawn(run: Run) -> None:
    """What is put around the model draws numbers, the same for the twin."""
    run.train(run.engine(run.model(wrap=_wider(lambda: 0.0), as_made=True)), intent="*")


@case(kind="CONTROL", variants=[_WHOLE])
def drawn_otherwise(run: Run) -> None:
    """It makes others for the engine than for the twin."""
    made = iter((0.0, 0.5))
    run.train(run.engine(run.model(wrap=_wider(lambda: next(made)), as_made=True)), intent="*")


@case(kind="CONTROL", variants=[_WHOLE])
def drawn_otherwise_and_given(run: Run) -> None:
    """The same, and the harness gives both the same weights."""
    made = iter((0.0, 0.5))
    run.train(run.engine(run.model(wrap=_wider(lambda: next(made)))), intent="*")


@case(kind="CONTROL", variants=[_ZERO_INIT, Options(stage=2)])
def told(run: Run) -> None:
    """transformers knows of ZeRO-3 while a partitioned model is wrapped, and at no other time."""
    from transformers.integrations import is_deepspeed_zero3_enabled  # noqa: PLC0415  # as above

    seen = []

    def wrap(model: Any) -> Any:
        seen.append(is_deepspeed_zero3_enabled())
        return model

    model = run.model(wrap=as_told(run, wrap))
    assert seen == [False, run.options.stage == 3], seen
    assert not is_deepspeed_zero3_enabled()
    run.train(run.engine(model), intent="lm_head.*")


def _train_all(run: Run, model: Any) -> None:
    run.train(run.engine(model), intent="*")


@case(kind="CONTROL", variants=[_ZERO_INIT])
def saved_in_part(run: Run) -> None:
    """The file has no head, which then starts from random numbers."""
    _train_all(run, run.model(load=lambda reference: from_pretrained(run, reference, saved=reference.model)))


@case(kind="CONTROL", variants=[_ZERO_INIT])
def made_at_random(run: Run) -> None:
    """The head is told to start from no random numbers, and does."""
    _train_all(run, run.model(load=lambda reference: from_config(run, reference, keep="lm_head.*")))


@case(kind="CONTROL", variants=[_WHOLE])
def no_such_adapter(run: Run) -> None:
    """A class that no PEFT has."""
    run.model(wrap=adapted("NoSuchConfig"))


@case(kind="CONTROL", variants=[_WHOLE])
def no_such_setting(run: Run) -> None:
    """A setting that no PEFT has."""
    run.model(wrap=adapted("LoraConfig", no_such_setting=1))


@case(kind="CONTROL", variants=[_WHOLE])
def no_such_initialization(run: Run) -> None:
    """A way to start that no PEFT has."""
    run.model(wrap=adapted("LoraConfig", target_modules=["head"], init_lora_weights="no_such_way"))
