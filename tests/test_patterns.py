"""Patterns over parameter names, and what is suggested where none fits."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.cell._patterns import as_patterns, matches, nearest, select

_PLAIN = st.text("abz_.01", min_size=1, max_size=6)
_NAMES = st.lists(_PLAIN, max_size=6, unique=True)
_GLOBS = st.lists(st.text("ab.*?1", min_size=1, max_size=5), max_size=3)


@pytest.mark.parametrize(
    ("name", "patterns", "expected"),
    [
        ("model.layers.2.mlp.weight", "model.layers.2.*", True),
        ("model.layers.2.mlp.weight", "layers.2.*", False),  # the whole name, not a part of it
        ("model.layers.2.mlp.weight", "*layers.2.*", True),
        ("model.layers.20.mlp.weight", "model.layers.2.*", False),  # the dot is a dot
        ("model.layers.20.mlp.weight", "model.layers.2*", True),
        ("model.layers.3.mlp.weight", "model.layers.[2-4].*", True),
        ("LM_head.weight", "lm_head.*", False),
        ("lm_head.weight", ("nothing", "lm_head.*"), True),
        ("lm_head.weight", (), False),
    ],
)
def test_a_glob_matches_the_whole_name(name: str, patterns: str | tuple[str, ...], *, expected: bool) -> None:
    assert matches(name, patterns) is expected


def test_one_pattern_needs_no_list() -> None:
    assert as_patterns("a.*") == as_patterns(["a.*"]) == ("a.*",)


@settings(deadline=None)
@given(_NAMES, _GLOBS)
def test_a_selection_keeps_names_and_their_order(names: list[str], globs: list[str]) -> None:
    chosen = select(names, globs)

    assert chosen == [name for name in names if name in chosen]
    assert all(matches(name, globs) for name in chosen)
    assert not any(matches(name, globs) for name in set(names) - set(chosen))
    assert select(chosen, globs) == chosen


@settings(deadline=None)
@given(_NAMES, _GLOBS, _GLOBS)
def test_patterns_add_up(names: list[str], some: list[str], more: list[str]) -> None:
    together = set(select(names, [*some, *more]))

    assert together == set(select(names, some)) | set(select(names, more))


@settings(deadline=None)
@given(_NAMES)
def test_a_plain_name_selects_itself_and_a_star_all(names: list[str]) -> None:
    assert select(names, "*") == names
    assert all(select(names, name) == [name] for name in names)


@pytest.mark.parametrize(
    ("word", "choices", "expected"),
    [
        ("tiny_lama", ["tiny_llama", "mlp"], "did you mean 'tiny_llama'?"),
        ("layers.1.*", ["model.layers.1.weight"], "did you mean 'model.layers.1.weight'?"),
        ("lm_heads.*", ["lm_head.weight"], "did you mean 'lm_head.weight'?"),
        ("xyz", ["mlp", "other"], "there is: mlp, other"),
        ("*", ["mlp"], "there is: mlp"),
        ("xyz", list("abcdefghij"), "there is: a, b, c, d, e, f, g, h and 2 more"),
        ("xyz", [], "there is none"),
    ],
)
def test_a_miss_says_what_may_have_been_meant(word: str, choices: list[str], expected: str) -> None:
    assert nearest(word, choices) == expected


def test_at_most_three_things_are_suggested() -> None:
    assert nearest("b1", ["b2", "b3", "b4", "b5"]).count("'b") == 3


@settings(deadline=None)
@given(_PLAIN, _NAMES)
def test_a_suggestion_is_something_there_is(word: str, choices: list[str]) -> None:
    found = nearest(word, choices)

    quoted = found.split("'")[1::2]
    assert set(quoted) <= set(choices)
    assert len(quoted) <= 3


def test_the_beginning_of_a_name_finds_those_that_begin_so() -> None:
    """Though others are nearer by edit distance."""
    assert nearest("ds-0.13", ["ds-0.19.3", "ds-0.18.3", "ds-0.13.4", "ds-0.13.5"]).startswith(
        "did you mean 'ds-0.13.4' or 'ds-0.13.5'"
    )
