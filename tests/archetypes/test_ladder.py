from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah_archetypes import RUNGS, Fingerprint, FingerprintError, canonical_input, rung_tokens, size_class
from pharoah_archetypes.canonical import parse
from pharoah_archetypes.ladder import length_prefixed

PRINT = Fingerprint(
    archetype="00" * 16,
    compute="11" * 16,
    grammar="fwd: gemm",
    features={"dtype": "float32", "optimizer": "adamw/fused"},
    sizes={"parameters": 5_000, "activations": 70_000},
    versions={"torch": "2.13.0+cpu"},
)
SENDING = replace(PRINT, archetype="22" * 16, grammar="fwd: gemm\nbwd: grad AR")
parts = st.lists(st.binary(max_size=8), max_size=5)


@given(parts, parts)
def test_length_prefixes_make_concatenation_injective(left: list[bytes], right: list[bytes]) -> None:
    assert (length_prefixed(*left) == length_prefixed(*right)) == (left == right)


@given(st.lists(st.text(max_size=12), max_size=6), st.randoms())
def test_order_and_repetition_of_tokens_do_not_matter(tokens: list[str], chance: object) -> None:
    shuffled = sorted(tokens, reverse=True) + tokens[:1]
    assert canonical_input("arch", "exact", tokens) == canonical_input("arch", "exact", shuffled)


@given(st.integers(1, 2**60))
def test_a_size_class_holds_sizes_between_two_powers_of_two(size: int) -> None:
    assert 2 ** size_class(size) <= size < 2 ** (size_class(size) + 1)


def test_rungs_go_from_most_to_least_specific() -> None:
    said = [set(rung_tokens(PRINT, rung)) for rung in ("exact", "minor", "major")]
    assert "torch=2.13.0" in said[0] and "torch=2.13" in said[1] and "torch=2" in said[2]
    assert "parameters=2^12" in said[0] and not any("parameters" in token for token in said[1])
    assert "dtype=float32" in said[1] and not any("dtype" in token for token in said[2])


def test_inputs_of_different_rungs_differ_even_with_equal_tokens() -> None:
    assert len({canonical_input("arch", rung, ["a"]) for rung in RUNGS}) == len(RUNGS)


def test_no_input_is_a_single_token() -> None:
    assert all(len(rung_tokens(PRINT, rung)) >= 2 for rung in RUNGS if rung != "collectives")
    assert len(rung_tokens(SENDING, "collectives")) >= 2


def test_jobs_that_differ_in_what_they_send_share_the_rung_of_one_device() -> None:
    grammar = "fwd: gemm\nbwd: grad"
    alone = replace(PRINT, grammar=grammar, archetype=parse(grammar).archetype)
    assert rung_tokens(SENDING, "one-device") == rung_tokens(alone, "one-device")
    assert rung_tokens(SENDING, "minor") != rung_tokens(alone, "minor")
    assert rung_tokens(alone, "collectives") == ()


def test_jobs_that_send_the_same_share_the_rung_of_collectives_whatever_they_compute() -> None:
    other = replace(PRINT, grammar="fwd: conv act gemm\nbwd: grad AR", features={"dtype": "bfloat16"})
    assert rung_tokens(SENDING, "collectives") == rung_tokens(other, "collectives")
    assert rung_tokens(SENDING, "one-device") != rung_tokens(other, "one-device")


def test_a_fingerprint_survives_its_file() -> None:
    assert Fingerprint.from_json(PRINT.to_json()) == PRINT


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        ("[]", "format"),
        ("{", "not JSON"),
        (PRINT.to_json().replace('"torch"', '"jax"'), "torch"),
        (PRINT.to_json().replace("5000", '"many"'), "sizes.parameters"),
        (PRINT.to_json().replace("70000", "-1"), "sizes.activations"),
        (PRINT.to_json().replace("70000", str(2**63)), "sizes.activations"),
        (PRINT.to_json().replace('"fwd: gemm"', "7"), "grammar"),
        (PRINT.to_json().replace('"fwd: gemm"', r'"\ud800"'), "half of a character"),
        (PRINT.to_json().replace(PRINT.archetype, "[/red]"), "archetype: expected 32"),
        (PRINT.to_json().replace('"float32"', f'"{"x" * 70_000}"'), "features.dtype"),
        (PRINT.to_json().replace('"float32"', r'"\ud800"'), "half of a character"),
        (PRINT.to_json().replace('"dtype"', r'"\u001b]0;x"'), "features: a key"),
    ],
)
def test_a_broken_fingerprint_names_the_field(broken: str, named: str) -> None:
    with pytest.raises(FingerprintError, match=named):
        Fingerprint.from_json(broken)
