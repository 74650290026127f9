"""The claims that thawcheck was built on, as plain tests on whatever is installed here.

1. Naive unfreezing (a flag goes from False to True across engine creation) fails.
2. Exclusion freezing before the engine yields correct gradients.
3. The report's literal loop, run before the engine, does not fail.

Some old releases cannot train at all on CPU ranks, or take a wrong first step whatever is frozen.  That is written down
in matrix/expected; there the claims are held against what exclusion freezing does on the same release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.cell import Verdict
from harness.cell.oracle._tolerance import TOLERANCES

if TYPE_CHECKING:
    from harness.cell import CaseRecord
    from harness.cell.plug._fixture import Thaw

MODELS = ("tiny_llama", "mlp")
#: ZeRO-3 is one stage and four ways to build and keep a model.
STAGES = [
    *({"stage": stage} for stage in (0, 1, 2)),
    *(
        {"stage": 3, "init": init, "persistence": persistence}
        for init in ("plain", "zero_init")
        for persistence in ("zero", "default")
    ),
]
ZERO_STAGES = STAGES[1:]


def _id(options: dict[str, object]) -> str:
    return "-".join(str(value) for value in options.values())


def _trains(record: CaseRecord) -> None:
    """Gradients are the twin's, weights moved as the twin's did, nothing else moved by a bit.

    Or it does exactly what is known of this release, and no frozen parameter moves all the same.
    """
    assert record.expected is not None
    if record.expected["verdict"] != Verdict.TRAINS:
        assert record.as_expected, record.headline
        assert {one.moved for one in record.parameters if not one.intended} <= {0.0}
        return
    assert record.verdict is Verdict.TRAINS, record.headline
    trained = [one for one in record.parameters if one.intended]
    frozen = [one for one in record.parameters if not one.intended]
    assert trained
    assert frozen
    for one in trained:
        assert one.grad_error is not None, one.name
        assert one.grad_error <= TOLERANCES["fp32"].grad, one.name
        assert one.moved == pytest.approx(one.twin_moved, rel=1e-3), one.name
        assert one.moved, one.name
    assert {one.moved for one in frozen} == {0.0}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("options", ZERO_STAGES, ids=_id)
def test_naive_unfreezing_fails_silently(thaw: Thaw, model: str, options: dict[str, object]) -> None:
    """The flag says True and a gradient exists, yet the weight never moves."""
    record = thaw.run("unfreeze_more_after_engine", model=model, **options)
    control = thaw.run("freeze_except_before_engine", model=model, **options)

    if control.verdict is Verdict.RAISES:  # a release that cannot take a step here, whatever is frozen
        assert record.verdict is Verdict.RAISES
        assert record.failure == control.failure
        assert control.as_expected
        return
    assert record.verdict is Verdict.NO_UPDATE, record.headline
    late = [one for one in record.parameters if one.verdict is Verdict.NO_UPDATE]
    assert {one.name.rpartition("layers.2.")[1] for one in late} == {"layers.2."}
    for one in late:
        assert one.flag is True, one.name
        assert one.group is None, one.name
        assert one.moment == "step 1", one.name
        assert one.moved == 0.0, one.name
        assert one.twin_moved is not None, one.name
        assert one.twin_moved > 0, one.name
        # there is a gradient, and it is this rank's own: far from the mean over ranks
        assert one.grad_error is not None, one.name
        assert one.grad_error > 100 * TOLERANCES["fp32"].grad, one.name
    rest = [one for one in record.parameters if one not in late]
    # what trained from the start does as well as anything does on this release
    assert {one.verdict for one in rest if one.intended} == {one.verdict for one in control.parameters if one.intended}
    assert {one.verdict for one in rest if not one.intended} == {Verdict.FROZEN}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("options", ZERO_STAGES, ids=_id)
def test_unfreezing_after_freezing_everything_fails_at_engine_creation(
    thaw: Thaw, model: str, options: dict[str, object]
) -> None:
    record = thaw.run("freeze_all_engine_unfreeze", model=model, **options)

    assert record.verdict is Verdict.RAISES, record.headline
    assert record.failure is not None
    assert record.failure.moment == "engine"
    # stages 1 and 2 say "list index out of range" or "expected a non-empty list of Tensors", by release
    assert record.failure.type in ({"AssertionError"} if options["stage"] == 3 else {"IndexError", "RuntimeError"})
    assert list(record.failure.ranks) == [0, 1]


@pytest.mark.parametrize("model", MODELS)
def test_without_zero_naive_unfreezing_trains(thaw: Thaw, model: str) -> None:
    """Stage 0 steps the parameters themselves: what fails above is ZeRO's doing."""
    _trains(thaw.run("unfreeze_more_after_engine", model=model, stage=0))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("options", STAGES, ids=_id)
def test_exclusion_freezing_yields_correct_gradients(thaw: Thaw, model: str, options: dict[str, object]) -> None:
    _trains(thaw.run("freeze_except_before_engine", model=model, **options))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("options", STAGES, ids=_id)
def test_the_literal_loop_before_the_engine_does_not_fail(thaw: Thaw, model: str, options: dict[str, object]) -> None:
    """It ends at the very same weights as exclusion freezing does."""
    loop = thaw.run("literal_loop_before_engine", model=model, **options)
    exclusion = thaw.run("freeze_except_before_engine", model=model, **options)

    _trains(loop)
    assert loop.verdict is exclusion.verdict
    assert [(one.name, one.moved) for one in loop.parameters] == [(one.name, one.moved) for one in exclusion.parameters]
