"""The provider's secrets: one folder, owner-only, never in the database and never logged."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah_provider.errors import StoreError


class KeyFolder:
    """Signing key and epoch seeds, made when first asked for, files 0600."""

    def __init__(self, folder: Path) -> None:
        """Raises StoreError when the folder can be read by others."""
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_mode & 0o077:
            raise StoreError(f"{folder}: secrets must not be readable by others (chmod 700)")

    def signing_key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self._secret("signing.key"))

    def public_key_hex(self) -> str:
        """What tenants pin."""
        return self.signing_key().public_key().public_bytes_raw().hex()

    def epoch_seed(self, epoch: int) -> bytes:
        return self._secret(f"epoch-{epoch}.seed")

    def _secret(self, name: str) -> bytes:
        path = self._folder / name
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            content = path.read_bytes()
            if len(content) != 32:
                raise StoreError(f"{path}: {len(content)} bytes, expected 32; restore it from a copy") from None
            return content
        with os.fdopen(descriptor, "wb") as file:
            file.write(content := secrets.token_bytes(32))
            file.flush()
            os.fsync(file.fileno())
        return content
