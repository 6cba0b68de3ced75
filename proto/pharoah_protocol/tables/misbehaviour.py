"""Proofs of misbehaviour that can be handed to others: they follow from what a provider signed and its public key.

Each proof is a file that the sidecar wrote when it rejected an answer (`pharoah audit FILE` and `pharoah-auditor verify
FILE` read it). The reader of a proof need not trust the party that brings it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from pharoah_archetypes.ladder import parts
from pharoah_protocol.encoding import read_u64
from pharoah_protocol.log.checkpoint import CheckpointError, Note, log_verifier
from pharoah_protocol.log.merkle import Frontier, root
from pharoah_protocol.tables import signed_messages
from pharoah_protocol.tables.epoch_head import EpochHead, HeadError, is_signed
from pharoah_protocol.tables.rows import open_bytes, readable, row_tag, split
from pharoah_protocol.tables.signed_messages import ClassAnswer
from pharoah_protocol.voprf import protocol
from pharoah_protocol.voprf.group import GroupError


class InvalidEvidenceError(ValueError):
    """A file that proves no misbehaviour of this provider; the message says why."""


@dataclass(frozen=True)
class SignedAnswer:
    """An evaluation that the provider signed, with its head and its offer."""

    head: EpochHead
    offer_id: bytes
    class_ids: tuple[bytes, ...]
    blinded: list[bytes]
    answers: list[ClassAnswer]


def prove(evidence: Mapping[str, Any], public: bytes) -> str:
    """One sentence: what a file proves about the provider with this key. Raises InvalidEvidenceError."""
    checks: dict[str, Callable[[Mapping[str, Any], bytes], str]] = {
        "two heads": _two_heads,
        "two logs": _two_logs,
        "forked log": _fork_log,
        "evaluation": _wrong_key,
        "table": _swap_table,
        "hashed answer": _wrong_lookup,
    }
    try:
        check = checks[str(evidence["kind"])]
        return check(evidence, public)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise InvalidEvidenceError(f"the file is not evidence of a known kind ({error!r})") from None
    except (HeadError, CheckpointError, GroupError, signed_messages.StatementError) as error:
        raise InvalidEvidenceError(str(error)) from None
    except ValueError as error:
        raise error if isinstance(error, InvalidEvidenceError) else InvalidEvidenceError(str(error)) from None


def read_signed_answer(record: Mapping[str, Any], public: bytes) -> SignedAnswer:
    """The signed part of a kept answer, with every signature checked. Raises InvalidEvidenceError."""
    head, message = read_signed_head(record, public), bytes.fromhex(record["evaluation"])
    _require(message, record["signature"], public, "evaluation")
    offer_id, epoch, class_ids = _offer(record, public)
    magic, signed_offer, _, blinded, *answered = parts(message)
    if magic != b"pharoah/evaluated/v1" or signed_offer != offer_id or epoch != head.epoch or len(answered) % 3:
        raise InvalidEvidenceError("the evaluation does not belong to this offer and epoch")
    answers = [
        ClassAnswer(class_id=answered[i], elements=parts(answered[i + 1]), proof=answered[i + 2])
        for i in range(0, len(answered), 3)
    ]
    if [answer.class_id for answer in answers] != list(class_ids):
        raise InvalidEvidenceError("the evaluation does not belong to the offered classes")
    return SignedAnswer(head, offer_id, class_ids, parts(blinded), answers)


def read_signed_head(record: Mapping[str, Any], public: bytes) -> EpochHead:
    """The epoch head of a record, with its signature checked. Raises InvalidEvidenceError, HeadError."""
    body = bytes.fromhex(record["head"])
    _require(body, record["head_signature"], public, "head")
    return EpochHead.decode(body)


def open_rows(
    answer: SignedAnswer, private: Mapping[str, Any], tables: Mapping[bytes, bytes]
) -> list[list[bytes | None]]:
    """Per class and input, the row that the input opens in these tables, packed as this release packs it. None stands
    for no row, and for one that only a later release can read. Raises GroupError, InvalidEvidenceError.
    """
    sealed = _open_bytes(answer, private, tables, frozenset())
    read = [[None if row is None else readable(row) for row in found] for found in sealed]
    return [[row.pack() if row else None for row in found] for found in read]


def _open_bytes(
    answer: SignedAnswer, private: Mapping[str, Any], tables: Mapping[bytes, bytes], revoked: frozenset[bytes]
) -> list[list[bytes | None]]:
    """The same as `open_rows` without revoked rows, with the bytes as they were sealed: an honest answer has these,
    also when this release cannot read them."""
    inputs, blinds = ([bytes.fromhex(part) for part in private[name]] for name in ("inputs", "blinds"))
    for value, scalar, element in zip(inputs, blinds, answer.blinded, strict=False):
        if protocol.blind(value, scalar).element != element:
            raise InvalidEvidenceError("the blinds do not belong to the query")
    found = []
    for class_id, evaluated, _ in answer.answers:
        rows = _check_table(answer.head, class_id, tables[class_id])
        outputs = [protocol.finalize(*item) for item in zip(inputs, blinds, evaluated, strict=False)]
        epoch = answer.head.epoch
        gone = {one for one in outputs if class_id + row_tag(one, epoch, class_id) in revoked}
        found.append([None if one in gone else open_bytes(rows, one, epoch, class_id) for one in outputs])
    return found


def _two_heads(evidence: Mapping[str, Any], public: bytes) -> str:
    bodies = [bytes.fromhex(shown["body"]) for shown in evidence["heads"]]
    for body, shown in zip(bodies, evidence["heads"], strict=True):
        _require(body, shown["signature"], public, "head")
    first, second = (EpochHead.decode(body) for body in bodies)
    if first.epoch != second.epoch or bodies[0] == bodies[1]:
        raise InvalidEvidenceError("the two heads belong to two epochs, or are the same")
    return f"it signed two different heads for epoch {first.epoch}: tenants were shown different tables"


def _two_logs(evidence: Mapping[str, Any], public: bytes) -> str:
    notes = [Note.decode(text.encode()) for text in evidence["checkpoints"]]
    for note in notes:
        note.verify(log_verifier(public))
    first, second = (note.checkpoint for note in notes)
    if first.size != second.size:
        raise InvalidEvidenceError(
            f"the two checkpoints have {first.size} and {second.size} entries: only the log itself can show whether "
            "one continues the other; ask the provider for a consistency proof"
        )
    if first.root == second.root:
        raise InvalidEvidenceError("the two checkpoints are the same")
    return f"it signed two different logs of {first.size} entries: tenants were shown different ones"


def _fork_log(evidence: Mapping[str, Any], public: bytes) -> str:
    """Two checkpoints of different sizes, and the entries that lead to the larger one. The complete subtrees at the
    beginning need not be trusted: another beginning would not give the root that was signed."""
    notes = [Note.decode(text.encode()) for text in evidence["checkpoints"]]
    for note in notes:
        note.verify(log_verifier(public))
    smaller, larger = sorted((note.checkpoint for note in notes), key=lambda checkpoint: checkpoint.size)
    begun = Frontier(int(evidence["begun_size"]), tuple(bytes.fromhex(part) for part in evidence["begun_subtrees"]))
    entries = [bytes.fromhex(entry) for entry in evidence["entries"]]
    if begun.size > smaller.size or begun.size + len(entries) != larger.size:
        raise InvalidEvidenceError("the entries do not lead from the smaller checkpoint to the larger one")
    if begun.add(*entries).root != larger.root:
        raise InvalidEvidenceError("the entries are not those of the larger checkpoint")
    if begun.add(*entries[: smaller.size - begun.size]).root == smaller.root:
        raise InvalidEvidenceError("the larger log continues the smaller one")
    return f"it signed a log of {smaller.size} entries and one of {larger.size} that does not continue it"


def _wrong_key(evidence: Mapping[str, Any], public: bytes) -> str:
    answer = read_signed_answer(evidence, public)
    for class_id, evaluated, proof in answer.answers:
        try:
            protocol.verify(answer.head.table(class_id).public_key, answer.blinded, evaluated, proof)
        except protocol.ProofError:
            return f"it answered with another key than the one in its signed head of epoch {answer.head.epoch}"
    raise InvalidEvidenceError("all proofs of the evaluation hold")


def _swap_table(evidence: Mapping[str, Any], public: bytes) -> str:
    head, content = read_signed_head(evidence, public), bytes.fromhex(evidence["content"])
    class_id = bytes.fromhex(evidence["class"])
    _require(signed_messages.table(head.epoch, class_id, content), evidence["signature"], public, "table")
    if root(split(content)) == head.table(class_id).root:
        raise InvalidEvidenceError("the table is the one the head commits to")
    return f"it signed and served a table that is not the one in its signed head of epoch {head.epoch}"


def _wrong_lookup(evidence: Mapping[str, Any], public: bytes) -> str:
    hashed, record = evidence["hashed"], evidence["evaluation"]
    answer = read_signed_answer(record, public)
    message, key = bytes.fromhex(hashed["looked_up"]), bytes.fromhex(hashed["hashed_key"])
    _require(message, hashed["signature"], public, "looked-up rows")
    offer_id, epoch, class_ids = _offer(hashed, public)
    magic, signed_offer, _, key_hash, in_force, asked, answered = parts(message)
    if magic != b"pharoah/looked-up/v2" or signed_offer != offer_id:
        raise InvalidEvidenceError("the looked-up rows do not belong to this offer")
    if key_hash != hashlib.sha256(key).digest() or epoch != answer.head.epoch or class_ids != answer.class_ids:
        raise InvalidEvidenceError("the two answers belong to different tables")
    revoked = bytes.fromhex(evidence["revoked"])
    if signed_messages.digest(revoked) != in_force:
        raise InvalidEvidenceError("the list of revoked rows is not the one that was in force")
    gone = signed_messages.read_revoked(revoked).rows if revoked else frozenset()
    tokens, rows = parts(asked), parts(answered)
    tables = {bytes.fromhex(name): bytes.fromhex(content) for name, content in evidence["tables"].items()}
    held = _open_bytes(answer, record["private"], tables, gone)
    inputs = [bytes.fromhex(value) for value in record["private"]["inputs"]]
    for at, found in enumerate(held):
        for number, (value, row) in enumerate(zip(inputs, found, strict=True)):
            same_question = hmac.compare_digest(tokens[number], hmac.digest(key, value, "sha256"))
            if same_question and rows[at * len(tokens) + number] != (row or b""):
                return f"its hashed answer in epoch {epoch} differs from its sealed table"
    raise InvalidEvidenceError("the hashed answer agrees with the sealed table")


def _offer(record: Mapping[str, Any], public: bytes) -> tuple[bytes, int, tuple[bytes, ...]]:
    """Id, epoch and classes of the signed offer."""
    message = bytes.fromhex(record["offer"])
    _require(message, record["offer_signature"], public, "offer")
    magic, offer_id, epoch, _, _, *class_ids = parts(message)
    if magic != signed_messages.OFFER_MAGIC:
        raise InvalidEvidenceError("the offer has another form")
    return offer_id, read_u64(epoch), tuple(class_ids)


def _check_table(head: EpochHead, class_id: bytes, content: bytes) -> Sequence[bytes]:
    rows = split(content)
    if root(rows) != head.table(class_id).root:
        raise InvalidEvidenceError("a table is not the one the head commits to")
    return rows


def _require(body: bytes, signature: str, public: bytes, what: str) -> None:
    if not is_signed(body, bytes.fromhex(signature), Ed25519PublicKey.from_public_bytes(public)):
        raise InvalidEvidenceError(f"the {what} is not signed by this provider")
