"""What a script calls that has no meaning without values: loaders, checkpoints, initial values, moved parameters.

Each function patches torch for the rest of the process; in the dry-run child only.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import data
from torch.utils.weak import WeakIdKeyDictionary

from pharoah.dryrun.dry_recorder import DryRecorder
from pharoah.dryrun.settings import LOADER_SETTINGS, loader_settings
from pharoah.torch_names import (
    FakeTensor,
    FakeTensorMode,
    change_tensors,
    loader_iterator,
    read_current,
    replace,
    unset_fake_temporarily,
    worker_module,
)

_WORKERS = "_pharoah_workers"
"""Attribute of loaders: how many workers the script asked for."""
_WORKER = "_pharoah_worker"
"""Attribute of loaders and their iterators: the worker that this process stands for."""


def load_data_in_this_process(recorder: DryRecorder) -> None:
    """Loaders without workers and with real indices: samplers draw numbers, which fakes do not have.

    This process stands for the first worker of each loader that has workers. What it computes as such is not recorded:
    in the real run it happens in another process.
    """
    original, signature = data.DataLoader.__init__, inspect.signature(data.DataLoader.__init__)

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        call = signature.bind(self, *args, **kwargs)
        kwargs = {**call.arguments.pop("kwargs", {}), **call.arguments}
        kwargs.pop("self")
        setattr(self, _WORKERS, kwargs.get("num_workers", 0))
        call.apply_defaults()
        setattr(self, LOADER_SETTINGS, loader_settings(call.arguments))
        kwargs.update(num_workers=0, multiprocessing_context=None, prefetch_factor=None)
        kwargs.update(persistent_workers=False, pin_memory=False, timeout=0)
        original(self, **kwargs)

    def begin(self: Any) -> Any:
        if all(self is not known for known in recorder.loaders):
            recorder.loaders.append(self)
        with unset_fake_temporarily():
            worker = _first_worker(self, recorder)
            with _as_worker(worker):
                iterator = begin_original(self)
        setattr(iterator, _WORKER, worker)
        return iterator

    def advance(self: Any) -> Any:
        worker = getattr(self, _WORKER, None)
        with unset_fake_temporarily(), _as_worker(worker), _pause_recording(recorder, worker is not None):
            return advance_original(self)

    begin_original = data.DataLoader.__iter__
    data.DataLoader.__init__ = init  # type: ignore[method-assign]
    data.DataLoader.__iter__ = begin  # type: ignore[method-assign]
    if loader_iterator is not None:
        advance_original = loader_iterator.__next__
        loader_iterator.__next__ = advance


def _first_worker(loader: Any, recorder: DryRecorder) -> Any:
    """The first worker of a loader; None where it has none.

    It is set up once. In the real run the workers of each epoch are set up, and each time they have a fresh copy of the
    dataset, which may share it out among them.
    """
    workers = getattr(loader, _WORKERS, 0)
    if not workers or hasattr(loader, _WORKER) or worker_module is None:
        return getattr(loader, _WORKER, None)
    worker = worker_module.WorkerInfo(id=0, num_workers=workers, seed=0, dataset=loader.dataset)
    setattr(loader, _WORKER, worker)
    if loader.worker_init_fn is not None:
        with _as_worker(worker), _pause_recording(recorder, True):
            loader.worker_init_fn(0)
    return worker


@contextmanager
def _as_worker(worker: Any) -> Iterator[None]:
    """Inside, `torch.utils.data.get_worker_info` returns this worker, if there is one."""
    outer = read_current("worker_info")
    replace("worker_info", lambda _: worker or outer)
    try:
        yield
    finally:
        replace("worker_info", lambda _: outer)


@contextmanager
def _pause_recording(recorder: DryRecorder, paused: bool) -> Iterator[None]:
    """Inside, operators are not recorded if `paused` says so."""
    outer, recorder.paused = recorder.paused, recorder.paused or paused
    try:
        yield
    finally:
        recorder.paused = outer


def save_without_values(fakes: FakeTensorMode) -> None:
    """Checkpoints of fakes hold shapes, and reading one gives fakes again."""
    _fakes.append(fakes)
    FakeTensor.__reduce_ex__ = _reduce  # type: ignore[assignment, method-assign]
    torch.serialization.add_safe_globals([_revive])


_fakes: list[FakeTensorMode] = []


def _reduce(self: FakeTensor, _: object) -> Any:
    parameter = isinstance(self, torch.nn.Parameter)
    return _revive, (tuple(self.shape), self.stride(), self.dtype, self.requires_grad, parameter)


def _revive(
    shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype, requires_grad: bool, parameter: bool
) -> torch.Tensor:
    with _fakes[-1]:
        tensor = torch.empty_strided(shape, stride, dtype=dtype)
        return torch.nn.Parameter(tensor, requires_grad) if parameter else tensor.requires_grad_(requires_grad)


def make_sparse_tensors(assume: Callable[[str], None]) -> None:
    """Compressed sparse tensors are made of real parts and become fakes then: torch cannot make them of fake parts."""
    for name in ("sparse_compressed_tensor", "sparse_csr_tensor", "sparse_csc_tensor"):
        setattr(torch, name, _assume_real_parts(getattr(torch, name), assume))


def _assume_real_parts(
    original: Callable[..., torch.Tensor], assume: Callable[[str], None]
) -> Callable[..., torch.Tensor]:
    @functools.wraps(original)
    def make(*parts: Any, **options: Any) -> torch.Tensor:
        if any(isinstance(part, FakeTensor) for part in (*parts, *options.values())):
            assume("the values of a sparse tensor were made up")
        with unset_fake_temporarily():
            real = [_with_values(part) for part in parts]
            named = {name: _with_values(part) for name, part in options.items()}
            made = original(*real, **{**named, "device": "cpu"})
        return _fakes[-1].from_tensor(made)

    return make


def _with_values(part: Any) -> Any:
    return torch.ones(tuple(part.shape), dtype=part.dtype) if isinstance(part, FakeTensor) else part


def follow_resizes(recorder: DryRecorder) -> None:
    """Sharded parameters give their memory back between uses, without an operator."""
    original = torch.UntypedStorage.resize_

    def resize(self: Any, *size: Any) -> Any:
        result = original(self, *size)
        recorder.ledger.resize(self)
        return result

    torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign, assignment]


def skip_initialisation() -> None:
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


def skip_guards(*modes: Any) -> None:
    """Nothing is compiled in a dry run: torch need not keep its compiler out of every call of a mode."""
    for mode in modes:
        guarded = mode.__torch_dispatch__
        if hasattr(guarded, "__wrapped__"):
            setattr(guarded.__wrapped__, "__dynamo_disable", guarded.__wrapped__)


def separate_kinds_of_parameters() -> None:
    """A fake parameter is a `Parameter`, and not one of its kinds: before torch 2.5, DDP took each for one that has no
    values yet."""
    kind = type(torch.nn.Parameter)
    original: Any = kind.__instancecheck__

    def is_instance(cls: Any, instance: object) -> bool:
        return bool((original if cls is torch.nn.Parameter else type.__instancecheck__)(cls, instance))

    kind.__instancecheck__ = is_instance  # type: ignore[method-assign]


def rebind_parameters() -> None:
    """`model.to(...)` replaces parameters: fakes cannot be swapped in place as torch would do it."""
    # Tied weights stay tied: as long as a module has the old one, it is found. Its memory must not be held any longer.
    moved: MutableMapping[torch.nn.Parameter, torch.nn.Parameter] = WeakIdKeyDictionary()

    def rebound(parameter: torch.nn.Parameter, change: Any) -> torch.nn.Parameter:
        if parameter not in moved:
            with torch.no_grad():
                changed: torch.nn.Parameter = change(parameter)
            if changed is parameter:
                return parameter
            moved[parameter] = torch.nn.Parameter(changed, parameter.requires_grad)
        return moved[parameter]

    def apply(self: torch.nn.Module, change: Any, recurse: bool = True) -> torch.nn.Module:
        for child in self.children() if recurse else ():
            change_tensors(child, change)
        for name, parameter in self._parameters.items():
            if parameter is not None:
                self._parameters[name] = rebound(parameter, change)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = change(buffer)
        return self

    replace("module_apply", lambda _: apply)
