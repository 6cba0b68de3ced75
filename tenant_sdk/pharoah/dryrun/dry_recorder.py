"""The recorder of a dry run: what it records, and which tensors of a script stay real.

Runs in the dry-run child only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import prod
from typing import Any, ClassVar, Protocol

import torch

from pharoah.capture import recorder as capture
from pharoah.capture.hardware import list_simulated_gpus
from pharoah.capture.operator_notes import is_view, reader, storage_of
from pharoah.capture.recorder import is_distributed
from pharoah.dryrun.absorbing_values import decide_by_one_side
from pharoah.dryrun.ledger import AllocationLedger
from pharoah.dryrun.mask_corners import follow as follow_masks
from pharoah.dryrun.representative_sizes import RepresentativeSizes
from pharoah.dryrun.shapes import Shapes
from pharoah.torch_names import FakeTensor, find_operator, find_operators, unset_fake_temporarily
from pharoah_archetypes.operators import FORWARD, NO_GRAD

_SMALL_ELEMENTS = 1 << 16
"""A real tensor of up to this many elements stays real as long as it meets no fake one."""
_MAX_DATASET = 1 << 24
"""The order of a dataset of up to this many samples stays real."""
_DEVICE = find_operator("prim.device.default")
_INDEX = find_operator("aten.index.Tensor")
_INDEXED = find_operators("aten.index.Tensor", "aten.index_put.default", "aten.index_put_.default")
"""Operators whose second argument is a list of indices."""


class UpdatesByHand(Protocol):
    """Who is informed of writes to parameters (`pharoah.dryrun.steps_by_hand`)."""

    updating: bool

    def wrote(self, tensors: Iterable[torch.Tensor]) -> None:
        """An operator writes to these tensors."""

    def finish(self) -> None:
        """The next forward pass begins."""


class DryRecorder(capture.Recorder):
    """Records operators, and keeps small real tensors real: a script may read the values of data that it prepares."""

    _plain: ClassVar[tuple[type[torch.Tensor], ...]] = (*capture.Recorder._plain, FakeTensor)

    def __init__(self, assume: Callable[[str], None]) -> None:
        """`assume` gets a sentence for each number that was made up."""
        super().__init__()
        self._shapes = Shapes()
        self._sizes = RepresentativeSizes(assume)
        self.paused = False
        self.in_update = False
        """Whether an optimizer applies gradients."""
        self.on_stand_ins = False
        """Whether it applies them to stand-ins: that is part of the cost and not of the structure of the step."""
        self.ledger = AllocationLedger(on_gpu=bool(list_simulated_gpus()))
        self.by_hand: UpdatesByHand | None = None
        self.loaders: list[Any] = []
        """Loaders that the script has iterated over."""
        self.written: dict[int, torch.Tensor] = {}
        """Real tensors whose content is not known, because fakes were written to them. They are kept alive, since their
        addresses would be used again."""

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        result = self._shapes.call(func, args, kwargs, self._compute)
        follow_masks(func, args, result)
        return result

    def _compute(self, func: Any, args: Any, kwargs: Any) -> Any:
        if getattr(func, "namespace", "") == "profiler":  # marks of frameworks; a search for fakes in them is slow
            with unset_fake_temporarily():
                return func(*args, **kwargs)
        name = str(func)
        stand_in = _STAND_INS.get(name)
        if stand_in is None and args and isinstance(args[0], FakeTensor) and args[0].constant is None:
            stand_in = self._sizes.stand_ins.get(name)
        return stand_in(func, *args, **kwargs) if stand_in else func(*args, **kwargs)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if types and is_distributed(types):
            return NotImplemented
        if func is _DEVICE and isinstance(args[0], FakeTensor):
            return args[0].fake_device  # asked before nearly every operator
        if self.paused or func is _DEVICE:
            return func(*args, **(kwargs or {}))
        if reader(func).is_composite and self._is_decomposed(args, kwargs or {}):
            return self._decompose(func, args, kwargs or {})
        overwritten = _overwritten(func, args)
        if overwritten and self.by_hand:
            self.by_hand.wrote(_tensors(overwritten))
        if (
            self.in_update
            and not self.on_stand_ins
            and overwritten
            and overwritten[0] is args[0]
            and isinstance(args[0], FakeTensor)
        ):
            return args[0]  # in place: it changes values only
        if FakeTensor not in types and _stays_real(func, args, kwargs or {}):
            with unset_fake_temporarily():
                result = self._prepare(func, types, args, kwargs)
            if self.written:
                self._follow_written(args, result)
            return result
        if (decided := decide_by_one_side(func, args)) is not None:
            return decided
        if func in _INDEXED:
            args = (args[0], self._positions(args[1]), *args[2:])
        result = self._record_call(func, types, args, kwargs)
        for tensor in overwritten:
            if type(tensor) is torch.Tensor:
                self.written[storage_of(tensor)] = tensor
        return result

    def _positions(self, indices: list[Any]) -> list[Any]:
        """Turn masks into positions, so that the number of selected elements is known as well."""
        positions: list[Any] = []
        for index in indices:
            if not isinstance(index, torch.Tensor) or index.dtype not in (torch.bool, torch.uint8):
                positions.append(index)
            elif type(index) is torch.Tensor:
                with unset_fake_temporarily():
                    positions += index.nonzero(as_tuple=True)
            else:
                positions += self._sizes.positions(index)
        return positions

    def _prepare(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """An operator that prepares data. Without gradients it is no part of a step: its result is new memory."""
        if self.serves or self._phase() != NO_GRAD or reader(func).communicates:
            return self._record_call(func, types, args, kwargs)
        result = func(*args, **(kwargs or {}))
        self._aside.update(map(storage_of, _real_tensors((result,))))
        return result

    def _follow_written(self, args: Any, result: Any) -> None:
        """What is computed from unknown content is unknown as well."""
        if any(storage_of(tensor) in self.written for tensor in _real_tensors(args)):
            self.written.update({storage_of(tensor): tensor for tensor in _real_tensors((result,))})

    def _record(self, *call: Any) -> None:
        if not self.on_stand_ins:
            super()._record(*call)

    def _record_call(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if self.by_hand and self.by_hand.updating and reader(func).operator_class and self._phase() == FORWARD:
            self.by_hand.finish()
        result = super().__torch_dispatch__(func, types, args, kwargs)
        self.ledger.record(reader(func), self._phase(), func, args, kwargs or {}, result)
        return result


def _tensors(arguments: Any) -> Iterator[torch.Tensor]:
    """Tensors among arguments, and in lists of them."""
    for argument in arguments:
        for tensor in argument if isinstance(argument, (list, tuple)) else (argument,):
            if isinstance(tensor, torch.Tensor):
                yield tensor


def _real_tensors(arguments: Any) -> Iterator[torch.Tensor]:
    """Plain tensors among arguments, and in lists of them."""
    return (tensor for tensor in _tensors(arguments) if type(tensor) is torch.Tensor)


def _overwritten(func: Any, args: Any) -> list[Any]:
    """The positional arguments that an operator writes to."""
    return [args[at] for at in reader(func).changes if at < len(args)]


def _multiply_grouped(func: Any, left: torch.Tensor, right: torch.Tensor, *rest: Any, **options: Any) -> torch.Tensor:
    """Fake tensors support this product in bfloat16 only."""
    product: torch.Tensor = func(left.bfloat16(), right.bfloat16(), *rest, **options)
    return product.to(left.dtype)


def _recurrent_layer(func: Any, sequence: torch.Tensor, *rest: Any, **options: Any) -> Any:
    """Add what fake tensors leave out: the memory that oneDNN keeps for the backward pass, for each output element."""
    output, hidden, cell, _ = func(sequence, *rest, **options)
    size = output.numel() * (18 + 11 * output.element_size()) if options.get("train", rest[-1]) else 0
    kept = sequence.new_empty(size, dtype=torch.uint8)
    return output, hidden, cell, kept


def _alignment_loss(_: Any, log_probabilities: torch.Tensor, targets: torch.Tensor, *__: Any) -> Any:
    time, batch = log_probabilities.shape[0], log_probabilities.shape[1] if log_probabilities.dim() == 3 else 1
    paths = log_probabilities.new_empty(batch, time, 2 * targets.shape[-1] + 1)
    return log_probabilities.new_empty(batch), paths


_STAND_INS: dict[str, Callable[..., Any]] = {
    "aten._grouped_mm.default": _multiply_grouped,
    "aten.mkldnn_rnn_layer.default": _recurrent_layer,
    "aten._ctc_loss.default": _alignment_loss,
    "aten._ctc_loss.Tensor": _alignment_loss,
    "aten._ctc_loss_backward.default": lambda _, __, log_probabilities, *___: torch.empty_like(log_probabilities),
    "aten._ctc_loss_backward.Tensor": lambda _, __, log_probabilities, *___: torch.empty_like(log_probabilities),
}
"""Operators whose kernel for fake tensors is missing, refuses these arguments or allocates less than the real one."""


def _stays_real(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether an operator on real tensors prepares data of the script and is cheap."""
    inputs = [t for a in (*args, *kwargs.values()) for t in (a if isinstance(a, (list, tuple)) else (a,))]
    tensors = [tensor for tensor in inputs if isinstance(tensor, torch.Tensor)]
    if not tensors:
        return _makes_constants(func, args, kwargs)
    if any(isinstance(tensor, (FakeTensor, torch.nn.Parameter)) for tensor in tensors):
        return False
    if func is _INDEX:
        tensors = tensors[1:]  # it selects rows of a whole dataset
    return is_view(func) or sum(max(1, tensor.numel()) for tensor in tensors) <= _SMALL_ELEMENTS


def _makes_constants(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether an operator without tensor arguments makes a few constants: token ids, positions, masks, rates."""
    name = func.name().partition(".")[0]
    if name in ("aten::arange", "aten::randperm"):
        return all(isinstance(limit, int) and abs(limit) <= _MAX_DATASET for limit in args)
    if name in ("aten::linspace", "aten::logspace"):
        return isinstance(args[2], int) and args[2] <= _SMALL_ELEMENTS  # rates of layers, schedules
    if name in ("aten::rand", "aten::randn") and args[0] == []:
        return True  # a random scalar: in the real run, too, a branch on it may go either way
    sizes = next((a for a in args if isinstance(a, (list, tuple))), None)
    integers = name == "aten::randint" or kwargs.get("dtype") in (torch.int64, torch.int32, torch.bool)
    if not integers or sizes is None or not all(isinstance(size, int) for size in sizes):
        return False
    return prod(sizes) <= _SMALL_ELEMENTS
