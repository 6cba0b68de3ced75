"""Secrets of a server: from a folder that only its owner can read, or from a key service. Never in a database or a log.

Names are `signing.key`, `hashed.key`, `names.key` and `epoch-N.seed`; each is 32 bytes. A secret is made once, by
`make_keys` or for a new epoch, and never replaced: a server whose secrets are gone stops, and does not become another.
"""

from __future__ import annotations

import re
import secrets
import shlex
import subprocess
from functools import cached_property
from pathlib import Path
from typing import Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah_serving.errors import StoreError
from pharoah_system.files import write_atomically
from pharoah_system.trusted_paths import (
    UntrustedPathError,
    check_trusted_folder,
    list_trusted_users,
    make_folder,
    own_content,
)

SECRET_BYTES = 32
COMMAND_SECONDS = 10.0
COMMAND_PREFIX = "command:"
SIGNING_KEY, HASHED_KEY, PSEUDONYM_KEY = "signing.key", "hashed.key", "names.key"
LASTING = (SIGNING_KEY, HASHED_KEY, PSEUDONYM_KEY)
_SEED = re.compile(r"epoch-(\d+)\.seed")


class KeySource(Protocol):
    """A source of secrets. Its methods raise StoreError naming the file or the command."""

    def secret(self, name: str) -> bytes:
        """A secret that must exist."""
        ...

    def make(self, name: str) -> bytes:
        """A new secret; StoreError when there is one under this name."""
        ...

    def has(self, name: str) -> bool:
        """Whether there is a secret under this name."""
        ...

    def forget(self, name: str) -> None:
        """Destroy a secret; nothing happens when there is none."""
        ...


class KeyFolder:
    """One file per secret, 0600."""

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        """`create` makes the folder. Raises StoreError when it is missing, or others can read or change it."""
        self._folder = folder
        try:
            if create:
                make_folder(folder)
            mode = folder.stat().st_mode
            check_trusted_folder(folder, list_trusted_users())
        except FileNotFoundError:
            raise StoreError(f"{folder}: {_missing('folder of keys')}") from None
        except UntrustedPathError as error:
            raise StoreError(f"{folder}: {error}") from None
        except OSError as error:
            raise StoreError(f"{folder}: {error.strerror}") from None
        if mode & 0o077:
            raise StoreError(f"{folder}: secrets must not be readable by others (chmod 700)")

    def __repr__(self) -> str:
        return f"KeyFolder({self._folder})"

    def secret(self, name: str) -> bytes:
        path = self._folder / name
        try:
            content = own_content(path)
        except FileNotFoundError:
            text = _missing("secret") if name in LASTING else "it is gone; restore it from a copy"
            raise StoreError(f"{path}: {text}") from None
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}") from None
        if len(content) != SECRET_BYTES:
            raise StoreError(f"{path}: {len(content)} bytes, expected {SECRET_BYTES}; restore it from a copy")
        return content

    def make(self, name: str) -> bytes:
        """Written atomically: a crash leaves no partial secret."""
        path, content = self._folder / name, secrets.token_bytes(SECRET_BYTES)
        if self.has(name):
            raise StoreError(f"{path}: there is one already, and a secret is never replaced")
        try:
            write_atomically(path, content, durable=True)
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}") from None
        return content

    def has(self, name: str) -> bool:
        return (self._folder / name).exists()

    def forget(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)


class _CommandFailed(StoreError):
    """A key service has ended with an exit code other than zero."""


class KeyCommand:
    """A key service behind a command: `COMMAND get|new|forget NAME`, the secret as hex on its standard output.

    `get` fails, or prints nothing, where there is no secret under the name; it must not make one. `new` must refuse a
    name that has a secret: a `get` that failed for another reason looks as if there was none.
    """

    def __init__(self, command: str) -> None:
        self._command = shlex.split(command)

    def __repr__(self) -> str:
        return f"KeyCommand({shlex.join(self._command)})"

    def secret(self, name: str) -> bytes:
        return self._ask("get", name)

    def make(self, name: str) -> bytes:
        if self.has(name):
            raise StoreError(f"{self._command[0]}: there is a {name} already, and a secret is never replaced")
        return self._ask("new", name)

    def has(self, name: str) -> bool:
        """Raises StoreError when the service gives no answer: a secret that is made then could be a second one."""
        try:
            return bool(self._run("get", name))
        except _CommandFailed:
            return False

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
            # A negative code is the number of a signal: somebody has ended the command before it could answer.
            answered = isinstance(error, subprocess.CalledProcessError) and error.returncode > 0
            kind = _CommandFailed if answered else StoreError
            raise kind(f"{self._command[0]} {verb} {name}: {type(error).__name__}") from None
        return done.stdout.strip()


class Keys:
    """The secrets of a server by their use."""

    def __init__(self, source: KeySource) -> None:
        self._source = source

    @cached_property
    def signing_key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self._source.secret(SIGNING_KEY))

    @cached_property
    def public(self) -> bytes:
        """The public key that tenants pin."""
        return self.signing_key.public_key().public_bytes_raw()

    @cached_property
    def hashed_key(self) -> bytes:
        """The secret from which the keys of the hashed mode are derived."""
        return self._source.secret(HASHED_KEY)

    @cached_property
    def pseudonym_secret(self) -> bytes:
        """The secret from which our half of each period's pseudonym key is derived."""
        return self._source.secret(PSEUDONYM_KEY)

    def read_lasting(self) -> None:
        """Read the secrets that last, which are kept from then on. Raises StoreError for one that is missing.

        A server does it at its start: while it serves, its event loop must not wait for a key service.
        """
        _ = self.signing_key, self.hashed_key, self.pseudonym_secret

    def epoch_seed(self, epoch: int) -> bytes:
        """The seed of a sealed epoch. Raises StoreError when it is gone: a new one would open no row."""
        return self._source.secret(_seed(epoch))

    def new_epoch_seed(self, epoch: int) -> bytes:
        """A seed under which nothing was ever sealed: two tables under one seed would share keys. Raises StoreError for
        an epoch that has a seed: another epoch of this number may have been served."""
        return self._source.make(_seed(epoch))

    def forget_epoch(self, epoch: int) -> None:
        """Destroy the seed of an epoch that no audit can ask for any more."""
        self._source.forget(_seed(epoch))


def open_keys(source: str | Path) -> Keys:
    """The secrets of `source`: `command:CMD` for a key service, else a folder that exists. Raises StoreError."""
    return Keys(_source(source, create=False))


def make_keys(source: str | Path) -> Keys:
    """The secrets of `source`, once those that do not exist yet have been made. Raises StoreError."""
    opened = _source(source, create=True)
    for name in LASTING:
        if not opened.has(name):
            opened.make(name)
    return Keys(opened)


def is_command(source: str | Path) -> bool:
    """Whether the secrets come from a key service, so that there is no folder."""
    return str(source).startswith(COMMAND_PREFIX)


def newest_seed(folder: Path) -> int:
    """The largest number of an epoch whose seed lies in a folder of keys; 0 without any."""
    found = (_SEED.fullmatch(path.name) for path in folder.glob("epoch-*.seed"))
    return max((int(match[1]) for match in found if match), default=0)


def _source(source: str | Path, *, create: bool) -> KeySource:
    text = str(source)
    if is_command(text):
        return KeyCommand(text.removeprefix(COMMAND_PREFIX))
    return KeyFolder(Path(text), create=create)


def _missing(what: str) -> str:
    return (
        f"there is no such {what}. If there was one, mount or restore it: new keys are a new party, whom nobody knows. "
        "For a first start, `init` makes it"
    )


def _seed(epoch: int) -> str:
    return f"epoch-{epoch}.seed"
