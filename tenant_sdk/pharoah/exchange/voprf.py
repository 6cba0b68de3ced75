"""RFC 9497, VOPRF mode, suite ristretto255-SHA512: blind, evaluate, finalize, and the server's own full evaluation.

Proofs of equal keys are not made yet; outputs are those of the verifiable mode, so adding them changes no row.
"""

from __future__ import annotations

import hashlib

from pharoah.exchange import group

CONTEXT = b"OPRFV1-" + b"\x01" + b"-ristretto255-SHA512"
OUTPUT_BYTES = 64


def derive_key(seed: bytes, info: bytes) -> tuple[bytes, bytes]:
    """DeriveKeyPair (section 3.2.1): secret scalar and public element from 32 bytes of seed."""
    if len(seed) != 32:
        raise ValueError(f"seed: {len(seed)} bytes, expected 32")
    material = seed + _lp(info)
    for counter in range(256):
        digest = _expand(material + bytes([counter]), b"DeriveKeyPair" + CONTEXT)
        scalar = int.from_bytes(digest, "little") % group.ORDER
        if scalar:
            secret = scalar.to_bytes(32, "little")
            return secret, group.multiply_base(secret)
    raise ValueError("seed: no key could be derived")


def blind(value: bytes, scalar: bytes | None = None) -> tuple[bytes, bytes]:
    """Blind an input: (blind scalar, blinded element). A fresh random scalar unless one is given for a test."""
    scalar = group.random_scalar() if scalar is None else scalar
    return scalar, group.multiply(scalar, _hash_to_group(value))


def evaluate(secret: bytes, blinded: bytes) -> bytes:
    """BlindEvaluate of one element. Raises GroupError for bytes that are no element."""
    return group.multiply(secret, blinded)


def finalize(value: bytes, scalar: bytes, evaluated: bytes) -> bytes:
    """Unblind and hash: 64 bytes that only the key holder and the owner of the input can know."""
    return _output(value, group.multiply(group.invert(scalar), evaluated))


def full_evaluate(secret: bytes, value: bytes) -> bytes:
    """What `finalize` gives, computed by the key holder for an input it knows."""
    return _output(value, group.multiply(secret, _hash_to_group(value)))


def _output(value: bytes, element: bytes) -> bytes:
    return hashlib.sha512(_lp(value) + _lp(element) + b"Finalize").digest()


def _hash_to_group(value: bytes) -> bytes:
    return group.from_hash(_expand(value, b"HashToGroup-" + CONTEXT))


def _expand(message: bytes, tag: bytes) -> bytes:
    """expand_message_xmd of RFC 9380 with SHA-512, for exactly one block of 64 bytes."""
    tagged = tag + bytes([len(tag)])
    b0 = hashlib.sha512(bytes(128) + message + (64).to_bytes(2, "big") + b"\x00" + tagged).digest()
    return hashlib.sha512(b0 + b"\x01" + tagged).digest()


def _lp(part: bytes) -> bytes:
    if len(part) > 0xFFFF:
        raise ValueError(f"input: {len(part)} bytes, at most 65535")
    return len(part).to_bytes(2, "big") + part
