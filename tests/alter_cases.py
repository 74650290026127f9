"""Cases that change a model under way; run by ``test_alter.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.cell import Options, case, freeze_except

if TYPE_CHECKING:
    from harness.cell._run import Run

_ADDED = ("layers.2.down.*", "layers.2.up.*")
_BOTH = [Options(model="mlp"), Options(model="mlp", init="zero_init")]


def _attach(model: Any) -> None:
    from harness.cell.zoo._attached import Adapted

    model.layers[2] = Adapted(model.layers[2])


@case(kind="H", variants=_BOTH)
def altered_alike(run: Run) -> None:
    """What is added draws its weights, and draws others for the run than for the twin."""
    import torch

    def attach(model: Any) -> None:
        _attach(model)
        torch.nn.init.normal_(model.layers[2].up.weight, std=0.1)

    model = run.model()
    run.alter(model, attach)
    freeze_except(model, _ADDED)
    run.train(run.engine(model), intent=_ADDED)


@case(kind="H", variants=_BOTH)
def altered_behind_the_twins_back(run: Run) -> None:
    """As ``altered_alike``, without telling the harness."""
    model = run.model()
    _attach(model)
    freeze_except(model, (*_ADDED, "head.*"))
    run.train(run.engine(model), intent=(*_ADDED, "head.*"))


@case(kind="H", variants=_BOTH)
def altered_under_zero_init(run: Run) -> None:
    """What is added is partitioned as it is made, and has the starting weights all the same."""
    model = run.model()
    run.alter(model, _attach, under="zero_init")
    shapes = {name: tuple(one.shape) for name, one in model.named_parameters() if ".down." in name or ".up." in name}
    assert set(shapes.values()) == {(0,)}, shapes
    freeze_except(model, _ADDED)
    run.train(run.engine(model), intent=_ADDED)
