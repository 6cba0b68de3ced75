"""Trials that computed other numbers than the same cell on other nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah_learning.evidence import Trial
from pharoah_learning.wrong_trials import mark_wrong
from pharoah_protocol.vocabulary import DeviceKind, Outcome


def trial(node: str, *losses: float, seed: int = 0, dtype: str = "float32") -> Trial:
    return Trial(
        workload="gpt",
        settings={"dtype": dtype},
        context_id="c",
        device_id="d",
        outcome=Outcome.OK,
        step_seconds=(1.0,) * len(losses),
        fingerprint="",
        node=node,
        losses=losses,
        seed=seed,
    )


def wrong(*trials: Trial) -> list[str]:
    return [one.node for one in mark_wrong(trials) if one.outcome is Outcome.WRONG]


def test_a_node_that_differs_from_two_that_agree_computes_wrongly() -> None:
    assert wrong(trial("a", 4.0, 3.9), trial("b", 4.0, 3.9), trial("c", 4.0, 3.8)) == ["c"]


def test_of_two_nodes_that_differ_nobody_knows_which_is_wrong() -> None:
    assert wrong(trial("a", 4.0), trial("b", 5.0)) == []
    assert wrong(trial("a", 4.0), trial("b", 5.0), trial("c", 6.0)) == []


def test_one_node_cannot_make_others_wrong_by_many_trials() -> None:
    assert wrong(*[trial("a", 9.0)] * 9, trial("b", 4.0), trial("c", 4.0)) == ["a"] * 9


@pytest.mark.parametrize(("dtype", "difference"), [("float32", 1e-4), ("float16", 1e-2), ("bfloat16", 5e-2)])
def test_rounding_is_not_wrong(dtype: str, difference: float) -> None:
    same = [trial(node, 1.0, dtype=dtype) for node in "ab"]
    assert wrong(*same, trial("c", 1.0 + difference, dtype=dtype)) == []
    assert wrong(*same, trial("c", 1.0 + 10 * difference, dtype=dtype)) == ["c"]


def test_trials_with_other_seeds_are_not_compared() -> None:
    assert wrong(trial("a", 4.0), trial("b", 4.0), trial("c", 9.0, seed=1)) == []


def on_gpu(node: str, model: str, loss: float, *facts: str) -> Trial:
    own = (f"gpu={model}", *facts) if facts else ()
    return replace(trial(node, loss), device=DeviceKind.CUDA, device_id=f"{model} {facts}", facts=own)


@pytest.mark.parametrize("facts", [(), ("device=a CPU",)], ids=["before facts were kept", "with facts"])
def test_a_gpu_of_another_model_draws_other_numbers_and_is_not_wrong(facts: tuple[str, ...]) -> None:
    same = [on_gpu(node, "H100", 4.0, *facts) for node in "ab"]
    assert wrong(*same, on_gpu("c", "A100", 9.0, *facts)) == []
    assert wrong(*same, on_gpu("c", "H100", 9.0, *facts)) == ["c"]


def test_gpus_of_one_model_are_compared_whatever_processor_is_beside_them() -> None:
    same = [on_gpu(node, "H100", 4.0, "device=a CPU") for node in "ab"]
    assert wrong(*same, on_gpu("c", "H100", 9.0, "device=another CPU")) == ["c"]


def test_cpus_of_all_models_are_compared() -> None:
    same = [trial(node, 4.0) for node in "ab"]
    assert wrong(*same, replace(trial("c", 9.0), device_id="another")) == ["c"]


@given(st.permutations(["a", "b", "c", "d"]), st.integers(0, 3), st.floats(0.5, 9.0))
def test_the_order_of_trials_does_not_matter(order: list[str], bad: int, loss: float) -> None:
    losses = dict.fromkeys("abcd", 1.0) | {"abcd"[bad]: 1.0 + loss}
    assert wrong(*(trial(node, losses[node]) for node in order)) == ["abcd"[bad]]
