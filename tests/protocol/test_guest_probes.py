"""Orders to sidecars and their results as bytes: one size, one encoding, and signatures that hold for one purpose."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from pharoah_protocol.guest_probes import (
    MAX_DUTY_THOUSANDTHS,
    MAX_LIMIT_MILLISECONDS,
    MAX_REPEATS,
    ORDER_BYTES,
    RESULT_BYTES,
    GuestOrder,
    GuestProbeError,
    GuestResult,
    is_signed_by_run,
)
from pharoah_protocol.tables import epoch_head
from pharoah_protocol.vocabulary import ProbeStatus

PROVIDER, RUN = (Ed25519PrivateKey.from_private_bytes(bytes([i]) * 32) for i in (1, 2))
ORDER = GuestOrder(
    order_id=b"o" * 16,
    run_id=b"r" * 16,
    challenge=b"c" * 32,
    benchmark="gemm",
    repeats=64,
    limit_milliseconds=1500,
    duty_thousandths=500,
    expires_at=1_800_000_000,
)

orders = st.builds(
    GuestOrder,
    order_id=st.binary(min_size=16, max_size=16),
    run_id=st.binary(min_size=16, max_size=16),
    challenge=st.binary(min_size=32, max_size=32),
    benchmark=st.from_regex("[a-z][a-z0-9_]{0,63}", fullmatch=True),
    repeats=st.integers(1, MAX_REPEATS),
    limit_milliseconds=st.integers(1, MAX_LIMIT_MILLISECONDS),
    duty_thousandths=st.integers(1, MAX_DUTY_THOUSANDTHS),
    expires_at=st.integers(0, (1 << 40) - 1),
)


@given(orders, st.sampled_from([*ProbeStatus]), st.lists(st.floats(allow_nan=False), max_size=MAX_REPEATS))
def test_bodies_have_one_size_and_mean_one_thing(order: GuestOrder, status: ProbeStatus, seconds: list[float]) -> None:
    result = GuestResult(order=order, status=status, seconds=tuple(seconds))
    assert len(order.encode()) == ORDER_BYTES and GuestOrder.decode(order.encode()) == order
    assert len(result.encode()) == RESULT_BYTES and GuestResult.decode(result.encode()) == result


def test_a_time_that_is_no_number_arrives_as_it_was_sent_so_that_it_can_be_rejected() -> None:
    sent = GuestResult(order=ORDER, status=ProbeStatus.MEASURED, seconds=(math.nan, -math.inf))
    first, second = GuestResult.decode(sent.encode()).seconds
    assert math.isnan(first) and second == -math.inf


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"order_id": b"short"}, "order_id"),
        ({"run_id": b""}, "run_id"),
        ({"challenge": bytes(31)}, "challenge"),
        ({"benchmark": "rm -rf"}, "benchmark"),
        ({"benchmark": "../gemm"}, "benchmark"),
        ({"benchmark": "g" * 65}, "benchmark"),
        ({"repeats": 0}, "repeats"),
        ({"repeats": MAX_REPEATS + 1}, "repeats"),
        ({"limit_milliseconds": 0}, "limit_milliseconds"),
        ({"limit_milliseconds": MAX_LIMIT_MILLISECONDS + 1}, "limit_milliseconds"),
        ({"duty_thousandths": MAX_DUTY_THOUSANDTHS + 1}, "duty_thousandths"),
        ({"expires_at": -1}, "expires_at"),
    ],
    ids=str,
)
def test_an_order_that_no_sidecar_may_do_cannot_be_written(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(GuestProbeError, match=f"order: {field}: "):
        replace(ORDER, **changes)


@given(st.integers(0, ORDER_BYTES - 1), st.integers(1, 255))
def test_no_byte_of_an_order_can_be_changed(at: int, change: int) -> None:
    body, signature = bytearray(ORDER.encode()), ORDER.make_signature(PROVIDER)
    body[at] ^= change
    with pytest.raises(GuestProbeError):
        GuestOrder.verify(bytes(body), signature, PROVIDER.public_key())


@pytest.mark.parametrize("body", [b"", b"\0" * ORDER_BYTES, ORDER.encode()[:-1], ORDER.encode() + b"\0", b"\xff" * 9])
def test_bytes_that_are_no_order_are_none_whoever_has_signed_them(body: bytes) -> None:
    with pytest.raises(GuestProbeError):
        GuestOrder.verify(body, epoch_head.sign(body, PROVIDER), PROVIDER.public_key())
    with pytest.raises(GuestProbeError):
        GuestOrder.decode(body)
    with pytest.raises(GuestProbeError):
        GuestResult.decode(body)


def test_padding_that_hides_something_is_no_padding() -> None:
    result = GuestResult(order=ORDER, status=ProbeStatus.REFUSED)
    for read, body in ((GuestOrder.decode, ORDER.encode()), (GuestResult.decode, result.encode())):
        with pytest.raises(GuestProbeError):
            read(body[:-1] + b"\x01")


def test_a_signature_holds_for_its_purpose_and_its_key_only() -> None:
    result = GuestResult(order=ORDER, status=ProbeStatus.REFUSED)
    body, signature = result.encode(), result.make_signature(RUN)
    public = RUN.public_key().public_bytes_raw()
    assert is_signed_by_run(body, signature, public)
    assert not is_signed_by_run(body, signature, PROVIDER.public_key().public_bytes_raw())
    assert not is_signed_by_run(body, RUN.sign(body), public)
    assert not is_signed_by_run(body, epoch_head.sign(body, RUN), public)
    assert not is_signed_by_run(body, signature, b"no key")
    assert GuestOrder.verify(ORDER.encode(), ORDER.make_signature(PROVIDER), PROVIDER.public_key()) == ORDER
    for forged in (ORDER.make_signature(RUN), PROVIDER.sign(ORDER.encode()), signature, b""):
        with pytest.raises(GuestProbeError, match="not signed by the provider"):
            GuestOrder.verify(ORDER.encode(), forged, PROVIDER.public_key())
