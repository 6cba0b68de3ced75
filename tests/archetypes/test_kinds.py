from __future__ import annotations

import pytest

from pharoah_archetypes.kinds import NONE, computing, kind_of, kinds
from pharoah_archetypes.vocabulary import vocabulary


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        ("aten.mm", "product"),
        ("aten.bmm", "batched"),
        ("aten.convolution_backward", "convolution_backward"),
        ("aten._scaled_dot_product_flash_attention_for_cpu_backward", "attention_backward"),
        ("aten._scaled_dot_product_efficient_attention", "attention"),
        ("aten.mkldnn_rnn_layer", "recurrent"),
        ("aten._cudnn_rnn_backward", "recurrent_backward"),
        ("aten._safe_softmax", "function"),
        ("aten.native_layer_norm_backward", "reduced"),
        ("aten.embedding_dense_backward", "picked"),
        ("aten.zeros_like", "filled"),
        ("aten.view", NONE),
        ("aten.never_heard_of", "stream"),
    ],
)
def test_operators_have_kinds(operator: str, kind: str) -> None:
    assert kind_of(operator) == kind


def test_what_computes_in_a_skeleton_computes_here_too() -> None:
    structural = vocabulary().compute
    names = [name for name, found in vocabulary().classes.items() if found in structural]
    assert {kind_of(name) for name in names if name.startswith("aten.")} <= computing()
    assert computing() < set(kinds())
