"""RFC 9497, VOPRF mode, suite ristretto255-SHA512: blind, evaluate with a proof, verify, finalize.

The tenant blinds and finalizes, the provider evaluates and proves, and anybody can verify a proof. A batch shares one
proof (section 2.2): all its elements were multiplied by the key behind one public key.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from typing import NamedTuple

from pharoah_archetypes.ladder import length_prefixed
from pharoah_protocol.voprf import group, libsodium
from pharoah_protocol.voprf.group import GroupError

CONTEXT = b"OPRFV1-" + b"\x01" + b"-ristretto255-SHA512"
PROOF_BYTES = 64
_GENERATOR = bytes.fromhex("e2f2ae0a6abc4e71a884a961c500515f58e30b6aa582dd8db6a65945e08d2d76")


class ProofError(ValueError):
    """A proof that does not hold for its batch."""


class KeyPair(NamedTuple):
    """The key of a holder."""

    secret: bytes
    """A scalar."""
    public: bytes
    """The generator times the secret."""


class Blinding(NamedTuple):
    """A blinded input, and the scalar that unblinds its answer."""

    scalar: bytes
    element: bytes


class Evaluation(NamedTuple):
    """The answer of a key holder to a batch."""

    elements: list[bytes]
    """The evaluated elements, in the order of the blinded ones."""
    proof: bytes
    """PROOF_BYTES bytes, for the whole batch."""


def derive_key(seed: bytes, info: bytes) -> KeyPair:
    """DeriveKeyPair (section 3.2.1): secret scalar and public element from 32 bytes of seed."""
    if len(seed) != 32:
        raise ValueError(f"seed: {len(seed)} bytes, expected 32")
    material = seed + length_prefixed(info)
    for counter in range(256):
        secret = group.reduce(_expand(material + bytes([counter]), b"DeriveKeyPair" + CONTEXT))
        if any(secret):
            return KeyPair(secret=secret, public=group.multiply_base(secret))
    raise ValueError("seed: no key could be derived")


def blind(value: bytes, scalar: bytes | None = None) -> Blinding:
    """Blind an input. It uses a fresh random scalar unless one is given for a test."""
    scalar = group.random_scalar() if scalar is None else scalar
    return Blinding(scalar=scalar, element=group.multiply(scalar, _hash_to_group(value)))


def filler() -> bytes:
    """A random element, whose input nobody knows: it fills a batch, and looks like any blinded element."""
    return group.from_hash(secrets.token_bytes(64))


def evaluate(secret: bytes, public: bytes, blinded: Sequence[bytes], nonce: bytes | None = None) -> Evaluation:
    """BlindEvaluate of a batch and its proof (section 3.3.2). For the key holder: libsodium only, on all cores.

    `nonce` is the random scalar of the proof; only tests give it. Raises GroupError for bytes that are not an element.
    """
    group.check_scalar(secret)
    for element in blinded:
        group.check_encoding(element)
    products = libsodium.multiply_all([secret] * len(blinded), blinded)
    evaluated = [product for product in products if product is not None]
    if len(evaluated) != len(blinded):
        raise GroupError("element: not a canonical ristretto255 element, or the identity")
    weighted = libsodium.compute_weighted_sum_on_all_cores(_weights(public, blinded, evaluated), blinded)
    nonce = group.random_scalar() if nonce is None else nonce
    both = libsodium.multiply_all([secret, nonce], [weighted, weighted]) if weighted is not None else [None]
    first = libsodium.multiply_base(nonce)
    if weighted is None or None in both or first is None:
        raise GroupError("elements: they add up to the identity")
    challenge = _challenge(public, weighted, both[0] or b"", first, both[1] or b"")
    proof = challenge + libsodium.difference(nonce, libsodium.product(challenge, secret))
    return Evaluation(elements=evaluated, proof=proof)


def verify(public: bytes, blinded: Sequence[bytes], evaluated: Sequence[bytes], proof: bytes) -> None:
    """Raises ProofError unless the key behind `public` made every evaluated element from its blinded one."""
    if len(proof) != PROOF_BYTES or not blinded or len(evaluated) != len(blinded):
        raise ProofError("proof: not of the length of a proof, or for another batch size")
    challenge, response = proof[:32], proof[32:]
    try:
        for scalar in (challenge, response):
            group.check_scalar(scalar, zero=True)
        weights = _weights(public, blinded, evaluated)
        asked, answered = group.compute_weighted_sum(weights, blinded), group.compute_weighted_sum(weights, evaluated)
        second = group.compute_weighted_sum([response, challenge], [_GENERATOR, public])
        third = group.compute_weighted_sum([response, challenge], [asked, answered])
    except GroupError as error:
        raise ProofError(f"proof: {error}") from None
    if not hmac.compare_digest(challenge, _challenge(public, asked, answered, second, third)):
        raise ProofError("proof: another key than the published one evaluated this batch")


def finalize(value: bytes, scalar: bytes, evaluated: bytes) -> bytes:
    """Unblind and hash: 64 bytes that only the key holder and the owner of the input can know."""
    return _output(value, group.multiply(group.invert(scalar), evaluated))


def full_evaluate(secret: bytes, value: bytes) -> bytes:
    """The result of `finalize`, computed by the key holder for an input that it knows."""
    return _output(value, group.multiply(secret, _hash_to_group(value)))


def _weights(public: bytes, asked: Sequence[bytes], answered: Sequence[bytes]) -> list[bytes]:
    """The factors of ComputeComposites."""
    seed = hashlib.sha512(length_prefixed(public, b"Seed-" + CONTEXT)).digest()
    return [
        _hash_to_scalar(length_prefixed(seed) + at.to_bytes(2, "big") + length_prefixed(c, d) + b"Composite")
        for at, (c, d) in enumerate(zip(asked, answered, strict=True))
    ]


def _challenge(public: bytes, *elements: bytes) -> bytes:
    return _hash_to_scalar(length_prefixed(public, *elements) + b"Challenge")


def _output(value: bytes, element: bytes) -> bytes:
    return hashlib.sha512(length_prefixed(value, element) + b"Finalize").digest()


def _hash_to_group(value: bytes) -> bytes:
    return group.from_hash(_expand(value, b"HashToGroup-" + CONTEXT))


def _hash_to_scalar(value: bytes) -> bytes:
    return group.reduce(_expand(value, b"HashToScalar-" + CONTEXT))


def _expand(message: bytes, tag: bytes) -> bytes:
    """expand_message_xmd of RFC 9380 with SHA-512, for exactly one block of 64 bytes."""
    tagged = tag + bytes([len(tag)])
    b0 = hashlib.sha512(bytes(128) + message + (64).to_bytes(2, "big") + b"\x00" + tagged).digest()
    return hashlib.sha512(b0 + b"\x01" + tagged).digest()
