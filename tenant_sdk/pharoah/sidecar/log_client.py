"""What this machine has verified of the provider: its log as far as it was read, and which witnesses have signed it.

Every answer is compared with everything seen before. An answer that does not fit is rejected, and what the provider has
signed of it is kept as evidence.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from pharoah._errors import UnknownReason
from pharoah_protocol.files import write_atomically
from pharoah_protocol.log.checkpoint import WITNESS, CheckpointError, Note, Verifier, log_origin, log_verifier
from pharoah_protocol.log.view import LogError, View
from pharoah_protocol.tables.epoch_head import EpochHead, verify_head
from pharoah_protocol.tables.signed_messages import RevokedRows, StatementError, read_revoked

log = logging.getLogger("pharoah.sidecar")

FRESH_SECONDS = 900
"""How old the newest cosignature may be: a provider can hide the newest entries of its log for no longer than this."""
SKEW_SECONDS = 300
LOCK_ATTEMPTS = 50


class VerificationError(ValueError):
    """An answer that is rejected; `evidence` is what the provider has signed, if that shows misbehaviour."""

    def __init__(self, message: str, evidence: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.evidence = evidence


@dataclass(frozen=True)
class ServedEpoch:
    """The epoch in force, verified."""

    head: EpochHead
    body: bytes
    signature: bytes
    checkpoint: bytes
    revoked_list: bytes
    """As it was signed for; empty while nothing is revoked."""
    revoked: frozenset[bytes]
    """Class handle and tag of rows that no longer hold."""


class LogClient:
    """One provider's log, as this user has seen it on this machine. The file is shared by all sidecars."""

    def __init__(self, key: Ed25519PublicKey, witnesses: Sequence[Verifier], folder: Path | None) -> None:
        """`folder` is where to remember; None remembers nothing between launches."""
        self._key = key
        self._public = key.public_bytes_raw()
        self._witnesses = witnesses
        self._file = folder / f"{log_origin(self._public)}.json" if folder else None
        self._view, self._note, self._heads = View(), b"", dict[int, dict[str, str]]()
        with self._locked():
            self._remember()

    @property
    def view(self) -> View:
        return self._view

    @property
    def remembers(self) -> bool:
        return self._file is not None

    @property
    def size(self) -> int:
        """How many entries of the log have been read."""
        return self._view.frontier.size

    def follow(self, entries: Sequence[bytes], checkpoint: bytes) -> bool:
        """Read on in the log; whether that was all of it. Raises VerificationError."""
        try:
            note = Note.decode(checkpoint)
            note.verify(log_verifier(self._public))
            if note.checkpoint.size < self.size:
                raise VerificationError(
                    "the provider's log is shorter than the one this machine has seen", self._two_logs(checkpoint)
                )
            view = self._view.read(entries)
        except (CheckpointError, LogError) as error:
            raise VerificationError(str(error)) from None
        if view.frontier.size < note.checkpoint.size and entries:
            self._view = view
            return False
        if view.frontier.size != note.checkpoint.size or view.frontier.root != note.checkpoint.root:
            raise VerificationError(
                "the provider's log is not the one this machine has seen", self._two_logs(checkpoint)
            )
        self._view, self._note = view, checkpoint
        return True

    def verify(self, body: bytes, signature: bytes, revoked: bytes, now: float) -> ServedEpoch:
        """The epoch the log names as its newest. Raises VerificationError, HeadError."""
        head = verify_head(body, signature, self._key, now)
        shown = {"body": body.hex(), "signature": signature.hex()}
        if (known := self._heads.get(head.epoch)) and known["body"] != shown["body"]:
            raise VerificationError(f"two heads for epoch {head.epoch}", {"kind": "two heads", "heads": [known, shown]})
        try:
            self._view.check(body, revoked)
            epoch, rows = read_revoked(revoked) if revoked else RevokedRows(epoch=head.epoch, rows=frozenset())
        except (LogError, StatementError) as error:
            raise VerificationError(str(error)) from None
        if epoch != head.epoch:
            raise VerificationError("the revoked rows are of another epoch")
        self._check_witnesses(now)
        self._heads = {**{n: h for n, h in self._heads.items() if n >= head.epoch - 1}, head.epoch: shown}
        self._keep()
        return ServedEpoch(head, body, signature, self._note, revoked, rows)

    def _check_witnesses(self, now: float) -> None:
        """More than half of the witnesses must have seen this very log, lately."""
        if not self._witnesses:
            return
        note = Note.decode(self._note)
        times = [at for witness in self._witnesses if (at := note.cosigned_at(witness)) is not None]
        fresh = [at for at in times if now - FRESH_SECONDS <= at <= now + SKEW_SECONDS]
        if 2 * len(fresh) <= len(self._witnesses):
            raise VerificationError(
                f"{len(fresh)} of {len(self._witnesses)} witnesses have cosigned the provider's log in the last "
                f"{FRESH_SECONDS // 60} minutes; more than half must"
            )

    def _agree(self, view: View, note: bytes, heads: dict[int, dict[str, str]]) -> None:
        """What another sidecar of this machine was shown meanwhile must be the same. Raises VerificationError."""
        if view.frontier.size == self.size and view != self._view:
            evidence: dict[str, Any] = {
                "kind": "two logs",
                "checkpoints": [self._note.decode(), note.decode()],
            }
            raise VerificationError("two jobs of this machine were shown two logs", evidence)
        for epoch in heads.keys() & self._heads.keys():
            if heads[epoch]["body"] != self._heads[epoch]["body"]:
                evidence = {"kind": "two heads", "heads": [heads[epoch], self._heads[epoch]]}
                raise VerificationError(f"two heads for epoch {epoch}", evidence)

    def _two_logs(self, checkpoint: bytes) -> dict[str, Any]:
        return {"kind": "two logs", "checkpoints": [self._note.decode(), checkpoint.decode()]}

    def _remember(self) -> None:
        if self._file is None or not self._file.exists():
            return
        try:
            data = json.loads(self._file.read_text())
            view, note = View.from_json(data["view"]), str(data["checkpoint"]).encode()
            heads = {int(epoch): {str(k): str(v) for k, v in head.items()} for epoch, head in data["heads"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UnknownReason(
                f"{self._file}: what this machine knew of the provider's log cannot be read ({error}); if the disk is "
                "at fault, remove the file: the log is then read anew"
            ) from None
        self._view, self._note, self._heads = view, note, heads

    def _keep(self) -> None:
        """Unless another sidecar has read further meanwhile."""
        if self._file is None:
            return
        with self._locked():
            mine = (self._view, self._note, self._heads)
            self._remember()
            self._agree(*mine)
            if mine[0].frontier.size >= self.size:
                self._view, self._note, self._heads = mine
            if self._file is None:
                return
            heads = {str(epoch): head for epoch, head in self._heads.items()}
            content = {"view": self._view.to_json(), "checkpoint": self._note.decode(), "heads": heads}
            try:
                write_atomically(self._file, json.dumps(content))
            except OSError as error:
                log.warning("the provider's log is not remembered: %s", error)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        if self._file is None:
            yield
            return
        with contextlib.ExitStack() as stack:
            try:
                self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                lock = stack.enter_context(self._file.with_suffix(".lock").open("a"))
                _lock(lock)
            except OSError as error:  # a disk without locks, or one that cannot be written
                log.warning("the provider's log is not remembered between launches: %s", error)
                self._file = None
            yield


def _lock(file: Any) -> None:
    """Others hold it for milliseconds; who cannot get it does without. Raises OSError."""
    for attempt in range(LOCK_ATTEMPTS):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if attempt == LOCK_ATTEMPTS - 1:
                raise
            time.sleep(0.01)


def read_witnesses(file: str) -> list[Verifier]:
    """The witnesses a tenant trusts: one key a line. Raises UnknownReason."""
    if not file:
        return []
    try:
        lines = [line.strip() for line in Path(file).read_text().splitlines()]
        keys = {line.split()[0] for line in lines if line and not line.startswith("#")}  # one witness, one voice
        found = [Verifier.parse(key) for key in sorted(keys)]
    except (OSError, CheckpointError) as error:
        raise UnknownReason(f"witnesses file {file}: {error}") from None
    if not found or any(verifier.kind != WITNESS for verifier in found):
        raise UnknownReason(f"witnesses file {file}: expected one witness's key a line (name+id+key)")
    return found
