"""Gives a forked dry run copies of the memory that its job shares with other processes: it changes nothing of theirs.

A fork copies what belongs to one process only. Tensors after `share_memory_()`, `numpy.memmap` with the mode `r+`, and
the values and locks of `multiprocessing` stay shared: the step would change them for the job. A dry run also ends by
SIGKILL, and a lock that it holds then would stay acquired for ever.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pharoah._errors import UnknownReason

_MAX_SHARE = 0.5
"""The copies may take this share of the memory that can still be had: the rest is for the job."""
_PIECE_BYTES = 1 << 24
"""How much is copied at once: one array of this size is made for each piece."""
_FILES_OF_THE_KERNEL = ("/dev/", "/proc/", "/sys/")
_PLACES_OF_MEMORY = ("/dev/shm/", "/dev/hugepages/", "/dev/zero")
"""Files in `/dev` that are plain memory. The kernel names shared memory without a file `/dev/zero (deleted)`."""
_MAY_MOVE, _FIXED = 1, 2
"""MREMAP_MAYMOVE and MREMAP_FIXED of mremap(2) (linux/mman.h)."""
_FAILED = ctypes.c_void_p(-1).value
"""MAP_FAILED of mmap(2)."""
_copied: list[int] = []
"""Bytes of each mapping that was replaced in this process."""


class Mapping(NamedTuple):
    """One line of /proc/self/maps (proc_pid_maps(5))."""

    address: int
    size: int
    """Bytes."""
    permissions: str
    """As in `rw-s`, where the last character stands for shared or private."""
    file: str
    """Device and number of the file: two mappings of one file have the same."""
    path: str

    @property
    def is_shared_memory(self) -> bool:
        """Whether it can be written to, others see that, and it is no device."""
        if not (self.permissions.startswith("rw") and self.permissions.endswith("s")):
            return False
        if self.path.startswith(_FILES_OF_THE_KERNEL):
            return self.path.startswith(_PLACES_OF_MEMORY)
        return self.path.startswith("/") or not self.path  # not `anon_inode:[io_uring]`


def copy_shared_memory() -> None:
    """Replace shared memory that can be written to by private memory with the same content, at the same addresses.

    Call it in a process with one thread. Raises UnknownReason when there is too much of it, or it cannot be copied.
    """
    shared = select_shared_memory(list(_mappings()))
    if not shared:
        return
    size, free = sum(mapping.size for mapping in shared), _available_bytes()
    if size > _MAX_SHARE * free:
        raise UnknownReason(
            f"the job shares {_gib(size)} of memory with other processes or files, and a dry run of its step needs a "
            f"copy of it; {_gib(free)} are free"
        )
    try:
        with Path("/proc/self/mem").open("rb", buffering=0) as memory:
            for mapping in shared:
                _replace(mapping, memory.fileno())
                _copied.append(mapping.size)
    except OSError as error:
        raise UnknownReason(f"the memory that the job shares with others cannot be copied: {error}") from None


def count_copied_bytes() -> int:
    """How much of the data of this process are copies. In the real run shared memory is no data of a process."""
    return sum(_copied)


def select_shared_memory(mappings: list[Mapping]) -> list[Mapping]:
    """The mappings to copy. Memory of generated code, as libffi makes it, stays: it has a second mapping that is
    executed, and both must be the same memory."""
    code = {one.file for one in mappings if one.permissions.endswith("xs")}
    return [one for one in mappings if one.is_shared_memory and one.file not in code]


def _mappings() -> Iterator[Mapping]:
    for line in Path("/proc/self/maps").read_bytes().splitlines():
        place, permissions, _, device, number, *path = os.fsdecode(line).split(maxsplit=5)
        first, _, end = place.partition("-")
        address = int(first, 16)
        yield Mapping(address, int(end, 16) - address, permissions, f"{device} {number}", "".join(path))


def _available_bytes() -> int:
    """What this process can still get: of the machine, and of its control groups."""
    from pharoah.local_alerts._readings import read_machine  # here: few jobs share memory

    machine = read_machine(os.getpid(), ())
    known = (machine.available_bytes, machine.group_free_bytes)
    return min((one for one in known if one is not None), default=0)


def _replace(mapping: Mapping, memory: int) -> None:
    """Put a copy in the place of a mapping, in one step. `memory` is /proc/self/mem. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
    size, protection = ctypes.c_size_t(mapping.size), mmap.PROT_READ | mmap.PROT_WRITE
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    copy = _check(libc.mmap(None, size, protection, flags, -1, ctypes.c_long(0)))
    _copy(mapping, copy, memory)
    place = ctypes.c_void_p(mapping.address)
    _check(libc.mremap(ctypes.c_void_p(copy), size, size, _MAY_MOVE | _FIXED, place))


def _copy(mapping: Mapping, to: int, memory: int) -> None:
    """Read what is mapped. Through /proc, a page that a file does not have any more is EIO, and not SIGBUS."""
    done = 0
    while done < mapping.size:
        piece = (ctypes.c_char * min(_PIECE_BYTES, mapping.size - done)).from_address(to + done)
        try:
            done += os.preadv(memory, [piece], mapping.address + done)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            done += mmap.PAGESIZE  # it stays zero


def _check(address: int | None) -> int:
    if address is None or address == _FAILED:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return address


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
