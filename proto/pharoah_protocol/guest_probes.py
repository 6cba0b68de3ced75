"""Guest probes: micro-benchmarks that the provider orders from the sidecar of a run, and what comes of them.

Both are canonical bytes that begin with the name of their kind. The provider signs an order with the key that tenants
pin, the sidecar its result with a key of the run. Bodies of one kind have one size, so that nothing shows in it.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from pharoah_archetypes.ladder import length_prefixed, parts
from pharoah_protocol.encoding import read_u64, u64
from pharoah_protocol.tables import epoch_head
from pharoah_protocol.vocabulary import ProbeStatus

ORDER_BYTES, RESULT_BYTES = 256, 1024
"""Sizes of the bodies. A name of 64 characters and 64 repeats fit."""
ID_BYTES, CHALLENGE_BYTES, KEY_BYTES = 16, 32, 32
MAX_NAME_LENGTH, MAX_REPEATS = 64, 64
"""Characters of the name of a micro-benchmark, and how often it is repeated."""
MAX_LIMIT_MILLISECONDS = 60_000
"""Repeats of one order together: the longest benchmark of the registry works for 4 s."""
MAX_DUTY_THOUSANDTHS = 500
"""A micro-benchmark that a sidecar runs sleeps for at least half of the time."""
MAX_LIFE_SECONDS = 900
"""An order that is good for longer than this is not a sound one: the whole of it takes minutes at most."""
_ORDER, _RESULT = b"pharoah/probe-order/v1", b"pharoah/probe-result/v1"
_RESULT_DOMAIN = b"pharoah/run-key/v1\n"
"""What a run signs cannot pass for something that a provider or an agent signs."""
_NAME = re.compile(f"[a-z][a-z0-9_]{{0,{MAX_NAME_LENGTH - 1}}}")
_THOUSAND = 1000


class GuestProbeError(ValueError):
    """Bytes that are no order or no result, or that somebody else has signed."""


@dataclass(frozen=True, kw_only=True)
class GuestOrder:
    """One micro-benchmark, for one run, once. The constructor raises GuestProbeError that names the field."""

    order_id: bytes
    run_id: bytes
    challenge: bytes
    """Random; the result repeats it."""
    benchmark: str
    repeats: int
    limit_milliseconds: int
    """Work of all repeats together, without the time between them in which the benchmark sleeps."""
    duty_thousandths: int
    """Share of the time in which it may work: 250 is a quarter."""
    expires_at: int
    """Unix seconds."""

    def __post_init__(self) -> None:
        sound = {
            "order_id": len(self.order_id) == ID_BYTES,
            "run_id": len(self.run_id) == ID_BYTES,
            "challenge": len(self.challenge) == CHALLENGE_BYTES,
            "benchmark": bool(_NAME.fullmatch(self.benchmark)),
            "repeats": 1 <= self.repeats <= MAX_REPEATS,
            "limit_milliseconds": 1 <= self.limit_milliseconds <= MAX_LIMIT_MILLISECONDS,
            "duty_thousandths": 1 <= self.duty_thousandths <= MAX_DUTY_THOUSANDTHS,
            "expires_at": 0 <= self.expires_at < 1 << 40,
        }
        for field, is_sound in sound.items():
            if not is_sound:
                raise GuestProbeError(f"order: {field}: {getattr(self, field)!r} is not possible")

    @property
    def limit_seconds(self) -> float:
        """Work of all repeats together."""
        return self.limit_milliseconds / _THOUSAND

    @property
    def duty(self) -> float:
        """Share of the time in which the benchmark may work."""
        return self.duty_thousandths / _THOUSAND

    @property
    def longest_seconds(self) -> float:
        """How long the repeats may take, with the sleep between them."""
        return self.limit_seconds / self.duty

    def encode(self) -> bytes:
        """The body, always of the same size."""
        numbers = (self.repeats, self.limit_milliseconds, self.duty_thousandths, self.expires_at)
        fields = [self.order_id, self.run_id, self.challenge, self.benchmark.encode(), *map(u64, numbers)]
        return _pad(ORDER_BYTES, _ORDER, *fields)

    @classmethod
    def decode(cls, body: bytes) -> GuestOrder:
        """Raises GuestProbeError unless `body` is exactly what `encode` gives."""
        try:
            _, order_id, run_id, challenge, benchmark, repeats, limit, duty, expires_at, _ = parts(body)
            order = cls(
                order_id=order_id,
                run_id=run_id,
                challenge=challenge,
                benchmark=benchmark.decode("ascii"),
                repeats=read_u64(repeats),
                limit_milliseconds=read_u64(limit),
                duty_thousandths=read_u64(duty),
                expires_at=read_u64(expires_at),
            )
        except ValueError as error:
            raise GuestProbeError(f"order: malformed ({error})") from None
        if order.encode() != body:
            raise GuestProbeError("order: malformed")
        return order

    def make_signature(self, key: Ed25519PrivateKey) -> bytes:
        """The signature of the provider over the body."""
        return epoch_head.sign(self.encode(), key)

    @classmethod
    def verify(cls, body: bytes, signature: bytes, key: Ed25519PublicKey) -> GuestOrder:
        """The order, once the provider's signature is verified. Raises GuestProbeError."""
        if len(body) != ORDER_BYTES or not epoch_head.is_signed(body, signature, key):
            raise GuestProbeError("order: not signed by the provider key that this machine trusts")
        return cls.decode(body)


@dataclass(frozen=True, kw_only=True)
class GuestResult:
    """What came of an order. Numbers are as they were sent: whoever reads them must check that they are possible."""

    order: GuestOrder
    """The whole order, as it was received."""
    status: ProbeStatus
    seconds: tuple[float, ...] = ()
    """The time of each repeat; empty unless the benchmark ran."""

    def encode(self) -> bytes:
        """The body, always of the same size. Raises GuestProbeError for more repeats than an order can have."""
        if len(self.seconds) > MAX_REPEATS:
            raise GuestProbeError(f"result: seconds: {len(self.seconds)} values, at most {MAX_REPEATS}")
        numbers = struct.pack(f">{len(self.seconds)}d", *self.seconds)
        return _pad(RESULT_BYTES, _RESULT, self.order.encode(), bytes([self.status.code]), numbers)

    @classmethod
    def decode(cls, body: bytes) -> GuestResult:
        """Raises GuestProbeError unless `body` is exactly what `encode` gives."""
        if len(body) != RESULT_BYTES:
            raise GuestProbeError("result: malformed")
        try:
            _, order, status, numbers, _ = parts(body)
            (code,) = status
            seconds = struct.unpack(f">{len(numbers) // 8}d", numbers)
            result = cls(order=GuestOrder.decode(order), status=ProbeStatus.from_code(code), seconds=seconds)
        except (ValueError, struct.error) as error:
            raise GuestProbeError(f"result: malformed ({error})") from None
        if result.encode() != body:
            raise GuestProbeError("result: malformed")
        return result

    def make_signature(self, key: Ed25519PrivateKey) -> bytes:
        """The signature of the run over the body."""
        return key.sign(_RESULT_DOMAIN + self.encode())


def is_signed_by_run(body: bytes, signature: bytes, key: bytes) -> bool:
    """Whether the run with this public key has signed the body of a result."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, _RESULT_DOMAIN + body)
    except (InvalidSignature, ValueError):
        return False
    return True


def _pad(size: int, *fields: bytes) -> bytes:
    """The fields and zeros, each after its length, `size` bytes together."""
    content = length_prefixed(*fields)
    return content + length_prefixed(bytes(size - len(content) - 2))
