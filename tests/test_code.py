"""The digest of a case: what changes it, what does not, and what becomes of that which another one measured."""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from small_matrix import observed, outcome

from harness.cell import Case, Verdict
from harness.cell._catalog import shipped
from harness.cell._code import code_of, digest_of
from harness.control._fresh import fresh, fresh_outcomes, stale_cases

TEXT: Final = '''\
from harness.cell import Hyper, case

_HYPER = Hyper(lr=0.5, schedule=lambda step: 0.5)


def _build(run):
    """How it is built."""
    model = run.model()
    return model


@case(kind="P", happens="It trains.", refs=["a/b#1"])
def some(run):
    """A story."""
    model = _build(run)
    run.engine(model, hyper=_HYPER)
    run.train(model, intent="*")
'''
_NUMBERS: Final = itertools.count()


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    making = Made(tmp_path)
    yield making
    making.forget()


class Made:
    """Cases from texts, each in a module of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._modules: list[str] = []

    def __call__(self, text: str) -> Case:
        name = f"digested_{next(_NUMBERS)}"
        path = self._folder / f"{name}.py"
        path.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        self._modules.append(name)
        spec.loader.exec_module(module)
        case = module.some
        assert isinstance(case, Case)
        return case

    def forget(self) -> None:
        for name in self._modules:
            del sys.modules[name]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"""A story."""', '"""Another story,\n\n    told at length.\n    """'),
        ('"""How it is built."""', '"""Otherwise."""'),
        ("    run.train(model", "    # why not\n\n    run.train(model"),
        ("    model = run.model()\n", "    model = run.model()  # with a # in it\n"),
        ("run.train(model, intent=", "run.train(\n        model, intent="),
        ('happens="It trains.", refs=["a/b#1"]', 'happens="It does.", instead="Nothing.", refs=["c/d#2"]'),
    ],
)
def test_what_is_told_of_a_case_is_no_part_of_what_it_does(made: Made, before: str, after: str) -> None:
    assert before in TEXT
    assert digest_of(made(TEXT.replace(before, after))) == digest_of(made(TEXT))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('intent="*"', 'intent="head.*"'),
        ("    model = run.model()\n", "    model = run.model()\n    model.eval()\n"),
        ("lr=0.5", "lr=0.25"),
        ('kind="P", ', 'kind="P", world=3, '),
    ],
)
def test_what_a_case_does_is(made: Made, before: str, after: str) -> None:
    assert before in TEXT
    assert digest_of(made(TEXT.replace(before, after))) != digest_of(made(TEXT))


def test_every_shipped_case_has_a_digest_and_code_that_is_python() -> None:
    for case in shipped():
        assert len(case.code) == 8
        assert case.code == digest_of(case)
        compile(code_of(case), case.name, "exec")


def test_what_other_code_measured_was_not_measured() -> None:
    one, other, third = shipped()[:3]
    seen = observed(
        "a-stack",
        dataclasses.replace(outcome(one.name, Verdict.TRAINS), code=one.code),
        dataclasses.replace(outcome(other.name, Verdict.TRAINS), code="00000000"),
        outcome(third.name, Verdict.TRAINS),
        dataclasses.replace(outcome("nobody_knows_it", Verdict.TRAINS), code="00000000"),
    )

    assert [each.case for each in fresh_outcomes(seen)] == [one.name, third.name, "nobody_knows_it"]
    assert stale_cases(seen) == [other.name]
    assert [each.case for each in fresh(seen).outcomes] == [one.name, third.name, "nobody_knows_it"]
    assert fresh(fresh(seen)) == fresh(seen)
