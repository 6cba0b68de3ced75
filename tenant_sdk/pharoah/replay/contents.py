"""What storages hold: their numbers, and digests that show what was written past the dispatcher. It imports torch.

Triton kernels, extensions, arrays of numpy, and collectives whose schemas leave out what they write, change memory
without any sign. So a storage has digests of its content, in pieces: they are renewed where a saved operator writes,
and compared where one reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from pharoah.replay.digests import digest_of
from pharoah.torch_names import storage_number

PIECE_BYTES = 8 << 20
"""A view of a large buffer costs the digests of the pieces that it lies in, and not those of the buffer."""


class _Content(NamedTuple):
    """What a storage held after a saved operator has written it, or when it was written into the file."""

    number: int
    size: int
    """In bytes."""
    digests: dict[int, str]
    """The digests of all its pieces, by number."""


class Contents:
    """The storages of one step of which a replay knows the content."""

    def __init__(self) -> None:
        self._known: dict[int, _Content] = {}
        """By the address of the storage."""
        self._held: list[StorageWeakRef] = []
        """While these are held, no new storage gets the address of an old one."""

    def add(self, tensor: Tensor) -> int:
        """Give the storage of a tensor a new number, for what it holds now."""
        storage = tensor.untyped_storage()
        self._held.append(StorageWeakRef(storage))
        self._known[address(tensor)] = _content(len(self._held), storage)
        return len(self._held)

    def number(self, tensor: Tensor) -> int:
        """The number of a storage that is known, whatever it holds now."""
        return self._known[address(tensor)].number

    def find_unchanged(self, tensor: Tensor) -> int | None:
        """The number of a tensor's storage; None where it is not known, or something else has written this tensor."""
        known, storage = self._known.get(address(tensor)), tensor.untyped_storage()
        if known is None or known.size != storage.nbytes():
            return None
        now = _digests(storage, _pieces(tensor))
        return known.number if all(known.digests[piece] == digest for piece, digest in now.items()) else None

    def rewritten(self, tensor: Tensor) -> None:
        """A saved operator has changed this tensor, whose storage is known."""
        known, storage = self._known[address(tensor)], tensor.untyped_storage()
        if known.size == storage.nbytes():
            known.digests.update(_digests(storage, _pieces(tensor)))
        else:
            self._known[address(tensor)] = _content(known.number, storage)

    def forget(self, tensor: Tensor) -> None:
        """What the storage of a tensor holds is not known any more."""
        self._known.pop(address(tensor), None)


def address(tensor: Tensor) -> int:
    """The address of a tensor's storage, as torch knows it: it stays when the memory is resized."""
    return int(storage_number(tensor.untyped_storage()))


def content_of(storage: torch.UntypedStorage) -> Tensor:
    """All bytes of a storage."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _content(number: int, storage: torch.UntypedStorage) -> _Content:
    size = storage.nbytes()
    return _Content(number, size, _digests(storage, range(-(-size // PIECE_BYTES))))


def _digests(storage: torch.UntypedStorage, pieces: Iterable[int]) -> dict[int, str]:
    content = content_of(storage)
    return {piece: digest_of([content[piece * PIECE_BYTES : (piece + 1) * PIECE_BYTES]]) for piece in pieces}


def _pieces(tensor: Tensor) -> range:
    """The pieces of its storage that a tensor covers."""
    if not tensor.numel():
        return range(0)
    first = tensor.storage_offset()
    last = first + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    width = tensor.element_size()
    return range(first * width // PIECE_BYTES, ((last + 1) * width - 1) // PIECE_BYTES + 1)
