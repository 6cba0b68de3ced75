"""The provider's transparency log: one tree of all epoch heads, revocations and daily hashes of the audit log.

Entries are committed to the database, then the high-water mark is written, then a checkpoint over them is signed. The
served view changes in one step, when the witnesses have cosigned the new tree or their time is over.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah_protocol.log.checkpoint import Checkpoint, Note, SignatureLine, Verifier, log_origin, sign
from pharoah_protocol.log.merkle import consistency_proof, leaf_hash
from pharoah_protocol.log.view import View
from pharoah_provider.high_water import HighWater
from pharoah_serving.clock import Clock

log = logging.getLogger("pharoah.provider.log")

WITNESS_SECONDS = 8.0
"""Time for all witnesses to cosign; more than the timeout of one request (`witnesses.TIMEOUT_SECONDS`)."""
MAX_PAGE = 4096
"""Most entries of one answer."""

Ask = Callable[[int, Sequence[bytes], Note], SignatureLine]
"""Called with the old size, a consistency proof and the note; returns a line of signature. Raises WitnessError."""


class WitnessError(Exception):
    """A witness did not cosign; `size` is the size of the log that it has seen, if its answer contains it."""

    def __init__(self, message: str, size: int | None = None) -> None:
        super().__init__(message)
        self.size = size


@dataclass
class Witness:
    """One witness and the state of our requests to it."""

    verifier: Verifier
    ask: Ask
    seen: int = 0
    """Size of the tree that it cosigned last."""
    busy: bool = False
    """Whether a thread still waits for its answer; until then it gets no other request."""


class TransparencyLog:
    """Single-threaded: belongs to the event loop."""

    def __init__(
        self,
        entries: Sequence[bytes],
        key: Ed25519PrivateKey,
        witnesses: Sequence[Witness] = (),
        checkpoint: bytes = b"",
        high_water: HighWater | None = None,
        clock: Clock | None = None,
    ) -> None:
        """A log that continues these entries of the database. The stored checkpoint keeps its cosignatures if it is a
        checkpoint of exactly these entries. Without `high_water` nothing is known of earlier signatures.

        Raises StoreError when the database does not continue what was signed.
        """
        kept = Note.decode(checkpoint) if checkpoint else None
        self._high_water, self._clock = high_water, clock or Clock()
        if high_water is not None:
            high_water.check_log(entries, kept.checkpoint.origin if kept else "")
        self._entries = list(entries)
        self._hashes = [leaf_hash(entry) for entry in entries]
        self._key = key
        self._witnesses = list(witnesses)
        self.origin = log_origin(key.public_key().public_bytes_raw())
        self.tip = View().read(entries)
        """The view of all entries that were committed."""
        self.view = self.tip
        """The view that is served."""
        self._note = self._sign(self.view)
        if kept is not None and kept.checkpoint == self._note.checkpoint:
            self._note = kept
        self._cosigned_at: float | None = None
        """When all witnesses last cosigned the tree that is served, in seconds of the steady clock."""

    @property
    def cosigned_seconds_ago(self) -> float:
        """Since all witnesses cosigned the tree that is served; infinite while one of them has not."""
        return float("inf") if self._cosigned_at is None else self._clock.steady() - self._cosigned_at

    def append(self, *entries: bytes) -> View:
        """Add entries that have been committed; returns the view to `serve`."""
        self.tip = self.tip.read(entries)
        self._entries += entries
        self._hashes += [leaf_hash(entry) for entry in entries]
        return self.tip

    async def reserve_epoch(self, epoch: int) -> None:
        """Write down that the head of this epoch is signed next. Raises StoreError for a number that was used."""
        if self._high_water is not None:
            await asyncio.to_thread(self._high_water.reserve_epoch, epoch, self._clock.wall())

    @property
    def newest_epoch(self) -> int:
        """The largest number of an epoch in the log, or of one whose head was signed without getting that far."""
        reserved = 0 if self._high_water is None else self._high_water.mark.epoch
        return max(self.tip.epoch, reserved)

    async def serve(self, view: View) -> None:
        """Have this view cosigned, then serve it. Cosignatures of the same tree stay until there are newer ones.

        Raises StoreError when the high-water mark cannot be written; the view from before stays served.
        """
        same = view.frontier == self.view.frontier
        note, by_all = await self._cosign(self._note if same else await asyncio.to_thread(self._sign, view))
        if view.frontier.size < self.view.frontier.size:
            return  # a later view is served already
        self.view, self._note = view, note
        if by_all:
            self._cosigned_at = self._clock.steady()
        elif not same:
            self._cosigned_at = None  # cosignatures of the tree before do not count for this one

    def entries(self, size: int) -> list[bytes]:
        """Served entries from `size` on, at most MAX_PAGE."""
        return self._entries[size : min(size + MAX_PAGE, self.view.frontier.size)]

    @property
    def checkpoint(self) -> bytes:
        return self._note.encode()

    def _sign(self, view: View) -> Note:
        """Raises StoreError."""
        if self._high_water is not None:
            self._high_water.extend(view.frontier, self._clock.wall())
        return sign(Checkpoint(self.origin, view.frontier.size, view.frontier.root), self._key)

    async def _cosign(self, note: Note) -> tuple[Note, bool]:
        """The note with the cosignatures that arrive in time, and whether all witnesses have sent theirs."""
        lines = await asyncio.gather(*(self._in_time(witness, note) for witness in self._witnesses))
        for line in lines:
            note = note if line is None else note.with_signature(*line)
        return note, all(lines)

    async def _in_time(self, witness: Witness, note: Note) -> SignatureLine | None:
        """The line of a witness. A slow, absent or malicious witness can neither delay the log nor make it fail."""
        if witness.busy:
            log.warning("witness %s: still busy with the last request", witness.verifier.name)
            return None
        answer: Future[SignatureLine | None] = Future()
        witness.busy = True
        threading.Thread(target=self._into, args=(answer, witness, note), daemon=True).start()
        try:
            return await asyncio.wait_for(asyncio.wrap_future(answer), WITNESS_SECONDS)
        except Exception as error:  # noqa: BLE001 - a malicious server may cause any error
            log.warning("witness %s: %s: %s", witness.verifier.name, type(error).__name__, error)
            return None

    def _into(self, answer: Future[SignatureLine | None], witness: Witness, note: Note) -> None:
        try:
            line = self._ask(witness, note)
        except Exception as error:  # noqa: BLE001 - passed to the caller that waits
            witness.busy = False
            if not answer.cancelled():
                answer.set_exception(error)
        else:
            witness.busy = False  # before the answer is set: its receiver may send the next request at once
            if not answer.cancelled():
                answer.set_result(line)

    def _ask(self, witness: Witness, note: Note) -> SignatureLine | None:
        """Ask for a cosignature. A witness that has seen another size than expected is asked a second time."""
        for _ in range(2):
            try:
                proof = consistency_proof(self._hashes[: note.checkpoint.size], witness.seen)
                line = witness.ask(witness.seen, proof, note)
            except WitnessError as error:
                if error.size is None:
                    log.warning("witness %s: %s", witness.verifier.name, error)
                    return None
                if error.size > (size := note.checkpoint.size):
                    text = "witness %s has seen %d entries of this log, and here are %d: an old copy of the database?"
                    log.error(text, witness.verifier.name, error.size, size)
                    return None
                witness.seen = error.size
                continue
            witness.seen = note.checkpoint.size
            return line
        return None
