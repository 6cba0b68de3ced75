"""Models of transformers, tiny and without weights: a data file beside this one for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pharoah_benchmarks.workloads import Workload, dtype_of

CLASSES, LETTERS = 10, 5
LIBRARY = "library"
"""The word for an attention that nobody asks for: each version of transformers chooses what it prefers."""
NEW_TOKENS = 4
"""Tokens that a model which generates adds to each request."""
LOWEST_TOKEN = 10
"""Lower ones have a special meaning."""


def _model_class(transformers: Any, name: str) -> Any:
    """The class of transformers that a workload's file names. Raises ValueError for anything else."""
    found = getattr(transformers, name) if name in transformers.__all__ else None
    if not isinstance(found, type) or not hasattr(found, "from_config"):
        raise ValueError(f"task: {name!r:.80} is no class of models that this release of transformers has")
    return found


def build(
    kind: str,
    task: str,
    config: Mapping[str, Any],
    inputs: Mapping[str, str],
    sizes: Mapping[str, Sequence[str]],
    batch: int,
    attention: str = "",
    **asked: int,
) -> Workload:
    """`kind` is the type of a configuration, `task` the class that makes the model, `config` what the configuration
    gets, and `sizes` names the attributes that a setting changes. `inputs` gives each input by what it holds, or by the
    name of another input. `asked` are settings such as `length`. Raises ImportError without transformers.
    """
    import transformers

    values = {name: asked[setting] for setting, names in sizes.items() for name in names}
    chosen = transformers.AutoConfig.for_model(kind, **{**config, **values})
    implementation = {} if attention in ("", LIBRARY) else {"attn_implementation": attention}
    model: nn.Module = _model_class(transformers, task).from_config(chosen, **implementation)
    model.train()
    vocabulary = int(getattr(chosen, "vocab_size", 0) or 0)

    def draw() -> tuple[Tensor, ...]:
        drawn: dict[str, Tensor] = {}
        for name, what in inputs.items():
            drawn[name] = drawn[what] if what in drawn else _DRAWN[what](batch, asked, chosen, vocabulary)
        return tuple(value.to(dtype_of(model)) if value.is_floating_point() else value for value in drawn.values())

    def loss(net: nn.Module, drawn: tuple[Tensor, ...]) -> Tensor:
        return net(**dict(zip(inputs, drawn, strict=True))).loss  # type: ignore[no-any-return]

    def answer(net: nn.Module, drawn: tuple[Tensor, ...]) -> Tensor:
        given = {name: value for name, value in zip(inputs, drawn, strict=True) if name != "labels"}
        if isinstance(net, transformers.GenerationMixin):
            # A text of fixed length: no token ends it. Generation that is made for one kind of model is left out.
            net.generation_config.eos_token_id = None
            lengths = {"min_new_tokens": NEW_TOKENS, "max_new_tokens": NEW_TOKENS}
            texts: Tensor = transformers.GenerationMixin.generate(
                net, **given, **lengths, do_sample=False, pad_token_id=0
            )
            return texts
        return net(**given).logits  # type: ignore[no-any-return]

    return Workload(model, draw, loss, answer=answer)


_Draw = Callable[[int, Mapping[str, int], Any, int], Tensor]
_DRAWN: dict[str, _Draw] = {
    "token": lambda batch, asked, _, words: torch.randint(LOWEST_TOKEN, words, (batch, asked["length"])),
    "letters": lambda batch, _, __, words: torch.randint(LOWEST_TOKEN, words, (batch, LETTERS)),
    "class": lambda batch, *_: torch.randint(CLASSES, (batch,)),
    "image": lambda batch, asked, *_: torch.randn(batch, 3, asked["size"], asked["size"]),
    "sound": lambda batch, asked, *_: torch.randn(batch, asked["length"]),
    "spectrum": lambda batch, asked, config, _: torch.randn(batch, config.num_mel_bins, 2 * asked["length"]),
}
"""What inputs hold, by the word in a data file."""
