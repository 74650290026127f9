"""What a case must declare, and what it is told when it makes no sense."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from planted import malformed

from harness.cell import Case, MalformedCase, Options, Verdict, case, grid
from harness.cell.ranks._launch import Request, ZygoteLauncher

if TYPE_CHECKING:
    from harness.cell._run import Run


def declare(**given: Any) -> Case:
    def some_case(run: Run) -> None:
        """What it shows.

        And why.
        """
        run.note("never called")

    return case(**{"kind": "A", **given})(some_case)


def test_a_declaration_needs_nothing_but_its_kind() -> None:
    made = declare()

    assert (made.name, made.kind, made.world, made.deadline, made.refs) == ("some_case", "A", 2, None, ())
    assert made.recipe == "some case"
    assert made.summary == "What it shows."
    assert made.why == "And why."
    assert made.path == __file__
    assert made.module == __name__
    assert list(made.variants) == list(grid(("tiny_llama", "mlp"), (0, 1, 2, 3)))


def test_a_declaration_keeps_what_it_is_given() -> None:
    variants = (Options(stage=1), Options(stage=2, precision="bf16"))

    made = declare(
        recipe="freeze all",
        moment="before the engine",
        happens="It fails.",
        instead="Do not.",
        cure="another",
        refs=["one/two#3"],
        world=3,
        deadline=2.5,
        variants=variants,
        needs=["peft"],
    )

    assert (made.recipe, made.moment, made.happens, made.instead, made.cure) == (
        "freeze all",
        "before the engine",
        "It fails.",
        "Do not.",
        "another",
    )
    assert (made.refs, made.world, made.deadline, made.variants) == (("one/two#3",), 3, 2.5, variants)
    assert made.needs == ("peft",)


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"kind": "Z"}, "kind 'Z' is not one of A, B, "),
        ({"world": 0}, "world must be a positive number of ranks, found 0"),
        ({"world": -2}, "world must be a positive number of ranks, found -2"),
        ({"world": 2.0}, "world must be a positive number of ranks, found 2.0"),
        ({"deadline": 0}, "deadline must be positive seconds, found 0"),
        ({"deadline": -1.5}, "deadline must be positive seconds, found -1.5"),
        ({"variants": []}, "it has no variant: give models and stages, or variants"),
        ({"stages": ()}, "it has no variant: give models and stages, or variants"),
        ({"stages": (4,)}, "ZeRO stages are 0 to 3, found 4"),
        ({"variants": [Options(), Options(stage=0), Options()]}, "variants given twice: tiny_llama-z3-plain-"),
        ({"models": ["tiny_lama"]}, "no model is called 'tiny_lama'; did you mean 'tiny_llama' or "),
        ({"variants": [Options(accumulation=0)]}, "accumulation must be 1 micro-batch or more, found 0"),
        ({"variants": [Options(clipping=-1.0)]}, "clipping must be a norm, 0 for none, found -1.0"),
        ({"variants": [Options(clipping=float("nan"))]}, "clipping must be a norm, 0 for none, found nan"),
        ({"variants": [Options(precision="bf8")]}, "no precision is called 'bf8'; did you mean 'bf16'?"),  # type: ignore[arg-type]
        ({"variants": [Options(init="zero")]}, "no init is called 'zero'; did you mean 'zero_init'?"),  # type: ignore[arg-type]
        ({"variants": [Options(checkpointing="all")]}, "no checkpointing is called 'all'; "),  # type: ignore[arg-type]
        ({"variants": [Options(offload="disk")]}, "no offload is called 'disk'; "),  # type: ignore[arg-type]
        ({"variants": [Options(stage=0, offload="cpu")]}, "stage 0 has no optimizer state to offload; "),
        ({"variants": [Options(persistence="all")]}, "no persistence is called 'all'; "),  # type: ignore[arg-type]
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else None,
)
def test_a_senseless_declaration_is_told_so(given: dict[str, Any], fault: str) -> None:
    with pytest.raises(MalformedCase) as caught:
        declare(**given)

    assert caught.value.who == f"case some_case in {__name__}"
    assert len(caught.value.faults) == 1
    assert caught.value.faults[0].startswith(fault)
    assert str(caught.value).startswith(f"case some_case in {__name__}: {fault}")


def _none() -> None: ...


def _two(run: Run, other: object) -> None: ...


@pytest.mark.parametrize("function", [_none, _two])
def test_a_case_takes_the_run_and_nothing_else(function: Callable[..., None]) -> None:
    with pytest.raises(MalformedCase, match="takes exactly one argument, the run"):
        case(kind="A")(function)


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(MalformedCase) as caught:
        declare(kind="", world=0, deadline=-1, stages=(7,))

    assert [fault.split()[0] for fault in caught.value.faults] == ["kind", "world", "deadline", "ZeRO"]


def test_a_variant_is_found_by_what_it_has() -> None:
    made = declare()

    assert made.variant(stage=2, model="mlp") == Options(model="mlp", stage=2)
    with pytest.raises(MalformedCase, match=r"no variant has stage=2, init=zero_init; there is: tiny_llama-z0, "):
        made.variant(stage=2, init="zero_init")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (Options(), "tiny_llama-z3-plain-persist_zero"),
        (Options(model="mlp", stage=1), "mlp-z1"),
        (Options(init="zero_init", persistence="default"), "tiny_llama-z3-zero_init-persist_default"),
        (Options(stage=2, precision="bf16", accumulation=4, clipping=0.5), "tiny_llama-z2-bf16-accum4-clip0.5"),
        (
            Options(stage=1, checkpointing="non_reentrant", offload="cpu"),
            "tiny_llama-z1-ckpt_non_reentrant-offload_cpu",
        ),
        (Options(model="mlp", stage=0, precision="bf16", checkpointing="reentrant"), "mlp-z0-bf16-ckpt_reentrant"),
        (Options(stage=2, offload="cpu_adam", overlap="off"), "tiny_llama-z2-offload_cpu_adam-overlap_off"),
        (
            Options(clipping=1.5, gather_16bit=True, embeddings="resized", driver="sft_trainer", adapters="lora_head"),
            "tiny_llama-z3-plain-persist_zero-clip1.5-gather_16bit-resized-by_sft_trainer-peft_lora_head",
        ),
        (
            Options(model="mlp", stage=1, overlap="on", driver="accelerate", adapters="lora"),
            "mlp-z1-overlap_on-by_accelerate-peft_lora",
        ),
    ],
)
def test_a_variant_is_named_by_what_matters(options: Options, expected: str) -> None:
    assert options.id == expected
    assert Options.from_id(expected) == options
    assert Options(**options.as_dict()) == options


def test_the_grid_varies_init_and_persistence_at_stage_3_alone() -> None:
    made = list(grid(("mlp",), (0, 2, 3), precision="bf16"))

    assert [one.id for one in made] == [
        "mlp-z0-bf16",
        "mlp-z2-bf16",
        "mlp-z3-plain-persist_zero-bf16",
        "mlp-z3-plain-persist_default-bf16",
        "mlp-z3-zero_init-persist_zero-bf16",
        "mlp-z3-zero_init-persist_default-bf16",
    ]


# -- told by the ranks -------------------------------------------------------------------------

_WHO = "case on mlp-z3-plain-persist_zero"
_PART = f"{_WHO}: model mlp has no part 'heads'; did you mean 'head'?"


def _runs() -> Iterator[tuple[Case, str]]:
    yield malformed.no_intent, f"{_WHO}: no intent: name the parameters that are meant to train"
    yield (
        malformed.intent_matches_nothing,
        f"{_WHO}: intent 'model.layers.1.*' matches no parameter; did you mean 'layers.1.bias' or ",
    )
    yield (
        malformed.no_step,
        f"{_WHO}: steps must be 1 or more, found 0; intent 'heads.*' matches no parameter; did you mean 'head.",
    )
    yield malformed.unknown_part, _PART
    yield malformed.no_batch, f"{_WHO}: a model given as a plain callable needs train(..., batch=...)"
    yield malformed.never_trains, f"{_WHO}: it ended without an optimizer step: nothing was measured"
    yield (
        malformed.goes_its_own_way,
        f"{_WHO}-by_accelerate-peft_lora: nothing in it heeds driver=accelerate, adapters=lora; train by ",
    )
    yield malformed.saves_untrained, f"{_WHO}: saved() before any optimizer step: nothing was trained yet"


@pytest.mark.parametrize(("asked", "message"), [pytest.param(*one, id=one[0].name) for one in _runs()])
def test_a_run_that_makes_no_sense_is_not_run(launcher: ZygoteLauncher, asked: Case, message: str) -> None:
    (options,) = asked.variants

    outcome = launcher.result(launcher.submit(Request(asked, options, asked.world)))

    assert outcome.malformed.startswith(message)
    assert outcome.record.verdict is Verdict.NOT_RUN
    assert outcome.record.headline == f"not run: malformed case: {outcome.malformed}"
    assert outcome.record.parameters == []
