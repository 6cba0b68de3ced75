"""Requests to witnesses over HTTP, as C2SP defines them (c2sp.org/tlog-witness): POST add-checkpoint."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

from pharoah_protocol.log.checkpoint import WITNESS, CheckpointError, Note, SignatureLine, Verifier
from pharoah_provider.transparency_log import Witness, WitnessError
from pharoah_serving.errors import ProviderError
from pharoah_system.bounded_reading import UnreadableInput, read_text
from pharoah_system.http_address import HttpAddress, HttpAddressError
from pharoah_system.http_client import post

TIMEOUT_SECONDS = 5.0
"""The deadline of one request."""
MAX_ANSWER_BYTES = 1 << 16
"""A cosignature has about 200 bytes; the limit bounds what a malicious witness makes us read."""
_CONFLICT = 409
"""The witness has seen another size of the log, and states it (c2sp.org/tlog-witness)."""
_MAX_SIZE = 19
"""Digits of a size that fits into 63 bits."""


def read_witnesses(file: Path | None) -> list[Witness]:
    """Witnesses of a file of `KEY URL` lines. Raises ProviderError naming file and line."""
    if file is None:
        return []
    try:
        lines = read_text(file).splitlines()
    except OSError as error:
        raise ProviderError(f"{file}: {error.strerror}") from None
    except UnreadableInput as error:
        raise ProviderError(str(error)) from None
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            key, url = line.split()
            verifier = Verifier.parse(key)
            address = HttpAddress.from_url(f"{url.rstrip('/')}/add-checkpoint")
        except HttpAddressError as error:
            raise ProviderError(f"{file}:{number}: {error}") from None
        except (ValueError, CheckpointError) as error:
            raise ProviderError(f"{file}:{number}: expected `name+id+key URL` ({error})") from None
        if verifier.kind != WITNESS:
            raise ProviderError(f"{file}:{number}: expected the key of a witness and an http(s) URL")
        found.append(Witness(verifier, _Client(verifier, address)))
    return found


class _Client:
    def __init__(self, verifier: Verifier, address: HttpAddress) -> None:
        self._verifier, self._address = verifier, address

    def __call__(self, old_size: int, proof: Sequence[bytes], note: Note) -> SignatureLine:
        head = "\n".join([f"old {old_size}", *(base64.b64encode(part).decode() for part in proof)])
        body = f"{head}\n\n".encode() + note.encode()
        try:
            answer = post(
                self._address,
                body,
                content_type="text/plain",
                limit_seconds=TIMEOUT_SECONDS,
                max_body_bytes=MAX_ANSWER_BYTES,
            )
        except OSError as error:
            raise WitnessError(str(error)) from None
        if not answer.is_success:
            seen = answer.body.strip() if answer.status == _CONFLICT else b""
            size = int(seen) if seen.isdigit() and len(seen) <= _MAX_SIZE else None
            raise WitnessError(f"{self._address.origin} answers {answer.status}", size)
        return self._line(note, answer.body)

    def _line(self, note: Note, cosignature: bytes) -> SignatureLine:
        try:
            cosigned = Note.decode(note.checkpoint.body + b"\n" + cosignature)
        except CheckpointError:
            raise WitnessError(f"{self._address.origin}: its answer is not a cosignature") from None
        for line in cosigned.signatures:
            if Note(note.checkpoint, (line,)).find_cosign_time(self._verifier) is not None:
                return line
        raise WitnessError(f"{self._address.origin}: its cosignature is not valid")
