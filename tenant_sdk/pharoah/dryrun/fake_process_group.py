"""A fake process group for a distributed job: collectives return at once, groups and meshes have all their ranks.

One rank of a world of any size runs in one process without a network. torch's own `fake` process group stands behind
every group, whatever backend the script asks for; collectives still go through the dispatcher, where they are recorded.
Patches torch for the rest of the process; in the dry-run child only.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from pharoah.dryrun.pipeline_stages import receive_objects, send, send_objects
from pharoah.dryrun.redirect import to_cpu
from pharoah.dryrun.strategies import patch_strategies


class OtherRank(RuntimeError):
    """The script needs a value that only another rank could send."""


def install_fake_process_group() -> None:
    """Patch `torch.distributed`. Does nothing where torch was built without it."""
    if not torch.distributed.is_available():
        return
    from torch.distributed import device_mesh, distributed_c10d

    for name, stand_in in {**_GROUPS, **_OBJECTS}.items():
        _replace(distributed_c10d, name, stand_in)
    _replace(device_mesh, "init_device_mesh", _with_real_tensors)
    device_mesh.DeviceMesh.__init__ = _mesh_on_cpu(device_mesh.DeviceMesh.__init__)  # type: ignore[method-assign]


def _replace(module: Any, name: str, stand_in: Callable[..., Any]) -> None:
    """Put `stand_in(original, ...)` wherever a module of `torch.distributed` has a function."""
    original = getattr(module, name)
    replaced = functools.wraps(original)(functools.partial(stand_in, original))
    for path, owner in list(sys.modules.items()):
        if path.startswith("torch.distributed") and getattr(owner, name, None) is original:
            setattr(owner, name, replaced)


_backend = {"asked": "nccl"}


def _init_process_group(original: Any, backend: Any = None, *_: Any, **wanted: Any) -> None:
    from torch._C._distributed_c10d import HashStore
    from torch.testing._internal.distributed import fake_pg  # noqa: F401 - registers the backend `fake`

    _backend["asked"] = str(backend or _backend["asked"]).rpartition(":")[2]
    rank, size = (wanted.get(name, -1) for name in ("rank", "world_size"))
    rank = rank if rank >= 0 else int(os.environ.get("RANK", 0))
    size = size if size > 0 else int(os.environ.get("WORLD_SIZE", 1))
    patch_strategies()
    with unset_fake_temporarily():
        original("fake", store=HashStore(), rank=rank, world_size=size)


def _new_group(original: Any, ranks: Any = None, *_: Any, **wanted: Any) -> Any:
    kept = {name: wanted[name] for name in ("use_local_synchronization", "group_desc", "sort_ranks") if name in wanted}
    with unset_fake_temporarily():
        return original(ranks, **kept)


def _with_real_tensors(original: Any, *args: Any, **kwargs: Any) -> Any:
    with unset_fake_temporarily():
        return original(*args, **kwargs)


_GROUPS: dict[str, Callable[..., Any]] = {
    "init_process_group": _init_process_group,
    "new_group": _new_group,
    "get_backend": lambda *_: _backend["asked"],
    "is_nccl_available": lambda *_: True,
    "is_gloo_available": lambda *_: True,
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


def _all_gather_object(_: Any, received: list[Any], sent: Any, *__: Any, **___: Any) -> None:
    received[:] = [sent] * len(received)


def _gather_object(_: Any, sent: Any, received: list[Any] | None = None, *__: Any, **___: Any) -> None:
    if received is not None:
        received[:] = [sent] * len(received)


def _broadcast_object_list(_: Any, __: list[Any], src: int | None = None, *___: Any, **wanted: Any) -> None:
    if (src or wanted.get("group_src") or 0) != torch.distributed.get_rank():
        _waits("broadcast_object_list")


def _scatter_object_list(_: Any, received: list[Any], sent: list[Any] | None = None, *__: Any, **___: Any) -> None:
    if sent is None:
        _waits("scatter_object_list")
    received[0] = sent[torch.distributed.get_rank()]


def _recv_object_list(_: Any, received: list[Any], src: int | None = None, *__: Any, **___: Any) -> int:
    if not receive_objects(received):
        _waits("recv_object_list")
    return src or 0


def _waits(name: str, *_: Any, **__: Any) -> NoReturn:
    raise OtherRank(f"{name}: this rank waits for an object of another rank, and a dry run has only one")


_OBJECTS: dict[str, Callable[..., Any]] = {
    "all_gather_object": _all_gather_object,
    "gather_object": _gather_object,
    "broadcast_object_list": _broadcast_object_list,
    "scatter_object_list": _scatter_object_list,
    "send_object_list": send_objects,
    "recv_object_list": _recv_object_list,
}
"""Collectives of pickled objects, as one rank sees them if all other ranks send the same."""
