"""Limits as causes: a failure that names a limit says nothing about nodes where that limit is looser.

A cell that ran out of memory, of shared memory, of descriptors or of time has shown how much the job needs, and not
what is wrong with a processor. So a row about such a failure speaks only on nodes whose limit is at least as tight as
the one in its evidence (`reach` and `limit_rows`, docs/adr/0070). A node that states no limit counts as having none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType

from pharoah_protocol.vocabulary import DeviceKind, Outcome


class Limit(StrEnum):
    """What a node can have too little of."""

    MEMORY = "memory"
    SHARED_MEMORY = "shared memory"
    FILE_SIZE = "file size"
    DESCRIPTORS = "descriptors"
    PROCESSES = "processes"
    DISK = "disk"
    CORES = "cores"
    """Time is a limit of cores: with more of them the same work ends earlier."""


LIMIT_FACTS: Mapping[Limit, str] = MappingProxyType(
    {
        Limit.MEMORY: "memory_limit",
        Limit.SHARED_MEMORY: "shared_memory_limit",
        Limit.FILE_SIZE: "file_size_limit",
        Limit.DESCRIPTORS: "descriptor_limit",
        Limit.PROCESSES: "process_limit",
        Limit.DISK: "disk_limit",
        Limit.CORES: "cpus",
    }
)
"""The fact that states how much a node has. Agents read memory and cores; an operator may give others (`--fact`)."""

_SIGNALS = {"-9": Limit.MEMORY, "-7": Limit.SHARED_MEMORY, "-25": Limit.FILE_SIZE, "-24": Limit.CORES}
"""The signals by which the kernel ends a process at a limit (signal(7)): SIGKILL of the killer of processes when memory
is short, SIGBUS of a page of /dev/shm that cannot be had, SIGXFSZ, SIGXCPU."""
_EXIT_STATUS = re.compile(r"exit status (-\d+)\b")
_WORDS: tuple[tuple[Limit, re.Pattern[str]], ...] = tuple(
    (limit, re.compile(words, re.IGNORECASE))
    for limit, words in (
        (Limit.SHARED_MEMORY, r"bus error|shared memory|/dev/shm|\bshm\b"),
        (Limit.FILE_SIZE, r"file too large|file size limit|\bEFBIG\b|errno 27\b"),
        (Limit.DESCRIPTORS, r"too many open files|\bEMFILE\b|\bENFILE\b|errno 2[34]\b"),
        (Limit.PROCESSES, r"can't start new thread|resource temporarily unavailable|pthread_create|errno 11\b"),
        (Limit.DISK, r"no space left|disk quota|\bENOSPC\b|\bEDQUOT\b|errno (28|122)\b"),
        (Limit.CORES, r"cpu time limit"),
        (Limit.MEMORY, r"out of memory|cannot allocate|memoryerror|bad_alloc|can't allocate|\bENOMEM\b|oom-kill"),
    )
)
"""What libraries and the kernel write when a limit is met (errno(3), strerror(3)). The first that fits counts: shared
memory and disks are also said to be out of space or of memory."""
_DEVICE_MEMORY = re.compile(r"\bCUDA\b|\bHIP\b|cublas|cudnn|ALLOC_FAILED", re.IGNORECASE)
"""Memory of a GPU belongs to its model, which a context and a device model name."""


def limit_named(outcome: Outcome, detail: str, device: DeviceKind) -> Limit | None:
    """The limit that a failure names, by how it ended and by its error; None for a failure that names none.

    `device`: what the cell ran on. Without an error, memory is that of the device.
    """
    if outcome is Outcome.OK:
        return None
    if outcome is Outcome.MEMORY and (_DEVICE_MEMORY.search(detail) or not detail) and device is not DeviceKind.CPU:
        return None
    if status := _EXIT_STATUS.search(detail):
        return _SIGNALS.get(status[1])
    named = next((limit for limit, words in _WORDS if words.search(detail)), None)
    if named or outcome not in (Outcome.MEMORY, Outcome.TIMEOUT, Outcome.SLOW):
        return named
    if outcome is Outcome.MEMORY:
        return Limit.MEMORY
    return Limit.CORES if device is DeviceKind.CPU else None


def amount_of(limit: Limit, facts: Iterable[str]) -> int | None:
    """How much a node with these facts (`name=value`) has, in the unit of the fact; None where it states no limit."""
    prefix = f"{LIMIT_FACTS[limit]}="
    value = next((fact.removeprefix(prefix) for fact in facts if fact.startswith(prefix)), "")
    return (int(value) or None) if value.isdecimal() else None
