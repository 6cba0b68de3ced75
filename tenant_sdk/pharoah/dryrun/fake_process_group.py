"""A fake process group for a distributed job: collectives return at once, groups and meshes have all their ranks.

One rank of a world of any size runs in one process without a network. torch's own `fake` process group stands behind
every group, whatever backend the script asks for; collectives still go through the dispatcher, where they are recorded.
Patches torch for the rest of the process; in the dry-run child only.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from pharoah.dryrun.collectives import communicate_with_fakes
from pharoah.dryrun.device_names import to_cpu
from pharoah.dryrun.pipeline_stages import receive_objects, send, send_objects
from pharoah.dryrun.strategies import patch_strategies
from pharoah.torch_names import replace, unset_fake_temporarily


class OtherRank(RuntimeError):
    """The script needs a value that only another rank could send."""


def install_fake_process_group() -> None:
    """Patch `torch.distributed`. Does nothing where torch was built without it."""
    if not torch.distributed.is_available():
        return
    from torch.distributed import device_mesh, distributed_c10d

    for name, stand_in in {**dict.fromkeys(_COMMUNICATES, _communicate), **_GROUPS, **_OBJECTS}.items():
        _replace(distributed_c10d, name, stand_in)
    _replace(device_mesh, "init_device_mesh", _with_real_tensors)
    # What torch notes about a call, such as the version of NCCL, which a build for CPUs does not have.
    replace("call_notes", lambda _: lambda name, *_, **__: {"func_name": name})
    device_mesh.DeviceMesh.__init__ = _mesh_on_cpu(device_mesh.DeviceMesh.__init__)  # type: ignore[method-assign]


def _replace(module: Any, name: str, stand_in: Callable[..., Any]) -> None:
    """Put `stand_in(original, ...)` wherever a module of `torch.distributed` has a function.

    It gets all arguments by the names that torch documents: callers, torch itself among them, give the same argument
    by its place or by its name.
    """
    original = getattr(module, name)
    signature = inspect.signature(original)

    @functools.wraps(original)
    def replace_function(*args: Any, **kwargs: Any) -> Any:
        return stand_in(original, **signature.bind(*args, **kwargs).arguments)

    for path, owner in list(sys.modules.items()):
        if path.startswith("torch.distributed") and getattr(owner, name, None) is original:
            setattr(owner, name, replace_function)


_backend = {"asked": "nccl"}


def _init_process_group(original: Any, backend: Any = None, rank: int = -1, world_size: int = -1, **_: Any) -> None:
    from torch.distributed import Backend

    from pharoah.torch_names import c10d, fake_process_group

    if fake_process_group is None or c10d is None:  # importing it registers the backend `fake`
        raise OtherRank("this torch has no process group for one rank alone, and there is no dry run without it")

    # torch compares what `get_backend` returns with `is`, so it must be the constant and not an equal string.
    _backend["asked"] = Backend(str(backend or _backend["asked"]).rpartition(":")[2])
    rank = rank if rank >= 0 else int(os.environ.get("RANK", 0))
    size = world_size if world_size > 0 else int(os.environ.get("WORLD_SIZE", 1))
    patch_strategies()
    with unset_fake_temporarily():
        original("fake", store=c10d.HashStore(), rank=rank, world_size=size)
        communicate_with_fakes()


def _new_group(original: Any, ranks: Any = None, **wanted: Any) -> Any:
    kept = {name: wanted[name] for name in ("use_local_synchronization", "group_desc", "sort_ranks") if name in wanted}
    with unset_fake_temporarily():
        return original(ranks, **kept)


def _with_real_tensors(original: Any, *args: Any, **kwargs: Any) -> Any:
    with unset_fake_temporarily():
        return original(*args, **kwargs)


class _Finished:
    """A collective that is over, beside the handle that torch gives: code that waits for its future gets the tensors,
    which no release puts into the handle of a fake one."""

    def __init__(self, handle: Any, tensors: Any) -> None:
        self._handle, self._tensors = handle, tensors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    def get_future(self) -> torch.futures.Future[Any]:
        future = torch.futures.Future[Any]()
        future.set_result(self._tensors if isinstance(self._tensors, list) else [self._tensors])
        return future


def _communicate(original: Any, **arguments: Any) -> Any:
    handle = original(**arguments)
    return None if handle is None else _Finished(handle, next(iter(arguments.values())))


_COMMUNICATES = (
    "all_reduce", "broadcast", "all_gather", "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor",
    "all_to_all", "all_to_all_single",
)  # fmt: skip
"""Functions whose first argument is what they write to."""
_GROUPS: dict[str, Callable[..., Any]] = {
    "init_process_group": _init_process_group,
    "new_group": _new_group,
    "get_backend": lambda *_, **__: _backend["asked"],
    "is_nccl_available": lambda *_, **__: True,
    "is_gloo_available": lambda *_, **__: True,
    "barrier": lambda *_, **__: None,
    "monitored_barrier": lambda *_, **__: None,
    "send": send,
    "isend": send,
}


def _mesh_on_cpu(original: Any) -> Any:
    @functools.wraps(original)
    def init(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        with unset_fake_temporarily():
            original(self, to_cpu(device_type), *args, **kwargs)

    return init


def _all_gather_object(_: Any, *, object_list: list[Any], obj: Any, **__: Any) -> None:
    object_list[:] = [obj] * len(object_list)


def _gather_object(_: Any, *, obj: Any, object_gather_list: list[Any] | None = None, **__: Any) -> None:
    if object_gather_list is not None:
        object_gather_list[:] = [obj] * len(object_gather_list)


def _broadcast_object_list(
    _: Any, *, src: int | None = None, group: Any = None, group_src: int | None = None, **__: Any
) -> None:
    if (src or group_src or 0) != torch.distributed.get_rank(group if group_src is not None else None):
        _waits("broadcast_object_list")


def _scatter_object_list(
    _: Any,
    *,
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    group: Any = None,
    **__: Any,
) -> None:
    if scatter_object_input_list is None:
        _waits("scatter_object_list")
    scatter_object_output_list[0] = scatter_object_input_list[torch.distributed.get_rank(group)]


def _send_object_list(original: Any, *, object_list: list[Any], **options: Any) -> None:
    send_objects(original, object_list, **options)


def _recv_object_list(_: Any, *, object_list: list[Any], src: int | None = None, **__: Any) -> int:
    if not receive_objects(object_list):
        _waits("recv_object_list")
    return src or 0


def _waits(name: str, *_: Any, **__: Any) -> NoReturn:
    raise OtherRank(f"{name}: this rank waits for an object of another rank, and a dry run has only one")


_OBJECTS: dict[str, Callable[..., Any]] = {
    "all_gather_object": _all_gather_object,
    "gather_object": _gather_object,
    "broadcast_object_list": _broadcast_object_list,
    "scatter_object_list": _scatter_object_list,
    "send_object_list": _send_object_list,
    "recv_object_list": _recv_object_list,
}
"""Collectives of pickled objects, as one rank sees them if all other ranks send the same."""
