"""Checkpoints as C2SP writes them, and what may stand in a log."""

from __future__ import annotations

import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from pharoah_archetypes.ladder import length_prefixed
from pharoah_protocol.log.checkpoint import LOG, WITNESS, Checkpoint, CheckpointError, Note, Verifier, cosign, sign
from pharoah_protocol.log.view import AUDIT, HEAD, REVOKED, Entry, LogError, View

KEY, WITNESS_KEY = (Ed25519PrivateKey.from_private_bytes(bytes([i]) * 32) for i in (1, 2))
CHECKPOINT = Checkpoint("log.example", 7, bytes(range(32)))
LOG_VERIFIER = Verifier("log.example", LOG, KEY.public_key().public_bytes_raw())
WITNESS_VERIFIER = Verifier("w.example", WITNESS, WITNESS_KEY.public_key().public_bytes_raw())


def test_the_key_of_the_go_implementation() -> None:
    # golang.org/x/mod/sumdb/note, the verifier key of its documentation.
    text = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
    verifier = Verifier.parse(text)
    assert (str(verifier), verifier.key_id.hex()) == (text, "c74f20a3")
    with pytest.raises(CheckpointError, match="its id is"):
        Verifier.parse(text.replace("c74f20a3", "c74f20a4"))


def test_a_note_of_the_go_implementation() -> None:
    # The signed note of the same documentation; its text is no checkpoint, so only the signature is looked at.
    from pharoah_protocol.log.checkpoint import _holds, _unb64

    verifier = Verifier.parse("PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW")
    text = b"If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
    line = "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM="
    blob = _unb64(line)
    assert blob[:4] == verifier.key_id and _holds(verifier.public, blob[4:], text)


def test_a_checkpoint_is_text_that_others_can_read() -> None:
    note = sign(CHECKPOINT, KEY)
    lines = note.encode().decode().split("\n")
    assert lines[:4] == ["log.example", "7", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", ""]
    assert lines[4].startswith("\N{EM DASH} log.example ") and lines[5] == ""
    decoded = Note.decode(note.encode())
    assert decoded == note
    decoded.verify(LOG_VERIFIER)


def test_a_cosignature_says_when_and_holds_for_one_tree() -> None:
    note = sign(CHECKPOINT, KEY).with_signature(*cosign(CHECKPOINT, "w.example", WITNESS_KEY, 1234))
    assert Note.decode(note.encode()).find_cosign_time(WITNESS_VERIFIER) == 1234
    assert note.find_cosign_time(Verifier("w.example", WITNESS, bytes(32))) is None
    other = Note(Checkpoint("log.example", 7, bytes(32)), note.signatures)
    assert other.find_cosign_time(WITNESS_VERIFIER) is None
    with pytest.raises(CheckpointError, match="not signed"):
        other.verify(LOG_VERIFIER)
    again = note.with_signature(*cosign(CHECKPOINT, "w.example", WITNESS_KEY, 1300))
    assert len(again.signatures) == 2 and again.find_cosign_time(WITNESS_VERIFIER) == 1300


def test_a_log_key_does_not_cosign() -> None:
    """Kinds of key are kept apart: a cosignature with the log's own key is none."""
    note = sign(CHECKPOINT, KEY)
    as_witness = Verifier("log.example", WITNESS, KEY.public_key().public_bytes_raw())
    assert note.find_cosign_time(as_witness) is None


@given(st.binary(max_size=200))
def test_any_bytes_are_a_note_or_an_error(data: bytes) -> None:
    try:
        assert Note.decode(data).encode() == data
    except CheckpointError:
        pass


@given(st.integers(0, 10_000), st.integers(0, 7))
def test_no_single_bit_of_a_signed_checkpoint_can_change(position: int, bit: int) -> None:
    data = sign(CHECKPOINT, KEY).encode()
    at = position % len(data)
    with pytest.raises(CheckpointError):
        Note.decode(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]).verify(LOG_VERIFIER)


def head(epoch: int, body: bytes = b"body") -> bytes:
    return Entry.from_body(HEAD, epoch, body).encode()


def test_a_view_follows_epochs_and_revocations() -> None:
    view = View().read(
        [head(1, b"first"), Entry.from_body(REVOKED, 1, b"some").encode(), Entry.from_body(AUDIT, 9, b"").encode()]
    )
    view.check(b"first", b"some")
    for shown in ((b"other", b"some"), (b"first", b""), (b"first", b"less")):
        with pytest.raises(LogError, match="newest"):
            view.check(*shown)
    later = view.read([head(2, b"second")])
    later.check(b"second", b"")
    with pytest.raises(LogError, match="newest"):
        later.check(b"first", b"some")
    assert View.from_json(later.to_json()) == later


@pytest.mark.parametrize(
    "entries",
    [
        [head(1), head(1, b"other")],
        [head(2), head(1)],
        [head(2), Entry.from_body(REVOKED, 1, b"").encode()],
        [Entry.from_body(AUDIT, 4, b"").encode(), Entry.from_body(AUDIT, 4, b"").encode()],
        [b""],
        [Entry(b"other", 1, hashlib.sha256(b"").digest()).encode()],
        [Entry(HEAD, 1, b"short").encode()],
        [length_prefixed(b"pharoah/log/v1", HEAD, b"\xff" * 40, bytes(32))],
    ],
)
def test_what_no_honest_log_holds(entries: list[bytes]) -> None:
    with pytest.raises(LogError):
        View().read(entries)


@given(st.binary(max_size=120))
def test_any_bytes_are_an_entry_or_an_error(data: bytes) -> None:
    try:
        assert Entry.decode(data).encode() == data
    except LogError:
        pass
