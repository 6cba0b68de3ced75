"""Secrets of a server: from a folder that only its owner can read, or from a key service. Never in a database or a log.

Names are `signing.key`, `hashed.key`, `names.key` and `epoch-N.seed`; each is 32 bytes.
"""

from __future__ import annotations

import secrets
import shlex
import subprocess
from functools import cached_property
from pathlib import Path
from typing import Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah_protocol.files import write_atomically
from pharoah_serving.errors import StoreError

SECRET_BYTES = 32
COMMAND_SECONDS = 10.0


class KeySource(Protocol):
    """A source of secrets. Its methods raise StoreError naming the file or the command."""

    def secret(self, name: str) -> bytes:
        """A lasting secret; made at its first use."""
        ...

    def kept(self, name: str) -> bytes:
        """A secret that must exist."""
        ...

    def fresh(self, name: str) -> bytes:
        """A new secret under this name; an older one is destroyed."""
        ...

    def forget(self, name: str) -> None:
        """Destroy a secret; nothing happens when there is none."""
        ...


class KeyFolder:
    """One file per secret, 0600."""

    def __init__(self, folder: Path) -> None:
        """Raises StoreError when the folder can be read by others."""
        self._folder = folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            mode = folder.stat().st_mode
        except OSError as error:
            raise StoreError(f"{folder}: {error.strerror}") from None
        if mode & 0o077:
            raise StoreError(f"{folder}: secrets must not be readable by others (chmod 700)")

    def __repr__(self) -> str:
        return f"KeyFolder({self._folder})"

    def secret(self, name: str) -> bytes:
        path = self._folder / name
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return self._write(name)
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}") from None
        if len(content) != SECRET_BYTES:
            raise StoreError(f"{path}: {len(content)} bytes, expected {SECRET_BYTES}; restore it from a copy")
        return content

    def kept(self, name: str) -> bytes:
        if not (self._folder / name).exists():
            raise StoreError(f"{self._folder / name} is gone; restore it from a copy")
        return self.secret(name)

    def fresh(self, name: str) -> bytes:
        self.forget(name)
        return self._write(name)

    def forget(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)

    def _write(self, name: str) -> bytes:
        """Write a new secret atomically: a crash leaves no partial one."""
        content = secrets.token_bytes(SECRET_BYTES)
        try:
            write_atomically(self._folder / name, content, durable=True)
        except OSError as error:
            raise StoreError(f"{self._folder / name}: {error.strerror}") from None
        return content


class KeyCommand:
    """A key service behind a command: `COMMAND get|new|forget NAME`, the secret as hex on its standard output."""

    def __init__(self, command: str) -> None:
        self._command = shlex.split(command)

    def __repr__(self) -> str:
        return f"KeyCommand({shlex.join(self._command)})"

    def secret(self, name: str) -> bytes:
        return self._ask("get", name)

    def kept(self, name: str) -> bytes:
        return self._ask("get", name)

    def fresh(self, name: str) -> bytes:
        return self._ask("new", name)

    def forget(self, name: str) -> None:
        self._run("forget", name)

    def _ask(self, verb: str, name: str) -> bytes:
        try:
            secret = bytes.fromhex(self._run(verb, name))
        except ValueError:
            secret = b""
        if len(secret) != SECRET_BYTES:
            raise StoreError(f"{self._command[0]} {verb} {name}: did not print {SECRET_BYTES} bytes as hex")
        return secret

    def _run(self, verb: str, name: str) -> str:
        try:
            done = subprocess.run(
                [*self._command, verb, name], capture_output=True, text=True, timeout=COMMAND_SECONDS, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise StoreError(f"{self._command[0]} {verb} {name}: {type(error).__name__}") from None
        return done.stdout.strip()


class Keys:
    """The secrets of a server by their use."""

    def __init__(self, source: KeySource) -> None:
        self._source = source

    @cached_property
    def signing_key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self._source.secret("signing.key"))

    @cached_property
    def public(self) -> bytes:
        """The public key that tenants pin."""
        return self.signing_key.public_key().public_bytes_raw()

    @cached_property
    def hashed_key(self) -> bytes:
        """The secret from which the keys of the hashed mode are derived."""
        return self._source.secret("hashed.key")

    @cached_property
    def pseudonym_secret(self) -> bytes:
        """The secret from which our half of each period's pseudonym key is derived."""
        return self._source.secret("names.key")

    def epoch_seed(self, epoch: int) -> bytes:
        """The seed of a sealed epoch. Raises StoreError when it is gone: a new one would open no row."""
        return self._source.kept(_seed(epoch))

    def new_epoch_seed(self, epoch: int) -> bytes:
        """A seed under which nothing was ever sealed: two tables under one seed would share keys."""
        return self._source.fresh(_seed(epoch))

    def forget_epoch(self, epoch: int) -> None:
        """Destroy the seed of an epoch that no audit can ask for any more."""
        self._source.forget(_seed(epoch))


def open_keys(source: str | Path) -> Keys:
    """The secrets of `source`: `command:CMD` for a key service, else a folder. Raises StoreError."""
    text = str(source)
    return Keys(KeyCommand(text.removeprefix("command:")) if text.startswith("command:") else KeyFolder(Path(text)))


def _seed(epoch: int) -> str:
    return f"epoch-{epoch}.seed"
