"""Digests of what operators compute, and what their bits depend on. It imports torch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from pharoah.capture import hardware
from pharoah.replay.step_file import NodeClass, Switches

_DIGEST_BYTES = 8
"""Two of a million operators have the same digest by accident once in 10**7 steps."""


def digest_of(results: Iterable[Tensor]) -> str:
    """The digest of the bits of some tensors."""
    found = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for tensor in results:
        if tensor.numel():
            flat = tensor.detach().contiguous().view(-1)
            found.update(flat.view(torch.uint8).cpu().numpy().data)
    return found.hexdigest()


def node_class(on_gpu: bool) -> NodeClass:
    """That of this node, for a step that uses a GPU or does not."""
    cpu = f"{hardware.cpu_field('model name')} {torch.backends.cpu.get_cpu_capability()}".strip()
    gpu = f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}" if on_gpu else ""
    return NodeClass(torch.__version__, cpu, gpu)


def switches() -> Switches:
    """As they are now."""
    return Switches(
        torch.get_num_threads(), torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled()
    )


@contextmanager
def switched(wanted: Switches) -> Iterator[None]:
    """Inside, they are as wanted."""
    before = switches()
    _switch(wanted)
    try:
        yield
    finally:
        _switch(before)


def _switch(to: Switches) -> None:
    torch.set_num_threads(to.threads)
    torch.set_float32_matmul_precision(to.matmul_precision)
    torch.use_deterministic_algorithms(to.deterministic, warn_only=True)
