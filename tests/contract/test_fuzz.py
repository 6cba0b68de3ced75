"""Bytes nobody meant: sent to every method of a live provider, and answered to a tenant. The corpus holds what such
bytes grow from, and what was once a problem (tests/data/corpus, one file per message, `METHOD-what`)."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from pharoah.sidecar.log_client import LogClient, VerificationError
from pharoah_protocol.rpc import path
from pharoah_protocol.tables.epoch_head import HeadError
from pharoah_protocol.tables.misbehaviour import InvalidEvidenceError, prove
from pharoah_protocol.v1 import services
from tests.harness.exchange import RELEASE, on_loopback
from tests.harness.loopback import Loopback, bearer

CORPUS = Path(__file__).parents[1] / "data" / "corpus"
ROUNDS = 40
FINE = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
METHODS = {
    method.name: (method, {"Agent": "n1", "Operator": "ops"}.get(service.name, "acme"))
    for service in services()
    for method in service.methods
}


def mutated(data: bytes, chance: random.Random) -> bytes:
    """A few bytes changed, cut out, doubled or put in."""
    out = bytearray(data)
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(out) + 1)
        match chance.randrange(4):
            case 0 if at < len(out):
                out[at] = chance.randrange(256)
            case 1:
                del out[at : at + chance.randrange(8)]
            case 2:
                out[at:at] = out[at : at + chance.randrange(16)]
            case _:
                out[at:at] = chance.randbytes(chance.randrange(6))
    return bytes(out)


async def answered(site: Loopback, name: str, data: bytes, limit_seconds: float) -> grpc.StatusCode:
    method, who = METHODS[name]
    sides = "_".join("stream" if s else "unary" for s in (method.client_streaming, method.server_streaming))
    call: Any = getattr(site.channel, sides)(path(method))

    async def one() -> Any:
        yield data

    try:
        made = call(one() if method.client_streaming else data, timeout=limit_seconds, metadata=bearer(who))
        if not method.server_streaming:
            await made
        else:
            async for _ in made:
                break
            made.cancel()
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def seeds() -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {name: [b""] for name in METHODS if name not in ("Learn", "RunCampaign")}
    for file in sorted(CORPUS.iterdir()):
        found[file.name.partition("-")[0]].append(file.read_bytes())
    return found


@pytest.mark.parametrize("name", seeds())
def test_no_bytes_make_a_method_fail(tmp_path: Path, name: str) -> None:
    async def work(site: Loopback) -> None:
        chance = random.Random(name)
        lasting = name == "WatchAlerts"  # what is good there goes on until the deadline
        fine = FINE | {grpc.StatusCode.DEADLINE_EXCEEDED} if lasting else FINE
        limit_seconds = 2.0 if lasting else 60.0
        for data in seeds()[name]:
            assert await answered(site, name, data, limit_seconds) in fine
        for _ in range(ROUNDS):
            data = mutated(chance.choice(seeds()[name]), chance)
            code = await answered(site, name, data, limit_seconds)
            assert code in fine, (code, data.hex())

    on_loopback(tmp_path, work, RELEASE)


KEY = Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key()


@given(st.lists(st.binary(max_size=80), max_size=3), st.binary(max_size=300), st.binary(max_size=200))
@settings(max_examples=200)
def test_no_answer_of_a_provider_makes_a_tenant_fail(entries: list[bytes], first: bytes, second: bytes) -> None:
    trust = LogClient(KEY, [], None)
    with pytest.raises(VerificationError):
        trust.follow(entries, first)
    with pytest.raises((VerificationError, HeadError)):
        trust.verify(first, second, second, 0.0)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.binary(max_size=20).map(bytes.hex),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KINDS = ("two heads", "two logs", "evaluation", "table", "hashed answer", "else")
FIELDS = ("heads", "checkpoints", "head", "head_signature", "offer", "offer_signature", "evaluation", "signature",
          "content", "class", "hashed", "tables", "private")  # fmt: skip


@given(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(FIELDS), json_values))
@settings(max_examples=300)
def test_no_file_of_evidence_makes_an_auditor_fail(kind: str, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidEvidenceError):
        prove({**fields, "kind": kind}, bytes(32))


def test_the_corpus_is_of_messages_that_exist() -> None:
    assert {file.name.partition("-")[0] for file in CORPUS.iterdir()} <= METHODS.keys()
    assert len(list(CORPUS.iterdir())) >= 20
