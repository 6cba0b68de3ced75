from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pharoah_archetypes import Operator, canonicalize
from pharoah_archetypes.canonical import fold, render
from pharoah_archetypes.vocabulary import vocabulary

letters = st.lists(st.sampled_from(["gemm", "attn", "act"]), max_size=24)


def ops(phase: str, *names: str) -> list[Operator]:
    return [Operator(f"aten.{name}", phase) for name in names]


@given(letters)
def test_folding_twice_is_folding_once(sequence: list[str]) -> None:
    once = fold(sequence)
    assert fold(once) == once


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=6), st.integers(3, 9), st.integers(3, 9))
def test_the_number_of_repeats_does_not_matter(block: list[str], few: int, many: int) -> None:
    assert fold(block * few) == fold(block * many)


def test_nested_repeats_fold_from_the_inside() -> None:
    layer = ["gemm", "attn", "gemm", "gemm", "act", "gemm"]
    assert render(fold(["emb", *layer * 3, "loss"])) == "emb (gemm attn gemm act)+ gemm loss"
    assert fold(["emb", *layer * 2, "loss"]) == fold(["emb", *layer * 3, "loss"])
    pair = ["conv", "act", "conv", "act", "pool"]
    assert render(fold(pair * 4)) == "((conv act)+ pool)+"


def test_views_and_elementwise_operators_leave_no_trace() -> None:
    plain = canonicalize(ops("fwd", "mm", "gelu", "mm"))
    noisy = canonicalize(ops("fwd", "t", "mm", "add", "view", "gelu", "native_layer_norm", "mm", "_to_copy"))
    assert plain.archetype == noisy.archetype


def test_attention_written_out_is_attention_and_says_so() -> None:
    fused = canonicalize(ops("fwd", "_scaled_dot_product_flash_attention_for_cpu"))
    written_out = canonicalize(ops("fwd", "bmm", "_safe_softmax", "bmm"))
    assert fused.archetype == written_out.archetype
    assert (fused.features["attention"], written_out.features["attention"]) == ("flash", "math")


def test_the_optimizer_is_not_part_of_the_structure() -> None:
    assert canonicalize([*ops("fwd", "mm"), *ops("opt", "mm", "bmm")]) == canonicalize(ops("fwd", "mm"))


def test_custom_kernels_are_counted_as_unknown_not_dropped() -> None:
    skeleton = canonicalize([Operator("flash_attn.fwd", "fwd")])
    assert skeleton.unknown == ("flash_attn.fwd",)
    assert skeleton.text == "fwd: ext"


def test_every_rewrite_speaks_the_vocabulary() -> None:
    classes = set(vocabulary().classes.values())
    assert all({*rewrite.source, rewrite.target} <= classes for rewrite in vocabulary().rewrites)
