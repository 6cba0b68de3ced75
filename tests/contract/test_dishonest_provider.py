"""Dishonest providers against the real tenant: which answers it rejects, and which of them prove misbehaviour."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pharoah.cli.main import main
from pharoah.sidecar import exchange_client as tenant_side
from pharoah.sidecar.evidence import Evidence
from pharoah.sidecar.exchange_client import ExchangeClient
from pharoah.sidecar.log_client import FRESH_SECONDS, VerificationError
from pharoah.sidecar.provider_connection import ProviderConnection
from pharoah_auditor.witness import Witness
from pharoah_learning.release import Release
from pharoah_protocol.tables import signed_messages
from pharoah_protocol.tables.epoch_head import sign
from pharoah_protocol.tables.misbehaviour import InvalidEvidenceError, prove
from pharoah_protocol.tables.rows import VerdictRow, split
from pharoah_protocol.v1 import RevokeRequest
from pharoah_protocol.vocabulary import Severity
from pharoah_protocol.voprf import protocol
from pharoah_provider import exchange_server as provider_side
from pharoah_provider.first_start import make_provider
from pharoah_provider.publication import Publisher
from pharoah_provider.storage.duckdb import DuckStorage
from pharoah_provider.transparency_log import TransparencyLog
from pharoah_serving.errors import Exhausted
from pharoah_serving.keys import open_keys
from tests.harness.exchange import KNOWN, RELEASE, ROW, on_loopback
from tests.harness.loopback import Loopback, loopback, ticket
from tests.harness.publisher import forget_signatures

Patch = Callable[[pytest.MonkeyPatch], None]


def caught(folder: Path, patch: Patch, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> VerificationError:
    """What the tenant says of a provider that was changed like this."""
    found: list[VerificationError] = []

    async def work(site: Loopback) -> None:
        settings = site.settings(**changes)
        patch(monkeypatch)
        provider = ProviderConnection(settings)
        with pytest.raises(VerificationError) as error:
            await ExchangeClient(provider, settings).ask(KNOWN, ticket())
        await provider.channel.close()
        found.append(error.value)

    on_loopback(folder, work)
    return found[0]


def proven(folder: Path, error: VerificationError) -> str:
    """The verdict of an auditor that has only the file and the provider's key."""
    assert error.evidence is not None
    return prove(json.loads(json.dumps(error.evidence)), open_keys(folder / "keys").public)


def another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = protocol.evaluate
    secret, public = protocol.derive_key(b"k" * 32, b"")
    monkeypatch.setattr(provider_side.protocol, "evaluate", lambda _, __, blinded: honest(secret, public, blinded))


def changed_table(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = provider_side.ExchangeServer.table

    def swapped(self: Any, epoch: int, class_id: bytes, first_row: int) -> Any:
        sealed = self.publisher.epoch(epoch).classes[class_id]
        rows = split(sealed.content)
        content = b"".join([rows[0][::-1], *rows[1:]])
        signature = sign(signed_messages.table(epoch, class_id, content), self.keys.signing_key)
        wrong = replace(sealed, content=content, signature=signature)
        self.publisher.epoch(epoch).classes[class_id] = wrong
        return honest(self, epoch, class_id, first_row)

    monkeypatch.setattr(provider_side.ExchangeServer, "table", swapped)


def wrong_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenant_side, "AUDITED_INPUTS", 1)
    monkeypatch.setattr(provider_side.ExchangeServer, "_find_row", lambda *_: b"")


@pytest.mark.parametrize(
    ("patch", "changes", "reason", "shown"),
    [
        (another_key, {}, "another key", "another key than the one in its signed head"),
        (changed_table, {}, "table", "not the one in its signed head"),
        (wrong_lookup, {"privacy": "hashed"}, "hashed answer", "differs from its sealed table"),
    ],
)
def test_signed_wrong_answers_are_rejected_and_proven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patch: Patch, changes: dict[str, Any], reason: str, shown: str
) -> None:
    error = caught(tmp_path, patch, monkeypatch, **changes)
    assert reason in str(error)
    assert shown in proven(tmp_path, error)


def test_a_checkpoint_that_always_differs_does_not_switch_audits_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = TransparencyLog.checkpoint.fget  # type: ignore[attr-defined]

    def noisy(self: TransparencyLog) -> bytes:
        from pharoah_protocol.log.checkpoint import Note

        return Note.decode(honest(self)).with_signature("noise", os.urandom(68)).encode()

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        wrong_lookup(monkeypatch)
        monkeypatch.setattr(TransparencyLog, "checkpoint", property(noisy))

    assert "hashed answer" in str(caught(tmp_path, patch, monkeypatch, privacy="hashed"))


def test_an_honest_lookup_of_another_offer_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = caught(tmp_path, wrong_lookup, monkeypatch, privacy="hashed").evidence
    assert evidence is not None
    public = open_keys(tmp_path / "keys").public
    assert "differs from its sealed table" in prove(evidence, public)
    other = {name: evidence["evaluation"][name] for name in ("offer", "offer_signature")}
    with pytest.raises(InvalidEvidenceError, match="do not belong to this offer"):
        prove({**evidence, "hashed": {**evidence["hashed"], **other}}, public)


def test_evidence_that_was_tampered_with_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = caught(tmp_path, another_key, monkeypatch).evidence
    assert evidence is not None
    public = open_keys(tmp_path / "keys").public
    for name, value in evidence.items():
        if name in ("head", "offer", "evaluation", "signature", "head_signature", "offer_signature"):
            flipped = ("0" if value[8] != "0" else "1").join((value[:8], value[9:]))
            with pytest.raises(InvalidEvidenceError):
                prove({**evidence, name: flipped}, public)
    for broken in ({}, {"kind": "unheard"}, {"kind": "two heads"}, {**evidence, "head": "no hex"}):
        with pytest.raises(InvalidEvidenceError):
            prove(broken, public)
    with pytest.raises(InvalidEvidenceError, match="not signed by this provider"):
        prove(evidence, bytes(range(32)))


def test_honest_answers_prove_nothing(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        settings = site.settings()
        answer = await ExchangeClient(ProviderConnection(settings), settings).ask(KNOWN, ticket())
        with pytest.raises(InvalidEvidenceError, match="all proofs of the evaluation hold"):
            prove({"kind": "evaluation", **answer.record}, open_keys(tmp_path / "keys").public)
        head = {"body": answer.served.body.hex(), "signature": answer.served.signature.hex()}
        with pytest.raises(InvalidEvidenceError, match="the same"):
            prove({"kind": "two heads", "heads": [head, head]}, open_keys(tmp_path / "keys").public)
        note = answer.served.checkpoint.decode()
        with pytest.raises(InvalidEvidenceError, match="the same"):
            prove({"kind": "two logs", "checkpoints": [note, note]}, open_keys(tmp_path / "keys").public)

    on_loopback(tmp_path, work)


def test_a_revoked_row_proves_nothing(tmp_path: Path) -> None:
    """What a tenant could put together of an honest provider's answers, and a list it was never given."""

    async def work(site: Loopback) -> None:
        public = open_keys(tmp_path / "keys").public
        await site.call("Operator", "Revoke", RevokeRequest(rows=[ROW.id]), "ops")
        asking = [
            ExchangeClient(ProviderConnection(s := site.settings(privacy=mode)), s) for mode in ("private", "hashed")
        ]
        private, hashed = [await exchange.ask(KNOWN, ticket()) for exchange in asking]
        assert private.matches == hashed.matches == ()
        tables = {
            name: b"".join(rows).hex() for (_, id_), rows in asking[0]._tables._held.items() for name in [id_.hex()]
        }
        whole = {"kind": "hashed answer", "hashed": hashed.record, "evaluation": private.record, "tables": tables}
        with pytest.raises(InvalidEvidenceError, match="agrees with the sealed table"):
            prove({**whole, "revoked": hashed.served.revoked_list.hex()}, public)
        for other in (b"", signed_messages.encode_revoked(1, [b"r" * 32])):
            with pytest.raises(InvalidEvidenceError, match="not the one that was in force"):
                prove({**whole, "revoked": other.hex()}, public)

    on_loopback(tmp_path, work)


@pytest.mark.parametrize(("at", "value"), [(-10, 200), (1, 9), (0, 3)], ids=["outcome", "severity", "format"])
def test_an_honest_provider_of_a_later_release_is_not_convicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, value: int
) -> None:
    """Its rows have codes that this release cannot read. A tenant could put honest answers together as evidence."""
    honest, evidence = VerdictRow.pack, list[dict[str, Any]]()

    def pack(row: VerdictRow) -> bytes:
        data = bytearray(honest(row))
        data[at] = value
        return bytes(data)

    async def work(site: Loopback) -> None:
        asking = [
            ExchangeClient(ProviderConnection(s := site.settings(privacy=mode)), s) for mode in ("private", "hashed")
        ]
        private, hashed = [await exchange.ask(KNOWN, ticket()) for exchange in asking]
        tables = {id_.hex(): b"".join(rows).hex() for (_, id_), rows in asking[0]._tables._held.items()}
        revoked = hashed.served.revoked_list.hex()
        answers = {"hashed": hashed.record, "evaluation": private.record, "tables": tables, "revoked": revoked}
        evidence.append({"kind": "hashed answer", **answers})

    with monkeypatch.context() as later:
        later.setattr(VerdictRow, "pack", pack)
        on_loopback(tmp_path, work)
    with pytest.raises(InvalidEvidenceError, match="agrees with the sealed table"):
        prove(evidence[0], open_keys(tmp_path / "keys").public)


def test_a_hashed_answer_under_another_list_of_revoked_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = provider_side.ExchangeServer.lookup

    async def wrong(self: Any, *arguments: Any) -> Any:
        with monkeypatch.context() as patched:
            patched.setattr(provider_side.Publisher, "list_revoked_rows", lambda *_: {b"r" * 32})
            return await honest(self, *arguments)

    reason = rejected(tmp_path, monkeypatch, provider_side.ExchangeServer, "lookup", wrong, privacy="hashed")
    assert "another list of revoked rows" in reason


def test_an_audit_that_is_refused_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refusing(*_: Any) -> Any:
        raise Exhausted("no more questions today")

    async def work(site: Loopback) -> None:
        monkeypatch.setattr(tenant_side, "AUDITED_INPUTS", 1)
        monkeypatch.setattr(provider_side.ExchangeServer, "evaluate", refusing)
        settings = site.settings(privacy="hashed")
        answer = await ExchangeClient(ProviderConnection(settings), settings).ask(KNOWN, ticket())
        assert answer.matches and "no more questions" in answer.record["refused_audit"]

    on_loopback(tmp_path, work)


def rejected(folder: Path, monkeypatch: pytest.MonkeyPatch, where: Any, name: str, with_: Any, **changes: Any) -> str:
    return str(caught(folder, lambda m: m.setattr(where, name, with_), monkeypatch, **changes))


def test_revocations_that_are_not_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are revoked for one tenant alone."""
    reason = rejected(
        tmp_path, monkeypatch, Publisher, "list_revoked", lambda _: signed_messages.encode_revoked(1, [b"r" * 32])
    )
    assert "not the newest list" in reason


def test_a_log_that_is_shown_without_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = rejected(tmp_path, monkeypatch, TransparencyLog, "entries", lambda *_: [])
    assert "not the one" in reason


def test_offers_and_answers_that_are_not_signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = rejected(tmp_path, monkeypatch, provider_side, "sign", lambda *_: bytes(64))
    assert "not signed" in reason


@pytest.mark.parametrize("count", [0, 1, 3])
def test_offers_of_other_classes_than_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    honest = provider_side.ExchangeServer.offer

    async def other(self: Any, *arguments: Any) -> Any:
        offer_id, offer = await honest(self, *arguments)
        offer.class_ids = (offer.class_ids * 2)[:count]
        said = signed_messages.offer(offer_id, offer.epoch, offer.expires_at, offer.class_ids, offer.node_state)
        offer.signature = sign(said, self.keys.signing_key)
        return offer_id, offer

    assert "two classes" in rejected(tmp_path, monkeypatch, provider_side.ExchangeServer, "offer", other)


def test_a_truncated_table_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = provider_side.ExchangeServer.table

    def shorter(*arguments: Any) -> Any:
        chunks, signature = honest(*arguments)
        return [chunk[:-64] for chunk in chunks], signature

    assert "table" in rejected(tmp_path, monkeypatch, provider_side.ExchangeServer, "table", shorter)


def test_a_table_that_does_not_end_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = provider_side.ExchangeServer.table

    def endless(*arguments: Any) -> Any:
        chunks, signature = honest(*arguments)
        return chunks * 50, signature

    assert "longer than" in rejected(tmp_path, monkeypatch, provider_side.ExchangeServer, "table", endless)


def test_two_heads_for_one_epoch_are_a_proof(tmp_path: Path) -> None:
    """Another table for one tenant, under a head of its own: it stands in no log others have seen."""

    async def inside() -> VerificationError:
        async with loopback(tmp_path, RELEASE) as site:
            settings = site.settings()
            await ExchangeClient(ProviderConnection(settings), settings).ask(KNOWN, ticket())
        (tmp_path / "p.duckdb").rename(tmp_path / "honest.duckdb")
        forget_signatures(tmp_path / "keys")
        store = DuckStorage(tmp_path / "p.duckdb")
        from tests.harness.loopback import node

        for name in ("n1", "n2"):
            await store.nodes.put_node(node(name))
        await store.published.put_release(Release(1, (replace(ROW, severity=Severity.OK),)))
        store.close()
        async with loopback(tmp_path) as site:
            with pytest.raises(VerificationError) as caught:
                await ExchangeClient(ProviderConnection(settings := site.settings()), settings).ask(KNOWN, ticket())
            return caught.value

    error = asyncio.run(inside())
    assert "two different logs of 2 entries" in proven(tmp_path, error)


def test_without_fresh_cosignatures_every_answer_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from pharoah_protocol.log.checkpoint import Note, cosign, log_verifier

    keys = [Ed25519PrivateKey.from_private_bytes(bytes([i]) * 32) for i in range(3)]
    public = make_provider(str(tmp_path / "keys"), tmp_path / "p.duckdb").public
    names = [Witness(f"w{i}", key, [log_verifier(public)], tmp_path / f"w{i}") for i, key in enumerate(keys)]
    (tmp_path / "witnesses").write_text("\n".join(str(witness.verifier) for witness in names))
    honest = TransparencyLog.checkpoint.fget  # type: ignore[attr-defined]

    def cosigned(*ages: float) -> Any:
        def checkpoint(self: TransparencyLog) -> bytes:
            import time

            note = Note.decode(honest(self))
            for i, age in enumerate(ages):
                note = note.with_signature(*cosign(note.checkpoint, f"w{i}", keys[i], int(time.time() - age)))
            return note.encode()

        return property(checkpoint)

    changes = {"witnesses_file": str(tmp_path / "witnesses")}
    for ages, number in (((), 0), ((5.0,), 1), ((5.0, FRESH_SECONDS + 60.0), 1), ((5.0, -3600.0), 1)):
        reason = rejected(tmp_path, monkeypatch, TransparencyLog, "checkpoint", cosigned(*ages), **changes)
        assert f"{number} of 3 witnesses" in reason

    async def work(site: Loopback) -> None:
        monkeypatch.setattr(TransparencyLog, "checkpoint", cosigned(5.0, 60.0))
        settings = site.settings(**changes)
        assert (await ExchangeClient(ProviderConnection(settings), settings).ask(KNOWN, ticket())).matches

    on_loopback(tmp_path, work)


def test_an_epoch_that_changes_between_two_calls_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = provider_side.ExchangeServer.offer
    turned: list[int] = []

    async def turning(self: Any, *arguments: Any) -> Any:
        if not turned:
            turned.append(await self.publisher.publish(RELEASE))
        return await honest(self, *arguments)

    async def work(site: Loopback) -> None:
        monkeypatch.setattr(provider_side.ExchangeServer, "offer", turning)
        settings = site.settings()
        answer = await ExchangeClient(ProviderConnection(settings), settings).ask(KNOWN, ticket())
        assert answer.served.head.epoch == 2 == turned[0] and answer.matches

    on_loopback(tmp_path, work)


def test_the_command_says_what_a_file_proves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = caught(tmp_path, another_key, monkeypatch)
    assert error.evidence is not None
    settings = Loopback(tmp_path, "", None).settings()  # type: ignore[arg-type]
    file = Evidence(settings).misbehaviour(error.evidence)
    assert file is not None and file.stat().st_mode & 0o077 == 0
    monkeypatch.setenv("PHAROAH_PROVIDER_KEY_FILE", settings.provider_key_file)
    assert main(["audit", str(file)]) == 0
    assert "proven: the provider answered with another key" in capsys.readouterr().out
    assert main(["audit", str(file), "-o", "json"]) == 0
    proven = json.loads(capsys.readouterr().out)
    assert proven["result"] == "proven" and proven["detail"].startswith("the provider answered with another key")
    file.write_text("{}")
    assert main(["audit", str(file)]) == 1
    assert "not proven" in capsys.readouterr().out
    assert main(["audit", str(file), "-o", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["result"] == "not proven"
