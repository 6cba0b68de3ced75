"""Fake tensors around a script: shapes without memory, until its first optimizer step.

Runs in the dry-run child only: it patches torch in ways a training process must not.
"""

from __future__ import annotations

import functools
import inspect
import os
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils import data

from pharoah.capture import recorder as capture
from pharoah.capture.notes import is_view, storage_of
from pharoah.dryrun.redirect import OnCpu, here, redirect, was_compiled
from pharoah.dryrun.values import Readable, print_unknown_sizes
from pharoah_archetypes import Fingerprint

_WORKERS = "_pharoah_workers"
"""Attribute of loaders and their iterators: how many workers the script asked for."""
_SMALL, _LARGE = 1 << 16, 1 << 24
"""Elements: real tensors up to here stay real as long as they meet no fake; the order of a dataset up to there."""


class Finished(BaseException):
    """The step is over; a BaseException so that no `except Exception` in a script keeps it."""

    def __init__(self, fingerprint: Fingerprint) -> None:
        super().__init__()
        self.fingerprint = fingerprint


@contextmanager
def fake_step(seen: Callable[[Fingerprint, bool], None], undecided: Callable[[str], None]) -> Iterator[None]:
    """Inside, tensors are fake and recorded; the end of the second step raises Finished.

    `seen` is told of the first step (not final: it begins with whatever the script did before) and of the second.
    `undecided` is told when the script asks for a value that fakes do not have, before an exception says the same.
    """
    recorder = _DryRecorder()
    window = _Window(recorder, seen, undecided)
    register_optimizer_step_pre_hook(window.begin)
    register_optimizer_step_post_hook(window.end)
    _load_data_in_this_process(recorder)
    print_unknown_sizes()
    _rebind_parameters()
    _skip_initialisation()
    warnings.simplefilter("ignore")
    fakes = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    _save_without_values(fakes)
    with fakes:
        redirect()  # fakes ask for a GPU when they begin: answer from here on
        with OnCpu(), Readable(undecided, recorder.written), recorder:
            yield


class _Window:
    """A step reaches from one step of the first optimizer to its next, as it does when a running job is captured.

    With several optimizers (adversarial training, one per parameter kind) what lies between belongs to the step.
    """

    def __init__(
        self, recorder: _DryRecorder, seen: Callable[[Fingerprint, bool], None], failed: Callable[[str], None]
    ) -> None:
        self._recorder = recorder
        self._seen = seen
        self._failed = failed
        self._first: torch.optim.Optimizer | None = None
        self._cycles = 0
        self._optimizers: list[torch.optim.Optimizer] = []

    def begin(self, *_: object) -> None:
        self._recorder.in_optimizer = True

    def end(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        self._recorder.in_optimizer = False
        if self._first is None:
            self._first = optimizer
        if all(optimizer is not known for known in self._optimizers):
            self._optimizers.append(optimizer)
        if optimizer is not self._first:
            return
        self._cycles += 1
        try:
            fingerprint = self._fingerprint()
        except ValueError as reason:
            self._failed(str(reason))  # said at once: this may be a thread, whose exceptions nobody sees
            raise
        self._seen(fingerprint, self._cycles > 1)
        if self._cycles > 1:
            raise Finished(fingerprint)
        self._recorder.records.clear()

    def _fingerprint(self) -> Fingerprint:
        if self._recorder.broken:
            raise ValueError(f"recording stopped: {self._recorder.broken}")
        return capture.fingerprint(self._recorder.records, self._optimizers, compiled=was_compiled())


class _DryRecorder(capture.Recorder):
    """Records, and keeps small real data real: what a script reads and prepares may be looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.paused = False
        self.written: dict[int, torch.Tensor] = {}
        """Real tensors that fakes were written to: what is in there now is not known. Kept, as addresses come again."""

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        stand_in = _STAND_INS.get(str(func))
        return stand_in(func, *args, **kwargs) if stand_in else func(*args, **kwargs)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.paused or func is torch.ops.prim.device.default:
            return func(*args, **(kwargs or {}))
        if FakeTensor not in types and _stays_real(func, args, kwargs or {}):
            with unset_fake_temporarily():
                return super().__torch_dispatch__(func, types, args, kwargs)
        if func is torch.ops.aten.index.Tensor:
            args = (args[0], _positions(args[1]))
        result = super().__torch_dispatch__(func, types, args, kwargs)
        for tensor in _overwritten(func, args):
            if type(tensor) is torch.Tensor:
                self.written[storage_of(tensor)] = tensor
        return result


def _overwritten(func: Any, args: Any) -> list[Any]:
    """The positional arguments that an operator writes to."""
    schema = getattr(func, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    return [value for value, a in zip(args, schema.arguments, strict=False) if a.alias_info and a.alias_info.is_write]


def _grouped_product(func: Any, left: torch.Tensor, right: torch.Tensor, *rest: Any, **options: Any) -> torch.Tensor:
    """Fakes know this product in half precision only."""
    product: torch.Tensor = func(left.bfloat16(), right.bfloat16(), *rest, **options)
    return product.to(left.dtype)


def _alignment_loss(_: Any, log_probabilities: torch.Tensor, targets: torch.Tensor, *__: Any) -> Any:
    time, batch = log_probabilities.shape[0], log_probabilities.shape[1] if log_probabilities.dim() == 3 else 1
    paths = log_probabilities.new_empty(batch, time, 2 * targets.shape[-1] + 1)
    return log_probabilities.new_empty(batch), paths


_STAND_INS: dict[str, Callable[..., Any]] = {
    "aten._grouped_mm.default": _grouped_product,
    "aten._ctc_loss.default": _alignment_loss,
    "aten._ctc_loss.Tensor": _alignment_loss,
    "aten._ctc_loss_backward.default": lambda _, __, log_probabilities, *___: torch.empty_like(log_probabilities),
    "aten._ctc_loss_backward.Tensor": lambda _, __, log_probabilities, *___: torch.empty_like(log_probabilities),
}
"""Operators that have no kernel for fakes, or one that refuses what the real kernel takes."""


def _positions(indices: list[Any]) -> list[Any]:
    """Masks whose values are known become positions, so that the number of what they pick is known as well."""
    positions: list[Any] = []
    for index in indices:
        if type(index) is torch.Tensor and index.dtype == torch.bool:
            with unset_fake_temporarily():
                positions += index.nonzero(as_tuple=True)
        else:
            positions.append(index)
    return positions


def _stays_real(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether an operator without fakes is the script's own handling of its data, and cheap."""
    inputs = [t for a in (*args, *kwargs.values()) for t in (a if isinstance(a, (list, tuple)) else (a,))]
    tensors = [tensor for tensor in inputs if isinstance(tensor, torch.Tensor)]
    if not tensors:
        return _makes_integers(func, args, kwargs)
    if any(isinstance(tensor, (FakeTensor, torch.nn.Parameter)) for tensor in tensors):
        return False
    if func is torch.ops.aten.index.Tensor:
        tensors = tensors[1:]  # picks rows of a whole dataset
    return is_view(func) or sum(max(1, tensor.numel()) for tensor in tensors) <= _SMALL


def _makes_integers(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether an operator makes a few integers out of nothing: token ids, positions, masks of ones."""
    name = func.name().partition(".")[0]
    if name in ("aten::arange", "aten::randperm"):
        return all(isinstance(limit, int) and abs(limit) <= _LARGE for limit in args)
    if name in ("aten::rand", "aten::randn") and args[0] == []:
        return True  # a throw of dice: a branch on it goes either way in the real run, too
    sizes = next((a for a in args if isinstance(a, (list, tuple))), None)
    integers = name == "aten::randint" or kwargs.get("dtype") in (torch.int64, torch.int32, torch.bool)
    return integers and sizes is not None and all(isinstance(size, int) for size in sizes) and prod(sizes) <= _SMALL


def _load_data_in_this_process(recorder: _DryRecorder) -> None:
    """Loaders without workers and with real indices: samplers draw numbers, which fakes do not have.

    What workers would compute is not recorded: in the real run it happens in other processes.
    """
    original, signature = data.DataLoader.__init__, inspect.signature(data.DataLoader.__init__)

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs).arguments
        kwargs = {**bound.pop("kwargs", {}), **bound}
        kwargs.pop("self")
        setattr(self, _WORKERS, kwargs.get("num_workers", 0))
        kwargs.update(num_workers=0, multiprocessing_context=None, prefetch_factor=None)
        kwargs.update(persistent_workers=False, pin_memory=False, timeout=0)
        original(self, **kwargs)

    def begin(self: Any) -> Any:
        with unset_fake_temporarily():
            iterator = begin_original(self)
        setattr(iterator, _WORKERS, getattr(self, _WORKERS))
        return iterator

    def advance(self: Any) -> Any:
        paused = recorder.paused
        recorder.paused = paused or getattr(self, _WORKERS, 0) > 0
        try:
            with unset_fake_temporarily():
                return advance_original(self)
        finally:
            recorder.paused = paused

    iterators = data.dataloader._BaseDataLoaderIter
    begin_original, advance_original = data.DataLoader.__iter__, iterators.__next__
    data.DataLoader.__init__ = init  # type: ignore[method-assign]
    data.DataLoader.__iter__ = begin  # type: ignore[method-assign]
    iterators.__next__ = advance  # type: ignore[method-assign]


def _save_without_values(fakes: FakeTensorMode) -> None:
    """Checkpoints of fakes hold shapes, and reading one gives fakes again; others are mapped into memory, not read."""
    _fakes.append(fakes)
    FakeTensor.__reduce_ex__ = _reduced  # type: ignore[assignment, method-assign]
    torch.serialization.add_safe_globals([_revived])
    original: Any = torch.load

    @functools.wraps(original)
    def load(file: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(file, (str, os.PathLike)) and zipfile.is_zipfile(file):
            kwargs.setdefault("mmap", True)
        with unset_fake_temporarily():
            return original(file, here(map_location), *args, **kwargs)

    torch.load = load  # type: ignore[assignment]


_fakes: list[FakeTensorMode] = []


def _reduced(self: FakeTensor, _: object) -> Any:
    parameter = isinstance(self, torch.nn.Parameter)
    return _revived, (tuple(self.shape), self.stride(), self.dtype, self.requires_grad, parameter)


def _revived(
    shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype, requires_grad: bool, parameter: bool
) -> torch.Tensor:
    with _fakes[-1]:
        tensor = torch.empty_strided(shape, stride, dtype=dtype)
        return torch.nn.Parameter(tensor, requires_grad) if parameter else tensor.requires_grad_(requires_grad)


def _skip_initialisation() -> None:
    """Initial values are values: some ways to draw them look at what was drawn.

    The functions are changed in place, since libraries keep references of their own.
    """
    for name in dir(torch.nn.init):
        if name.endswith("_") and not name.startswith("_"):
            function = getattr(torch.nn.init, name)
            function.__code__ = _as_it_is.__code__
            function.__defaults__ = function.__kwdefaults__ = None


def _as_it_is(tensor: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
    return tensor


def _rebind_parameters() -> None:
    """`model.to(...)` replaces parameters: fakes cannot be swapped in place as torch would do it."""
    # Tied weights stay tied; the old one is kept so that its id is not used again.
    moved: dict[int, tuple[torch.nn.Parameter, torch.nn.Parameter]] = {}

    def rebound(parameter: torch.nn.Parameter, change: Any) -> torch.nn.Parameter:
        if id(parameter) not in moved:
            with torch.no_grad():
                changed: torch.nn.Parameter = change(parameter)
            if changed is parameter:
                return parameter
            moved[id(parameter)] = (parameter, torch.nn.Parameter(changed, parameter.requires_grad))
        return moved[id(parameter)][1]

    def apply(self: torch.nn.Module, change: Any, recurse: bool = True) -> torch.nn.Module:
        for child in self.children() if recurse else ():
            child._apply(change)
        for name, parameter in self._parameters.items():
            if parameter is not None:
                self._parameters[name] = rebound(parameter, change)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = change(buffer)
        return self

    torch.nn.Module._apply = apply  # type: ignore[method-assign]
