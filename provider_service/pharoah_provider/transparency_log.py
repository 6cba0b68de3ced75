"""The provider's transparency log: every head, every revocation and every day's audit log, in one tree for everybody.

Entries are committed to the database before anything is signed about them. What is served moves on in one step, when
the witnesses have seen the new tree (or did not answer in time).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah_protocol.log.checkpoint import Checkpoint, Note, Verifier, log_origin, sign
from pharoah_protocol.log.merkle import consistency_proof, leaf_hash
from pharoah_protocol.log.view import View

log = logging.getLogger("pharoah.provider.log")

PATIENCE_SECONDS = 8.0
PAGE = 4096
"""Most entries of one answer."""

Ask = Callable[[int, Sequence[bytes], Note], tuple[str, bytes]]
"""Old size, consistency proof, note: a cosignature line. Raises WitnessError."""


class WitnessError(Exception):
    """A witness that did not cosign; `size` is what it has seen, if it said so."""

    def __init__(self, message: str, size: int | None = None) -> None:
        super().__init__(message)
        self.size = size


@dataclass
class Witness:
    verifier: Verifier
    ask: Ask
    seen: int = 0
    """Size of the tree it cosigned last."""
    busy: bool = False
    """Whether a thread of ours still waits for its answer; it is not asked again before that thread has ended."""


class TransparencyLog:
    """Single-threaded: belongs to the event loop."""

    def __init__(
        self,
        entries: Sequence[bytes],
        key: Ed25519PrivateKey,
        witnesses: Sequence[Witness] = (),
        checkpoint: bytes = b"",
    ) -> None:
        """A log that goes on after these entries, the ones in the database; and with the cosignatures on the checkpoint
        that was kept, if it is of them."""
        self._entries = list(entries)
        self._hashes = [leaf_hash(entry) for entry in entries]
        self._key = key
        self._witnesses = list(witnesses)
        self.origin = log_origin(key.public_key().public_bytes_raw())
        self.view = View().read(entries)
        """What everybody is shown."""
        kept, self._note = Note.decode(checkpoint) if checkpoint else None, self._signed(self.view)
        if kept is not None and kept.checkpoint == self._note.checkpoint:
            self._note = kept
        self.cosigned_at = 0.0
        """When witnesses were last asked with success, unix seconds."""

    def append(self, *entries: bytes) -> View:
        """Take up entries that have been committed; `serve` shows them."""
        self._entries += entries
        self._hashes += [leaf_hash(entry) for entry in entries]
        return self.view.read(self._entries[self.view.frontier.size :])

    async def serve(self, view: View) -> None:
        """Have this view cosigned, then show it. Cosignatures of the same tree stay until there are newer ones."""
        same = view.frontier == self.view.frontier
        note, cosigned = await self._cosigned(self._note if same else self._signed(view))
        if view.frontier.size < self.view.frontier.size:
            return  # never back
        self.view, self._note = view, note
        if cosigned or not self._witnesses:
            self.cosigned_at = time.time()

    def entries(self, size: int) -> list[bytes]:
        """Entries from `size` on, as far as they are shown."""
        return self._entries[size : min(size + PAGE, self.view.frontier.size)]

    @property
    def checkpoint(self) -> bytes:
        return self._note.encode()

    def _signed(self, view: View) -> Note:
        return sign(Checkpoint(self.origin, view.frontier.size, view.frontier.root), self._key)

    async def _cosigned(self, note: Note) -> tuple[Note, bool]:
        """The note with what witnesses add in time, and whether any did."""
        lines = await asyncio.gather(*(self._in_time(witness, note) for witness in self._witnesses))
        for line in lines:
            note = note if line is None else note.with_signature(*line)
        return note, any(lines)

    async def _in_time(self, witness: Witness, note: Note) -> tuple[str, bytes] | None:
        """A witness may be slow, down or malicious; nothing waits for it for long, and nothing fails with it."""
        if witness.busy:
            log.warning("witness %s: still busy with the last question", witness.verifier.name)
            return None
        answer: Future[tuple[str, bytes] | None] = Future()
        witness.busy = True
        threading.Thread(target=self._into, args=(answer, witness, note), daemon=True).start()
        try:
            return await asyncio.wait_for(asyncio.wrap_future(answer), PATIENCE_SECONDS)
        except Exception as error:  # noqa: BLE001 - somebody else's server
            log.warning("witness %s: %s: %s", witness.verifier.name, type(error).__name__, error)
            return None

    def _into(self, answer: Future[tuple[str, bytes] | None], witness: Witness, note: Note) -> None:
        try:
            line = self._ask(witness, note)
        except Exception as error:  # noqa: BLE001 - passed to whoever waits
            witness.busy = False
            if not answer.cancelled():
                answer.set_exception(error)
        else:
            witness.busy = False  # before the answer is known: whoever gets it may ask again at once
            if not answer.cancelled():
                answer.set_result(line)

    def _ask(self, witness: Witness, note: Note) -> tuple[str, bytes] | None:
        """A witness that knows another size than we thought is asked once more."""
        for _ in range(2):
            try:
                proof = consistency_proof(self._hashes[: note.checkpoint.size], witness.seen)
                line = witness.ask(witness.seen, proof, note)
            except WitnessError as error:
                if error.size is None:
                    log.warning("witness %s: %s", witness.verifier.name, error)
                    return None
                if error.size > (size := note.checkpoint.size):
                    said = "witness %s has seen %d entries of this log, and here are %d: an old copy of the database?"
                    log.error(said, witness.verifier.name, error.size, size)
                    return None
                witness.seen = error.size
                continue
            witness.seen = note.checkpoint.size
            return line
        return None
