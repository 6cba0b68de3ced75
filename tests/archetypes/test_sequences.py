from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah_archetypes.canonical import GrammarError, parse
from pharoah_archetypes.sequences import (
    MAX_SEQUENCE,
    Element,
    flatten,
    fold,
    read_sequence,
    render,
    sequence_name,
)

sequences = st.lists(st.sampled_from("abcd"), max_size=9)


@given(sequences, sequences, sequences, st.integers(2, 5))
def test_repeating_any_part_any_number_of_times_changes_no_name(
    before: list[str], part: list[str], after: list[str], times: int
) -> None:
    assert sequence_name(before + part * times + after) == sequence_name(before + part + after)


@pytest.mark.parametrize(("classes", "elements"), [("a", 1), ("ab", 6), ("abc", 159)])
def test_there_are_as_many_names_as_the_free_band_has_elements(classes: str, elements: int) -> None:
    """Sizes of free bands: Green and Rees 1952, OEIS A005345."""
    longest = {1: 2, 2: 4, 3: 9}[len(classes)]
    names = {sequence_name(sequence) for length in range(1, longest) for sequence in product(classes, repeat=length)}
    assert len(names) == elements


@given(sequences)
def test_the_name_is_that_of_the_definition(sequence: list[str]) -> None:
    other = [*sequence, *sequence[::-1]]
    assert (sequence_name(sequence) == sequence_name(other)) == (_by_definition(sequence) == _by_definition(other))


def _by_definition(sequence: list[str]) -> tuple[object, ...]:
    """Longest prefix with one class less, the class after it, and the mirror image of both, in plain recursion."""
    if not sequence:
        return ()
    content = len(set(sequence))
    end = next(at for at in range(len(sequence)) if len(set(sequence[: at + 1])) == content)
    start = next(at for at in reversed(range(len(sequence))) if len(set(sequence[at:])) == content)
    return _by_definition(sequence[:end]), sequence[end], sequence[start], _by_definition(sequence[start + 1 :])


@given(sequences)
def test_folding_twice_is_folding_once_and_keeps_the_name(sequence: list[str]) -> None:
    once = fold(sequence)
    assert fold(once) == once
    assert sequence_name(flatten(once)) == sequence_name(sequence)
    assert sequence_name(read_sequence(render(once))) == sequence_name(sequence)
    assert fold(read_sequence(render(once))) == once


@pytest.mark.parametrize("broken", ["(a b", "a )+", "(a (b )+", "(" * 20 + "a" + ")+" * 20])
def test_a_broken_or_endless_grammar_is_refused(broken: str) -> None:
    with pytest.raises(ValueError, match=r"closes nothing|without|more than"):
        read_sequence(broken)


def test_repeats_fold_from_the_inside() -> None:
    layer: list[Element] = ["gemm", "attn", "gemm", "gemm", "act", "gemm"]
    assert render(fold(["emb", *layer * 3, "nll"])) == "emb (gemm attn gemm act)+ gemm nll"
    pair: list[Element] = ["conv", "act", "conv", "act", "pool"]
    assert render(fold(pair * 4)) == "((conv act)+ pool)+"


@pytest.mark.parametrize(
    ("phases", "message"),
    [
        ({"fwd": ["gemm"] * MAX_SEQUENCE, "bwd": ["gemm"]}, "20,001 operator classes, at most"),
        ({"fwd": ["gemm", "act"] * (MAX_SEQUENCE // 4), "bwd": ["gemm"]}, "20,001 operator classes times"),
        ({"fwd": ["gemm"] * (MAX_SEQUENCE + 1)}, "more than 20,000"),
    ],
)
def test_a_grammar_that_takes_long_to_name_is_not_read(phases: dict[str, list[str]], message: str) -> None:
    """All phases together count, and so do different classes: the name takes the product of both."""
    with pytest.raises(GrammarError, match=message):
        parse("\n".join(f"{phase}: {' '.join(classes)}" for phase, classes in phases.items()))
    shorter = {phase: classes[: MAX_SEQUENCE // 4] for phase, classes in phases.items()}
    parse("\n".join(f"{phase}: {' '.join(classes)}" for phase, classes in shorter.items()))
