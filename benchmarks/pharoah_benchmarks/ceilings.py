"""What a machine can do at most: the time of operators, by what they do and how much of it.

`python -m pharoah_benchmarks.ceilings [DEVICE]` prints it as JSON; it takes about half a minute. The device is a GPU if
there is one. Each kind of operator (`pharoah_archetypes.kinds`) is measured at several sizes with operators that are
typical of it, which make new tensors as a training step does: the time includes what the machine needs to hand out
memory.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pharoah.torch_names import TorchDispatchMode, find_operator

DTYPES = (torch.float32, torch.bfloat16)
SECONDS_PER_CASE = 0.06
ROUNDS = 5
SLOW_CALL_SECONDS = 0.25
"""A call that takes longer is timed once, and larger sizes are left out: their time grows in proportion. A processor
without instructions for bfloat16 takes seconds for products that take milliseconds with them."""
ROWS = (8, 128, 1024, 8192, 32768, 131072)
"""Rows of 128 numbers in the tensors of operators that move bytes: some fit into the cache of a core, some do not."""
Run = Callable[[], object]
Make = Callable[..., Tensor]
Operator = Callable[[], Tensor]
Curves = dict[str, dict[str, list[list[float]]]]
"""Kind of operator to dtype to pairs of work and seconds."""


class Case(NamedTuple):
    """Calls of one kind that are timed together."""

    kind: str
    work: float
    """Floating-point operations, or bytes read and written, of a call on average."""
    calls: tuple[Run, ...]


def ceilings(device: str) -> dict[str, Any]:
    """`overhead`: seconds that calling an operator takes in a training step. `curves`: for each kind and dtype pairs of
    work and seconds, in order."""
    curves: Curves = defaultdict(lambda: defaultdict(list))
    for dtype in DTYPES:
        for operators in _operators(device, dtype):
            _measure(operators, device, curves, str(dtype)[6:])
    return {"overhead": overhead(device), "curves": curves}


def _measure(operators: Iterator[Case], device: str, curves: Curves, dtype: str) -> None:
    """Add the points of cases that come in order of their size."""
    slow = False
    for case in operators:
        points = curves[case.kind][dtype]
        if slow and points:
            return
        points.append([case.work, seconds(case.calls, device)])
        slow |= points[-1][1] * len(case.calls) > SLOW_CALL_SECONDS


def seconds(calls: tuple[Run, ...], device: str) -> float:
    """Seconds of one call: the median of some rounds; of one round when that takes long."""
    _took(calls, 1, device)
    once = _took(calls, 1, device)
    if once <= SLOW_CALL_SECONDS:
        count = max(1, round(SECONDS_PER_CASE / ROUNDS / max(1e-7, once)))
        once = median(_took(calls, count, device) for _ in range(ROUNDS)) / count
    return float(f"{once / len(calls):.4g}")


def _took(calls: tuple[Run, ...], count: int, device: str) -> float:
    wait: Run = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    wait()
    began = time.perf_counter()
    for _ in range(count):
        for call in calls:
            call()
    wait()
    return time.perf_counter() - began


def cases(device: str, dtype: torch.dtype) -> Iterator[Case]:
    """All cases of one dtype on a device."""
    return chain.from_iterable(_operators(device, dtype))


def _operators(device: str, dtype: torch.dtype) -> Iterator[Iterator[Case]]:
    """The cases of each sort of operators, in order of their size."""

    def tensor(*shape: int) -> Tensor:
        return torch.rand(*shape, device=device).to(dtype)

    computing = (_products, _batch, _attention, _convolutions, _recurrent)
    return (make(tensor) for make in (*computing, _streams, _fill, _functions, _reduce, _pick))


def _products(tensor: Make) -> Iterator[Case]:
    for size in (32, 64, 128, 256, 512, 1024):
        yield Case("product", 2 * size**3, (partial(torch.mm, tensor(size, size), tensor(size, size)),))


def _batch(tensor: Make) -> Iterator[Case]:
    for count, rows, depth in ((16, 16, 16), (32, 64, 32), (64, 128, 64), (64, 256, 64)):
        call = partial(torch.bmm, tensor(count, rows, depth), tensor(count, depth, rows))
        yield Case("batched", 2 * count * rows * rows * depth, (call,))


def _attention(tensor: Make) -> Iterator[Case]:
    for batch, length in ((2, 32), (8, 64), (8, 128), (16, 256)):
        query, key, value = (tensor(batch, 4, length, 32).requires_grad_() for _ in range(3))
        product = 2 * batch * 4 * length * length * 32
        inputs = [query, key, value]
        yield from _differentiate("attention", 2 * product, 5 * product, attention(*inputs), inputs)


def attention(query: Tensor, key: Tensor, value: Tensor) -> Operator:
    """Causal attention: tensors of batch, heads, length and width."""
    return partial(F.scaled_dot_product_attention, query, key, value, is_causal=True)


def _convolutions(tensor: Make) -> Iterator[Case]:
    for batch, channels, size in ((2, 16, 16), (4, 32, 32), (8, 64, 32), (16, 128, 32)):
        parts = [tensor(batch, channels, size, size), tensor(channels, channels, 3, 3)]
        flops = 2 * parts[0].numel() * channels * 9
        call = convolution(*(part.requires_grad_() for part in parts))
        yield from _differentiate("convolution", flops, 2 * flops, call, parts)


def convolution(images: Tensor, weight: Tensor) -> Operator:
    """A convolution of 3 x 3 that keeps the size of the images."""
    return partial(F.conv2d, images, weight, padding=1)


class _Cells(nn.LSTM):
    def forward(self, sequence: Tensor) -> Any:  # type: ignore[override]
        return super().forward(sequence)[0]


def _recurrent(tensor: Make) -> Iterator[Case]:
    for batch, length, width in ((8, 32, 64), (32, 64, 192), (64, 64, 384)):
        sequence = tensor(batch, length, width).requires_grad_()
        cells = _Cells(width, width, batch_first=True).to(sequence.device, sequence.dtype)
        flops = 2 * batch * length * 8 * width * width
        inputs = [sequence, *cells.parameters()]
        yield from _differentiate("recurrent", flops, 2 * flops, partial(cells, sequence), inputs)


def _differentiate(kind: str, flops: int, backward_flops: int, call: Run, inputs: list[Tensor]) -> Iterator[Case]:
    """An operator, and its backward operator."""
    yield Case(kind, flops, (call,))
    yield Case(f"{kind}_backward", backward_flops, (_gradient(call, inputs),))


def _gradient(call: Run, inputs: list[Tensor]) -> Run:
    result: Any = call()
    return partial(torch.autograd.grad, result, inputs, torch.ones_like(result), retain_graph=True)


def _streams(tensor: Make) -> Iterator[Case]:
    for rows in ROWS:
        a, b = tensor(rows, 128), tensor(rows, 128)
        calls = (
            partial(torch.add, a, b),
            partial(torch.mul, a, 0.5),
            partial(a.lerp_, b, 0.5),
            partial(torch.clone, a.t(), memory_format=torch.contiguous_format),
        )
        yield Case("stream", (3 + 2 + 3 + 2) / 4 * a.nbytes, calls)


def _fill(tensor: Make) -> Iterator[Case]:
    for rows in ROWS:
        a, half = tensor(rows, 128), tensor(rows, 64)
        calls = (
            partial(torch.zeros_like, a),
            partial(find_operator("aten.slice_backward"), half, a.shape, 1, 0, 64, 1),
        )
        yield Case("filled", (1 + 1.5) / 2 * a.nbytes, calls)


def _functions(tensor: Make) -> Iterator[Case]:
    for rows in ROWS:
        a, b = tensor(rows, 128), tensor(rows, 128)
        calls = (
            partial(F.gelu, a),
            partial(find_operator("aten.gelu_backward"), b, a),
            partial(F.silu, a),
            partial(torch.tanh, a),
            partial(torch.softmax, a, -1),
        )
        yield Case("function", (2 + 3 + 2 + 2 + 2) / 5 * a.nbytes, calls)


def _reduce(tensor: Make) -> Iterator[Case]:
    for rows in ROWS:
        a, weight, bias = (tensor(*shape).requires_grad_() for shape in ((rows, 128), (128,), (128,)))
        call = partial(F.layer_norm, a, (128,), weight, bias)
        calls = (call, _gradient(call, [a, weight, bias]), partial(torch.sum, a.detach(), 0))
        yield Case("reduced", (2 + 3 + 1) / 3 * a.nbytes, calls)


def _pick(tensor: Make) -> Iterator[Case]:
    for rows in ROWS:
        table, gradient = tensor(4096, 128), tensor(rows, 128)
        chosen = torch.randint(4096, (rows,), device=table.device)
        calls = (
            partial(F.embedding, chosen, table),
            partial(find_operator("aten.embedding_dense_backward"), gradient, chosen, 4096, -1, False),
        )
        yield Case("picked", (2 * gradient.nbytes + gradient.nbytes + table.nbytes) / 2, calls)


class _Counted(TorchDispatchMode):
    """How many operators were called."""

    calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


def overhead(device: str) -> float:
    """Seconds that an operator takes in a training step however small it is, in the interpreter, autograd and torch."""
    layer = [nn.LayerNorm(16), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 16), nn.Dropout(0.1)]
    model = nn.Sequential(*layer, *(nn.Linear(16, 16) for _ in range(3))).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    sample = torch.ones(4, 16, device=device)

    def step() -> None:
        optimizer.zero_grad()
        model(sample).square().mean().backward()
        optimizer.step()

    step()
    with _Counted() as counted:  # type: ignore[no-untyped-call]
        step()
    return float(seconds((step,), device) / counted.calls)


if __name__ == "__main__":
    chosen = sys.argv[1] if sys.argv[1:] else "cuda" if torch.cuda.is_available() else "cpu"
    sys.stdout.write(json.dumps(ceilings(chosen)) + "\n")
