from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah_archetypes.sequences import Element, flatten, fold, render, spell, word_name

words = st.lists(st.sampled_from("abcd"), max_size=9)


@given(words, words, words, st.integers(2, 5))
def test_repeating_any_part_any_number_of_times_changes_no_name(
    before: list[str], part: list[str], after: list[str], times: int
) -> None:
    assert word_name(before + part * times + after) == word_name(before + part + after)


@pytest.mark.parametrize(("letters", "elements"), [("a", 1), ("ab", 6), ("abc", 159)])
def test_there_are_as_many_names_as_the_free_band_has_elements(letters: str, elements: int) -> None:
    """Sizes of free bands: Green and Rees 1952, OEIS A005345."""
    longest = {1: 2, 2: 4, 3: 9}[len(letters)]
    names = {word_name(word) for length in range(1, longest) for word in product(letters, repeat=length)}
    assert len(names) == elements


@given(words)
def test_the_name_is_that_of_the_definition(word: list[str]) -> None:
    other = [*word, *word[::-1]]
    assert (word_name(word) == word_name(other)) == (_by_definition(word) == _by_definition(other))


def _by_definition(word: list[str]) -> tuple[object, ...]:
    """Longest prefix with one letter less, the letter after it, and the mirror image of both, in plain recursion."""
    if not word:
        return ()
    content = len(set(word))
    end = next(at for at in range(len(word)) if len(set(word[: at + 1])) == content)
    start = next(at for at in reversed(range(len(word))) if len(set(word[at:])) == content)
    return _by_definition(word[:end]), word[end], word[start], _by_definition(word[start + 1 :])


@given(words)
def test_folding_twice_is_folding_once_and_keeps_the_name(word: list[str]) -> None:
    once = fold(word)
    assert fold(once) == once
    assert word_name(flatten(once)) == word_name(word)
    assert word_name(spell(render(once))) == word_name(word)
    assert fold(spell(render(once))) == once


@pytest.mark.parametrize("broken", ["(a b", "a )+", "(a (b )+", "(" * 20 + "a" + ")+" * 20])
def test_a_broken_or_endless_grammar_is_refused(broken: str) -> None:
    with pytest.raises(ValueError, match=r"closes nothing|without|more than"):
        spell(broken)


def test_repeats_fold_from_the_inside() -> None:
    layer: list[Element] = ["gemm", "attn", "gemm", "gemm", "act", "gemm"]
    assert render(fold(["emb", *layer * 3, "nll"])) == "emb (gemm attn gemm act)+ gemm nll"
    pair: list[Element] = ["conv", "act", "conv", "act", "pool"]
    assert render(fold(pair * 4)) == "((conv act)+ pool)+"
