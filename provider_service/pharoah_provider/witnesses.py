"""Requests to witnesses over HTTP, as C2SP defines them (c2sp.org/tlog-witness): POST add-checkpoint."""

from __future__ import annotations

import base64
import http.client
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from pharoah_protocol.log.checkpoint import WITNESS, CheckpointError, Note, SignatureLine, Verifier
from pharoah_provider.transparency_log import Witness, WitnessError
from pharoah_serving.errors import ProviderError

TIMEOUT_SECONDS = 5.0
LARGEST_ANSWER_BYTES = 1 << 16
"""A cosignature has about 200 bytes; the limit bounds what a malicious witness makes us read."""


def read_witnesses(file: Path | None) -> list[Witness]:
    """Witnesses of a file of `KEY URL` lines. Raises ProviderError naming file and line."""
    if file is None:
        return []
    try:
        lines = file.read_text().splitlines()
    except OSError as error:
        raise ProviderError(f"{file}: {error.strerror}") from None
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            key, url = line.split()
            verifier = Verifier.parse(key)
        except (ValueError, CheckpointError) as error:
            raise ProviderError(f"{file}:{number}: expected `name+id+key URL` ({error})") from None
        if verifier.kind != WITNESS or not url.startswith(("http://", "https://")):
            raise ProviderError(f"{file}:{number}: expected the key of a witness and an http(s) URL")
        found.append(Witness(verifier, _Client(verifier, url)))
    return found


class _Client:
    def __init__(self, verifier: Verifier, url: str) -> None:
        self._verifier, self._url = verifier, f"{url.rstrip('/')}/add-checkpoint"

    def __call__(self, old_size: int, proof: Sequence[bytes], note: Note) -> SignatureLine:
        head = "\n".join([f"old {old_size}", *(base64.b64encode(part).decode() for part in proof)])
        body = f"{head}\n\n".encode() + note.encode()
        request = urllib.request.Request(self._url, body, {"Content-Type": "text/plain"})
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
                cosignature = answer.read(LARGEST_ANSWER_BYTES)
        except urllib.error.HTTPError as error:
            raise WitnessError(f"{self._url} answers {error.code}", self._size_in(error)) from None
        except (OSError, http.client.HTTPException) as error:
            raise WitnessError(f"{self._url}: {error}") from None
        return self._line(note, cosignature)

    def _size_in(self, error: urllib.error.HTTPError) -> int | None:
        """The size that the witness has seen, if its refusal contains it; else None."""
        try:
            with error:
                text = error.read(200).strip() if error.code == 409 else b""
        except (OSError, http.client.HTTPException):
            return None
        return int(text) if text.isdigit() else None

    def _line(self, note: Note, cosignature: bytes) -> SignatureLine:
        try:
            cosigned = Note.decode(note.checkpoint.body + b"\n" + cosignature)
        except CheckpointError:
            raise WitnessError(f"{self._url}: its answer is not a cosignature") from None
        for line in cosigned.signatures:
            if Note(note.checkpoint, (line,)).cosigned_at(self._verifier) is not None:
                return line
        raise WitnessError(f"{self._url}: its cosignature is not valid")
