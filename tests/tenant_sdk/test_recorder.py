"""What a recorder leaves to torch, when it ends by itself, and what it does not read."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch.autograd.profiler import profile
from torch.nn import functional as F

from pharoah.capture import recorder as capture


class WholeLayers(torch.Tensor):
    """A tensor that knows linear layers, and nothing that they are composed of."""

    @staticmethod
    def __new__(cls: type[WholeLayers], values: torch.Tensor) -> WholeLayers:
        made: WholeLayers = torch.Tensor._make_wrapper_subclass(cls, values.shape)  # type: ignore[attr-defined]
        return made

    def __init__(self, values: torch.Tensor) -> None:
        self.values_inside = values

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.ops.aten.linear.default:
            raise NotImplementedError(str(func))
        return F.linear(args[0].values_inside, *args[1:])


WEIGHT, BIAS = torch.ones(3, 4), torch.ones(3)


def nested() -> torch.Tensor:
    return torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(5, 4)])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(
    ("inputs", "kinds"),
    [
        (nested, ["aten.linear"]),
        (lambda: WholeLayers(torch.ones(2, 4)), ["aten.linear"]),
        (lambda: torch.ones(2, 4), ["aten.t", "aten.addmm"]),
        (lambda: torch.nn.Parameter(torch.ones(2, 4)), ["aten.t", "aten.addmm"]),
    ],
    ids=["nested", "subclass", "plain", "parameter"],
)
def test_only_what_plain_tensors_compute_is_decomposed(inputs: Any, kinds: list[str]) -> None:
    recorder = capture.Recorder()
    recorder.serves = True
    with torch.inference_mode():
        values = inputs()
        expected = F.linear(values, WEIGHT, BIAS)
        with recorder:
            found = F.linear(values, WEIGHT, BIAS)
    assert [record.operator.name for record in recorder.served] == kinds
    for one, other in zip(found.unbind(), expected.unbind(), strict=True):
        assert torch.equal(one, other)


def test_a_fault_of_ours_before_an_operator_ends_the_recording_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise ValueError("no such operator")

    monkeypatch.setattr(capture, "reader", fail)
    recorder = capture.Recorder()
    with recorder:
        assert torch.add(torch.ones(1), 1).item() == 2
    assert recorder.broken == "ValueError: no such operator"


def test_many_operators_without_gradients_end_the_recording() -> None:
    recorder, values = capture.Recorder(most_aside=5), torch.ones(2, 2)
    with recorder:
        values.requires_grad_().mm(values)
        with torch.no_grad():
            for _ in range(5):
                values.sin()
            assert recorder.records and not recorder.broken
            values.sin()
    assert recorder.broken and not recorder.records


def reads(recorder: capture.Recorder, gradients: bool) -> Counter[str]:
    """What attention with a mask calls; modes do not see the reading of the mask, but torch's profiler does."""
    queries, mask = torch.ones(1, 1, 8, 8, requires_grad=True), torch.ones(8, 8).tril().bool()
    with profile() as seen, torch.set_grad_enabled(gradients), recorder:
        F.scaled_dot_product_attention(queries, queries, queries, attn_mask=mask)
    return Counter(event.name for event in seen.function_events)


@pytest.mark.parametrize("gradients", [False, True])
def test_no_mask_is_read_where_no_note_is_kept(gradients: bool) -> None:
    """Reading the values of a mask waits for its device. `tolist` calls `resolve_conj`, which attention does not."""
    recorder = capture.Recorder()
    seen = reads(recorder, gradients)
    assert (seen["aten::resolve_conj"] > 0) == gradients
    assert not recorder.broken
