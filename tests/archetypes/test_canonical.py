from __future__ import annotations

import pytest

from pharoah_archetypes import (
    GrammarError,
    Operator,
    Skeleton,
    canonicalize,
    describe_sent,
    differences,
    nearest,
    parse,
    similarity,
)
from pharoah_archetypes.operators import Phase
from pharoah_archetypes.vocabulary import vocabulary

X, Q, K, V, SCORES, WEIGHTS, OTHER, IDS, TABLE, SPARE = range(1, 11)
FLASH = "_scaled_dot_product_flash_attention_for_cpu"


def op(name: str, reads: tuple[int, ...] = (), writes: tuple[int, ...] = (), *notes: str) -> Operator:
    return Operator(f"aten.{name}", Phase.FORWARD, reads, writes, frozenset(notes))


def ops(phase: str, *names: str) -> list[Operator]:
    return [Operator(f"aten.{name}", Phase(phase)) for name in names]


def test_views_casts_and_elementwise_operators_leave_no_trace() -> None:
    plain = canonicalize(ops("fwd", "mm", "gelu", "mm"))
    noisy = canonicalize(ops("fwd", "t", "mm", "add", "view", "gelu", "mm", "_to_copy"))
    assert plain.archetype == noisy.archetype


def test_depth_does_not_matter_one_layer_included() -> None:
    layer = ["mm", FLASH, "mm", "mm", "gelu", "mm"]
    names = {canonicalize(ops("fwd", "embedding", *layer * n, "mm", "nll_loss_forward")).archetype for n in range(1, 9)}
    assert len(names) == 1


def test_attention_written_out_is_attention_and_says_so() -> None:
    fused = canonicalize(ops("fwd", FLASH))
    written_out = canonicalize(ops("fwd", "bmm", "_safe_softmax", "bmm"))
    assert fused.archetype == written_out.archetype
    assert (fused.features["attention"], written_out.features["attention"]) == ("flash", "math")


@pytest.mark.parametrize("noted", ["_scaled_dot_product_flash_attention", "masked_fill", "add"])
def test_one_operator_that_applies_a_causal_mask_makes_a_step_causal(noted: str) -> None:
    assert "causal" in canonicalize([op(noted, (Q, K, V), (SCORES,), "causal")]).traits


def test_how_a_mask_is_made_proves_nothing() -> None:
    made = [op("tril", (X,), (OTHER,)), op("le", (X, OTHER), (OTHER,), "integer"), op(FLASH, (Q, K, V), (SCORES,))]
    written_out = [op("bmm"), op("masked_fill", (), (), "pairs"), op("_softmax"), op("bmm")]
    assert not canonicalize(made).traits and not canonicalize(written_out).traits


def test_a_convolution_of_each_channel_is_a_class_of_its_own() -> None:
    block = canonicalize([op("convolution", (X, WEIGHTS), (Q,), "depthwise"), *ops("fwd", "mm", "gelu", "mm")])
    assert block.forward == ("dwconv", "gemm", "act", "gemm")


def test_a_mask_of_padding_is_not_causal() -> None:
    how = [op("bmm"), op("masked_fill"), op("_softmax"), op("bmm")]
    assert not canonicalize(how).traits


def projections(of: int) -> list[Operator]:
    return [op("mm", (of, WEIGHTS), (K,)), op("mm", (of, WEIGHTS), (V,)), op(FLASH, (Q, K, V), (SCORES,))]


def test_keys_from_elsewhere_make_cross_attention() -> None:
    embeddings = [op("embedding", (TABLE, IDS), (X,)), op("embedding", (TABLE, IDS), (OTHER,))]
    query = op("mm", (X, WEIGHTS), (Q,))
    own = canonicalize([*embeddings, query, *projections(X)])
    foreign = canonicalize([*embeddings, query, *projections(OTHER)])
    assert (own.forward[-1], foreign.forward[-1]) == ("attn", "xattn")


def test_memory_that_is_used_again_holds_another_value() -> None:
    reused = [
        op("embedding", (TABLE, IDS), (OTHER,)),
        op("embedding", (TABLE, IDS), (X,)),
        op("clone", (X,), (OTHER,)),
        op("mm", (X, WEIGHTS), (Q,)),
        *projections(OTHER),
    ]
    assert canonicalize(reused).forward[-1] == "attn"


@pytest.mark.parametrize(
    "taker",
    [Operator("aten.empty", Phase.NO_GRAD, (), (SPARE,)), Operator("aten.lift_fresh", "fwd", (SPARE,), (SPARE,))],
    ids=["without gradients", "from Python values"],
)
def test_memory_that_changed_hands_brings_nothing_along(taker: Operator) -> None:
    embeddings = [op("embedding", (TABLE, IDS), (X,)), op("embedding", (TABLE, IDS), (OTHER,))]
    was_of_the_query = op("add", (X,), (SPARE,))
    joined = op("cat", (SPARE, OTHER), (OTHER,))
    step = [*embeddings, was_of_the_query, taker, joined, op("mm", (X, WEIGHTS), (Q,)), *projections(OTHER)]
    assert canonicalize(step).forward[-1] == "xattn"


def test_a_product_with_an_activated_value_is_a_gate_dropout_is_not() -> None:
    up = [op("mm", (X, WEIGHTS), (Q,)), op("silu", (Q,), (K,)), op("mm", (X, WEIGHTS), (V,))]
    assert "gated" in canonicalize([*up, op("mul", (K, V), (OTHER,))]).traits
    noise = [op("empty_like", (K,), (OTHER,)), op("bernoulli_", (OTHER,), (OTHER,)), op("mul", (K, OTHER), (V,))]
    assert "gated" not in canonicalize([*up, *noise]).traits


def test_an_activation_that_is_written_out_is_no_gate_and_can_be_one() -> None:
    written_out = [
        op("mm", (X, WEIGHTS), (Q,)), op("mul", (Q,), (V,)), op("tanh", (Q,), (K,)), op("add", (K,), (K,)),
        op("mul", (V, K), (SPARE,)),
    ]  # fmt: skip
    assert canonicalize(written_out).text == "fwd: gemm act"
    assert "gated" not in canonicalize(written_out).traits
    gate = [op("mm", (X, WEIGHTS), (OTHER,)), op("mul", (SPARE, OTHER), (V,))]
    assert "gated" in canonicalize([*written_out, *gate]).traits


def test_two_parts_of_one_product_are_a_gate() -> None:
    parts = [op("mm", (X, WEIGHTS), (Q,)), op("split", (Q,), ()), op("silu", (Q,), (K,)), op("mul", (K, Q), (V,))]
    assert "gated" in canonicalize(parts).traits
    assert "gated" not in canonicalize([parts[0], *parts[2:]]).traits


def test_work_done_again_in_the_backward_pass_is_a_feature() -> None:
    plain = canonicalize([*ops("fwd", "mm"), *ops("bwd", "mm")])
    again = canonicalize([*ops("fwd", "mm"), *ops("recompute", "mm"), *ops("bwd", "mm")])
    assert plain == again and again.features == {"checkpointing": "on"}


def test_collectives_stand_where_they_are_and_the_backward_pass_is_one_class() -> None:
    backward = [*ops("bwd", "mm", "native_layer_norm_backward"), Operator("c10d.allreduce_", "bwd")]
    assert canonicalize([*ops("fwd", "mm"), *backward * 5]).text == "fwd: gemm\nbwd: (grad AR)+"


def test_the_optimizer_and_integers_are_no_structure() -> None:
    assert canonicalize([*ops("fwd", "mm"), *ops("opt", "mm", "bmm")]) == canonicalize(ops("fwd", "mm"))
    assert canonicalize([op("cumsum", (), (), "integer")]).text == ""


def test_custom_kernels_are_counted_as_unknown_not_dropped() -> None:
    skeleton = canonicalize([Operator("mine.kernel", "fwd")])
    assert skeleton.unknown == ("mine.kernel",)
    assert skeleton.text == "fwd: ext"


def test_a_compiled_step_shows_its_contractions() -> None:
    eager = canonicalize(ops("fwd", "embedding", "mm", "gelu", "mm", "nll_loss_forward"))
    compiled = canonicalize(ops("fwd", "mm", "mm"))
    assert eager.compute == compiled.compute and eager.archetype != compiled.archetype
    assert eager.compute != canonicalize(ops("fwd", "mm", "convolution")).compute


def test_a_compiler_may_reorder_and_write_out_attention() -> None:
    eager = canonicalize(ops("fwd", "convolution", "mm", "bmm", "_softmax", "bmm", "mm"))
    compiled = canonicalize(ops("fwd", "mm", "bmm", "bmm", "convolution", "mm"))
    assert "attn" in eager.forward and eager.compute == compiled.compute


def test_a_grammar_is_read_as_it_was_written() -> None:
    text = "fwd: emb (gemm attn gemm act)+ gemm nll\nbwd: (grad AR)+\nwith: causal norm=rms"
    assert parse(text).text.count("gemm") == 3
    assert parse(text) == parse(text.replace("(gemm attn gemm act)+", "gemm attn gemm act gemm attn gemm act"))


@pytest.mark.parametrize(
    ("text", "named"), [("fwd gemm", "fwd gemm"), ("fwd: gem", "gem"), ("upd: AR", "upd"), ("opt: gemm", "gemm")]
)
def test_what_is_no_grammar_is_named(text: str, named: str) -> None:
    with pytest.raises(GrammarError, match=named):
        parse(text)


def test_traits_that_no_name_has_room_for_are_no_grammar() -> None:
    """Their length goes into the name in two bytes."""
    fitting = "x" * 0xFFFF
    assert len(parse(f"fwd: gemm\nwith: {fitting}").archetype) == 32
    for traits in (f"{fitting}x", f"a {fitting}", " ".join(map(str, range(15_000)))):
        with pytest.raises(GrammarError, match="bytes of traits, at most 65535"):
            parse(f"fwd: gemm\nwith: {traits}")


def test_the_name_of_a_structure_stays_what_it_was() -> None:
    """Names are in tables that were sealed and in evidence that is stored."""
    grammar = "fwd: emb (gemm attn gemm act)+ gemm nll\nbwd: (grad AR)+\nwith: causal norm=rms"
    assert parse(grammar).archetype == "6e0a0b2f45afa642295be46cc95c664b"


def sending(phase: str) -> Operator:
    return Operator("c10d.allreduce_", phase)


def test_collectives_after_the_backward_pass_belong_to_the_update() -> None:
    step = [*ops("fwd", "mm"), *ops("bwd", "mm"), sending("fwd")]
    assert canonicalize(step).text == "fwd: gemm\nbwd: grad\nopt: AR"
    assert parse(canonicalize(step).text) == canonicalize(step)
    assert canonicalize(step) != canonicalize(step[:-1])


def test_what_is_sent_before_another_micro_batch_belongs_to_it() -> None:
    micro_batch = [Operator("c10d._allgather_base_", "fwd"), *ops("fwd", "add", "mm"), *ops("bwd", "mm")]
    assert canonicalize(micro_batch) == canonicalize(micro_batch * 3)


def test_a_step_alone_is_the_step_without_what_it_sends() -> None:
    plain = parse("fwd: emb (gemm act)+ gemm nll\nbwd: grad\nwith: causal")
    sharded = parse("fwd: AG emb (AG gemm act gemm)+ nll\nbwd: (grad RS)+\nopt: AR\nwith: causal")
    assert sharded.alone == plain.alone == plain
    assert describe_sent(sharded) == "fwd AG, bwd RS, opt AR"
    assert nearest(sharded)[0] == nearest(plain)[0]


def test_differences_say_what_to_change() -> None:
    one, other = parse("fwd: emb rnn gemm nll"), parse("fwd: emb gemm attn gemm nll\nwith: causal")
    assert differences(one, other) == ["fwd: rnn -> gemm attn", "with: + causal"]
    assert differences(one, one) == []


def test_similarity_is_symmetric_and_zero_for_nothing_in_common() -> None:
    one, other = parse("fwd: gemm act"), parse("fwd: gemm act gemm nll")
    assert 0 < similarity(one, other) == similarity(other, one) < 1
    assert similarity(Skeleton(("gemm",) * 3), Skeleton(("conv",))) == 0


def test_every_class_is_in_the_vocabulary() -> None:
    words = vocabulary()
    assert set(words.classes.values()) | words.compute | words.collectives <= words.known_classes
