"""What this machine has verified of the provider: its log as far as it was read, and which witnesses have signed it.

Every answer is compared with everything seen before. An answer that does not fit is rejected, and what the provider has
signed of it is kept as evidence.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from pharoah._errors import UnknownReason
from pharoah.sidecar.log_memory import LogMemory, ShownHead, VerificationError
from pharoah_protocol.log.checkpoint import WITNESS, CheckpointError, Note, Verifier, log_origin, log_verifier
from pharoah_protocol.log.view import LogError, View
from pharoah_protocol.tables.epoch_head import EpochHead, verify_head
from pharoah_protocol.tables.signed_messages import RevokedRows, StatementError, read_revoked
from pharoah_system.bounded_reading import JsonLimits, UnreadableInput, parse_json, read_text
from pharoah_system.files import open_lock, write_atomically
from pharoah_system.trusted_paths import UntrustedFolderError, find_folder, make_folder, own_content

__all__ = ["FRESH_SECONDS", "LogClient", "ServedEpoch", "VerificationError", "read_witnesses"]

log = logging.getLogger("pharoah.sidecar")

FRESH_SECONDS = 900
"""How old the newest cosignature may be: a provider can hide the newest entries of its log for no longer than this."""
SKEW_SECONDS = 300
LOCK_ATTEMPTS = 50
MAX_MEMORY_BYTES = 8 << 20
"""Two heads of 4,096 classes have less than two megabytes in hexadecimal digits, everything else a few kilobytes."""


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
    """One provider's log, as this user has seen it on this machine. All sidecars share one file, which only grows."""

    def __init__(self, key: Ed25519PublicKey, witnesses: Sequence[Verifier], folder: Path | None) -> None:
        """`folder` is where to remember; None remembers nothing between launches."""
        self._key = key
        self._public = key.public_bytes_raw()
        self._witnesses = witnesses
        self._file = folder / f"{log_origin(self._public)}.json" if folder else None
        self._remembers = folder is not None
        self._memory = self._read_remembered() or LogMemory()

    @property
    def view(self) -> View:
        return self._memory.view

    @property
    def remembers(self) -> bool:
        """Whether what has been read was kept for later launches."""
        return self._remembers

    @property
    def size(self) -> int:
        """How many entries of the log have been read."""
        return self._memory.size

    def follow(self, entries: Sequence[bytes], checkpoint: bytes) -> bool:
        """Read on in the log; whether that was all of it. Raises VerificationError."""
        before = self._memory
        try:
            note = Note.decode(checkpoint)
            note.verify(log_verifier(self._public))
            if note.checkpoint.size < self.size:
                raise VerificationError(
                    "the provider's log is shorter than the one this machine has seen", before.other_log(checkpoint)
                )
            memory = before.read(entries)
        except (CheckpointError, LogError) as error:
            raise VerificationError(str(error)) from None
        tree = memory.view.frontier
        if tree.size < note.checkpoint.size and entries:
            self._memory = memory
            return False
        if tree.size != note.checkpoint.size or tree.root != note.checkpoint.root:
            evidence = {"kind": "two logs", "checkpoints": [before.note.decode(), checkpoint.decode()]}
            raise VerificationError("the provider's log is not the one this machine has seen", evidence)
        self._memory = replace(memory, note=checkpoint)
        return True

    def verify(self, body: bytes, signature: bytes, revoked: bytes, now: float) -> ServedEpoch:
        """The epoch the log names as its newest. Raises VerificationError, HeadError."""
        head = verify_head(body, signature, self._key, now)
        memory = self._memory.with_head(head.epoch, ShownHead(body.hex(), signature.hex()))
        try:
            memory.view.check(body, revoked)
            epoch, rows = read_revoked(revoked) if revoked else RevokedRows(epoch=head.epoch, rows=frozenset())
        except (LogError, StatementError) as error:
            raise VerificationError(str(error)) from None
        if epoch != head.epoch:
            raise VerificationError("the revoked rows are of another epoch")
        self._check_witnesses(now)
        self._memory = memory
        self._keep()
        return ServedEpoch(head, body, signature, memory.note, revoked, rows)

    def _check_witnesses(self, now: float) -> None:
        """More than half of the witnesses must have seen this very log, lately."""
        if not self._witnesses:
            return
        note = Note.decode(self._memory.note)
        times = [at for witness in self._witnesses if (at := note.find_cosign_time(witness)) is not None]
        fresh = [at for at in times if now - FRESH_SECONDS <= at <= now + SKEW_SECONDS]
        if 2 * len(fresh) <= len(self._witnesses):
            raise VerificationError(
                f"{len(fresh)} of {len(self._witnesses)} witnesses have cosigned the provider's log in the last "
                f"{FRESH_SECONDS // 60} minutes; more than half must"
            )

    def _read_remembered(self) -> LogMemory | None:
        """What was kept; None before the first time, and in a folder that others can change. Raises UnknownReason."""
        if self._file is None:
            return None
        try:
            find_folder(self._file.parent)
            if not self._file.exists():
                return None
        except FileNotFoundError:
            return None
        except UntrustedFolderError as error:
            log.warning("what is kept of the provider's log is not read: %s", error.strerror)
            self._remembers = False
            return None
        except OSError as error:
            raise UnknownReason(f"{self._file.parent}: {error.strerror}") from None
        try:
            limits = JsonLimits(max_bytes=MAX_MEMORY_BYTES)
            return LogMemory.from_json(parse_json(own_content(self._file), self._file, limits))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise UnknownReason(
                f"{self._file}: what this machine knew of the provider's log cannot be read ({why}); if the disk is "
                "at fault, remove the file: the log is then read anew"
            ) from None

    def _keep(self) -> None:
        """Together with what another sidecar has kept meanwhile. Raises VerificationError for two logs."""
        if self._file is None:
            return
        with contextlib.ExitStack() as stack:
            try:
                make_folder(self._file.parent)
                descriptor = open_lock(self._file.with_suffix(".lock"))
                stack.callback(os.close, descriptor)
                _lock(descriptor)
                problem = ""
            except OSError as error:  # a disk without locks, one that cannot be written, or many nodes at once
                problem = str(error)
            # The file is replaced as a whole, so it can be read without the lock.
            kept = self._read_remembered()
            self._memory = self._memory.join(kept) if kept else self._memory
            try:
                if not problem:
                    write_atomically(self._file, json.dumps(self._memory.to_json()))
            except OSError as error:
                problem = str(error)
        self._remembers = not problem
        if problem:
            log.warning("what was read of the provider's log is not kept: %s", problem)


def _lock(descriptor: int) -> None:
    """Others hold it for milliseconds; who cannot get it does without. Raises OSError."""
    for attempt in range(LOCK_ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
        lines = [line.strip() for line in read_text(Path(file)).splitlines()]
        keys = {line.split()[0] for line in lines if line and not line.startswith("#")}  # one witness, one voice
        found = [Verifier.parse(key) for key in sorted(keys)]
    except (OSError, UnreadableInput, CheckpointError) as error:
        raise UnknownReason(f"witnesses file {file}: {error}") from None
    if not found or any(verifier.kind != WITNESS for verifier in found):
        raise UnknownReason(f"witnesses file {file}: expected one witness's key a line (name+id+key)")
    return found
