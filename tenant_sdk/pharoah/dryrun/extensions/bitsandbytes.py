"""bitsandbytes: optimizers with states of 8 bits, and quantised layers.

https://huggingface.co/docs/bitsandbytes
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pharoah.dryrun.extensions._extension import Extension

_TWO_STATES = ("Adam", "AdamW", "LAMB", "AdEMAMix")
_ONE_STATE = ("SGD", "RMSprop", "Adagrad", "Lion", "LARS")


def _modules() -> Mapping[str, Mapping[str, Any]]:
    import torch
    from torch import nn

    class WithStates(torch.optim.Optimizer):
        """Updates parameters with states of one byte, or of four, for each of their elements."""

        states, dtype = 2, torch.float32

        def __init__(self, params: Any, lr: float = 1e-3, *_: Any, **options: Any) -> None:
            super().__init__(params, {"lr": lr, "weight_decay": options.get("weight_decay", 0.0)})

        @torch.no_grad()
        def step(self, closure: Callable[[], Any] | None = None) -> Any:
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is None:
                        continue
                    for number in range(self.states):
                        if f"state{number}" not in self.state[parameter]:
                            self.state[parameter][f"state{number}"] = torch.zeros_like(parameter, dtype=self.dtype)
                    parameter.add_(parameter.grad, alpha=-group["lr"])
            return loss

    def optimizers() -> dict[str, type]:
        made: dict[str, type] = {}
        for count, families in ((2, _TWO_STATES), (1, _ONE_STATE)):
            for family in families:
                for paged in ("", "Paged"):
                    for bits, dtype in (("", torch.float32), ("8bit", torch.uint8), ("32bit", torch.float32)):
                        name = f"{paged}{family}{bits}"
                        made[name] = type(name, (WithStates,), {"states": count, "dtype": dtype})
        return made

    class Linear(nn.Linear):
        """A layer whose weights are quantised when they are moved to a GPU."""

        def __init__(self, input_features: int, output_features: int, bias: bool = True, *_: Any, **__: Any) -> None:
            super().__init__(input_features, output_features, bias)

    layers = {
        **dict.fromkeys(("Linear8bitLt", "Linear4bit", "LinearNF4", "LinearFP4"), Linear),
        **dict.fromkeys(("Embedding", "StableEmbedding"), nn.Embedding),
    }
    return {"bitsandbytes": {}, "bitsandbytes.optim": optimizers(), "bitsandbytes.nn": layers}


EXTENSION = Extension(
    name="bitsandbytes",
    help="optimizers with states of 8 bits, and quantised layers",
    distribution="bitsandbytes",
    version="0.49.0",
    modules=_modules,
)
