"""Numbers of the forward pass become NaN."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pharoah_benchmarks.faults._fault import Dose, Effect, Fault, Place
from pharoah_benchmarks.micro import Resource

if TYPE_CHECKING:
    from torch import nn


class _Poison(Effect):
    """In each step from the onset on, the first layer with parameters that is called gives numbers that are none."""

    def __init__(self, place: Place) -> None:
        assert place.model is not None, "it acts inside the process of the rank"
        self._schedule, self._due = place.schedule, False
        layers = (part for part in place.model.modules() if any(True for _ in part.parameters(recurse=False)))
        self._hooks = [layer.register_forward_hook(self._spoil) for layer in layers]

    def before_step(self) -> None:
        self._due = self._schedule.share() > 0

    def _spoil(self, _: nn.Module, __: Any, answer: Any) -> Any:
        import torch

        if not self._due or not isinstance(answer, torch.Tensor) or not answer.is_floating_point():
            return answer
        self._due = False
        count = max(1, int(self._schedule.dose * self._schedule.share() * answer.numel()))
        spoilt = torch.arange(answer.numel(), device=answer.device).view(answer.shape) < count
        return answer.masked_fill(spoilt, torch.nan)

    def end(self) -> None:
        for hook in self._hooks:
            hook.remove()


FAULT = Fault(
    name="nan",
    help="in each step from the onset on, activations of the first layer become NaN, at least one; gradients and "
    "parameters follow",
    resource=Resource.COMPUTE,
    dose=Dose(unit="the share of the layer's activations", least=0.0, most=1.0, examples=(0.000001, 0.01)),
    inside=_Poison,
)
