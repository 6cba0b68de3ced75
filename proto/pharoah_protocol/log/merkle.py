"""Merkle trees of RFC 6962: roots, consistency proofs, and a root that grows without its leaves.

Hashes are 32 bytes of SHA-256. The empty tree hashes the empty string.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

EMPTY = hashlib.sha256(b"").digest()


class TreeError(ValueError):
    """A proof or a state that does not fit its tree."""


def leaf_hash(leaf: bytes) -> bytes:
    """The hash of one leaf (section 2.1)."""
    return hashlib.sha256(b"\x00" + leaf).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of an inner node (section 2.1)."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def root(leaves: Sequence[bytes]) -> bytes:
    """Root over the leaves' contents."""
    return root_of_hashes([leaf_hash(leaf) for leaf in leaves])


def root_of_hashes(hashes: Sequence[bytes]) -> bytes:
    """Root over hashed leaves, level by level; the last of an odd number moves up."""
    level = list(hashes)
    while len(level) > 1:
        pairs = [node_hash(a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs + ([level[-1]] if len(level) % 2 else [])
    return level[0] if level else EMPTY


def consistency_proof(hashes: Sequence[bytes], old_size: int) -> list[bytes]:
    """PROOF(old_size, hashes) of section 2.1.2. Raises TreeError for a size the tree never had."""
    if not 0 <= old_size <= len(hashes):
        raise TreeError(f"old size {old_size}: the tree has {len(hashes)} leaves")
    if old_size in (0, len(hashes)):
        return []
    return _subproof(old_size, hashes, complete=True)


def verify_consistency(old_size: int, old_root: bytes, size: int, new_root: bytes, proof: Sequence[bytes]) -> None:
    """Raises TreeError unless the tree of `size` begins with the one of `old_size` (RFC 9162, section 2.1.4.2)."""
    if old_size > size or (old_size in (0, size) and proof):
        raise TreeError("consistency: sizes and proof do not fit")
    if old_size == 0:
        return
    if old_size == size:
        if old_root != new_root:
            raise TreeError("consistency: two roots for one size")
        return
    path = list(proof)
    if old_size & (old_size - 1) == 0:
        path.insert(0, old_root)
    if not path:
        raise TreeError("consistency: the proof is empty")
    left, right = old_size - 1, size - 1
    while left & 1:
        left, right = left >> 1, right >> 1
    first = second = path[0]
    for sibling in path[1:]:
        if right == 0:
            raise TreeError("consistency: the proof is too long")
        if left & 1 or left == right:
            first, second = node_hash(sibling, first), node_hash(sibling, second)
            while left and not left & 1:
                left, right = left >> 1, right >> 1
        else:
            second = node_hash(second, sibling)
        left, right = left >> 1, right >> 1
    if right != 0 or first != old_root or second != new_root:
        raise TreeError("consistency: the new tree does not begin with the old one")


@dataclass(frozen=True)
class Frontier:
    """The part of a tree that suffices to append to it: the roots of its complete subtrees, largest first."""

    size: int = 0
    subtrees: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        if len(self.subtrees) != self.size.bit_count() or any(len(part) != 32 for part in self.subtrees):
            raise TreeError(f"frontier: {len(self.subtrees)} subtrees do not make a tree of {self.size} leaves")

    def add(self, *leaves: bytes) -> Frontier:
        """The frontier after these leaves' contents."""
        size, subtrees = self.size, list(self.subtrees)
        for leaf in leaves:
            top = leaf_hash(leaf)
            for _ in range((~size & size + 1).bit_length() - 1):
                top = node_hash(subtrees.pop(), top)
            subtrees.append(top)
            size += 1
        return Frontier(size, tuple(subtrees))

    @property
    def root(self) -> bytes:
        """The root of the whole tree."""
        if not self.subtrees:
            return EMPTY
        *rest, top = self.subtrees
        for subtree in reversed(rest):
            top = node_hash(subtree, top)
        return top


def _subproof(old_size: int, hashes: Sequence[bytes], complete: bool) -> list[bytes]:
    if old_size == len(hashes):
        return [] if complete else [root_of_hashes(hashes)]
    split = 1 << (len(hashes) - 1).bit_length() - 1
    if old_size <= split:
        return [*_subproof(old_size, hashes[:split], complete), root_of_hashes(hashes[split:])]
    return [*_subproof(old_size - split, hashes[split:], False), root_of_hashes(hashes[:split])]
