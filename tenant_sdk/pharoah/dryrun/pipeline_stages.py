"""Stages of a pipeline after the first: each is dry-run by itself, with what the stage before it has sent.

A dry run has one rank. What a stage receives as tensors needs no values, but objects do: stages agree on shapes with
them. So the dry run of a stage reports its objects, and the next stage's dry run gets them. This module is the child's
side, and decides for the parent which rank comes next.
"""

from __future__ import annotations

import base64
import pickle
from collections import deque
from typing import Any

import torch

from pharoah.dryrun.result import DryRun, NextStage

MAX_MAIL_CHARACTERS = 100_000
"""An environment variable may have 131,072 bytes on Linux."""

_sent_to: dict[int, list[Any]] = {}
"""Ranks to the objects that were sent to them."""
_received: deque[list[Any]] = deque()
_groups: list[Any] = []
"""Groups in which something was sent."""


def open_mail(text: str) -> None:
    """Take over what the stage before has sent to this one."""
    _received.extend(pickle.loads(base64.b64decode(text)))


def send(original: Any, tensor: Any, dst: int | None = None, group: Any = None, *rest: Any, **options: Any) -> Any:
    """`torch.distributed.send` or `isend`."""
    _note(dst, group, options.get("group_dst"))
    return original(tensor, dst, group, *rest, **options)


def send_objects(
    _: Any, objects: list[Any], dst: int | None = None, group: Any = None, *__: Any, **options: Any
) -> None:
    """`torch.distributed.send_object_list`."""
    _note(dst, group, options.get("group_dst")).append(list(objects))


def receive_objects(objects: list[Any]) -> bool:
    """Put the next list of objects into `objects`; false where nothing has come."""
    if not _received:
        return False
    objects[:] = _received.popleft()
    return True


def _note(dst: int | None, group: Any, group_dst: int | None) -> list[Any]:
    """The objects for the rank that something is sent to."""
    from torch import distributed

    if group_dst is not None:
        everybody: Any = distributed.group.WORLD
        dst = distributed.get_global_rank(group or everybody, group_dst)
    if all(group is not known for known in _groups):
        _groups.append(group)
    return _sent_to.setdefault(dst or 0, [])


def with_next_stage(found: DryRun) -> DryRun:
    """The result with the stage that this rank has sent to, if it has sent to a later rank."""
    distributed = torch.distributed
    if not _sent_to or not distributed.is_initialized():
        return found
    later = [rank for rank in _sent_to if rank > distributed.get_rank()]
    if not later:
        return found
    everybody: Any = distributed.group.WORLD
    last = max(distributed.get_process_group_ranks(group or everybody)[-1] for group in _groups)
    try:
        mail = base64.b64encode(pickle.dumps(_sent_to[min(later)])).decode()
    except Exception:  # noqa: BLE001 - objects of the script's own
        return found
    return found._replace(next_stage=NextStage(min(later), last, mail)) if len(mail) <= MAX_MAIL_CHARACTERS else found
