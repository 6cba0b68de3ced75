"""Tokens of callers on one machine: a private file lists a hash of each, and the caller alone has the token.

`new_token` makes a token and adds its hash to the list, and `revoke` removes a name. A running server reads the list
again when it changes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pharoah_protocol.channels import MIN_TOKEN_CHARACTERS
from pharoah_protocol.vocabulary import Role
from pharoah_serving.context import Context
from pharoah_serving.errors import ProviderError
from pharoah_serving.identity import is_reserved_node, principal_of, why_no_node
from pharoah_serving.principals import Principal
from pharoah_system.files import create_exclusively, write_atomically
from pharoah_system.trusted_paths import UntrustedPathError, private_content

log = logging.getLogger("pharoah.provider.services")

TOKEN_BYTES = 32
"""Random bytes of a token: as many as its hash has, so that a plain hash cannot be inverted by guessing."""
SETTLE_SECONDS = 1.0
"""A list that has changed is read once more after this time: two changes within one tick of the clock of a file system
(10 ms at most on Linux, `CONFIG_HZ=100`) leave the same time stamp."""
_HASH = re.compile(r"sha256:([0-9a-f]{64})")
_FORM = "expected `role name sha256:HASH`, as `pharoah-provider token ROLE NAME` writes it"


class TokenFileError(ProviderError):
    """A list of tokens that cannot be used; the message names file and line, and never a token."""


class _Stamp(NamedTuple):
    """What changes when a file is written, replaced or given other permissions."""

    modified_ns: int
    changed_ns: int
    size_bytes: int
    inode: int


class Tokens:
    """Finds callers by the bearer tokens of a list.

    While the server runs, a line with a mistake changes nothing: the tokens that were read before stay in force. A list
    that is gone, that cannot be read, or that others could have read or written lets nobody call.
    """

    def __init__(self, file: Path, steady: Callable[[], float] = time.monotonic) -> None:
        """Raises TokenFileError."""
        self._file, self._steady = file, steady
        # The stamp first: a change while the list is read is then seen with the next call.
        self._stamp, self._read_at, self._settled = _stamp(file), steady(), False
        self._tokens = read_tokens(file)
        self._said = ""

    def identify(self, context: Context) -> Principal | None:
        """The caller of a call; None for an unknown one."""
        return self.principal(context.invocation_metadata())

    def principal(self, metadata: Any) -> Principal | None:
        """The caller with this metadata. The first authorization header counts."""
        self._refresh()
        given = next((str(value) for key, value in metadata or () if key == "authorization"), "")
        token = given.removeprefix("Bearer ")
        # Looking up a hash takes a time that says nothing about any token.
        return self._tokens.get(_digest(token)) if len(token) >= MIN_TOKEN_CHARACTERS else None

    def _refresh(self) -> None:
        stamp, now = _stamp(self._file), self._steady()
        same = stamp == self._stamp
        if same and (self._settled or now < self._read_at + SETTLE_SECONDS):
            return
        self._stamp, self._read_at, self._settled = stamp, now, same
        try:
            self._tokens = read_tokens(self._file)
            self._said = ""
        except _MistakeInLine as error:
            self._say(f"the tokens read before stay in force: {error}")
        except TokenFileError as error:
            self._tokens = {}
            self._say(f"nobody may call: {error}")

    def _say(self, what: str) -> None:
        """Log it once, although a list is read twice."""
        if what != self._said:
            log.error("%s", what)
        self._said = what


class _MistakeInLine(TokenFileError):
    """A line that cannot be read, in a file that nobody else can change."""


def read_tokens(file: Path) -> dict[bytes, Principal]:
    """Callers by the hash of their token. Raises TokenFileError."""
    return {line.digest: line.principal for line in _lines(file) if line.principal is not None}


def new_token(file: Path, role: str, name: str, out: Path) -> Principal:
    """Make a token, write it to the new file `out` (0600), and add its hash to the list. Raises TokenFileError."""
    principal = principal_of(f"{role}/{name}")
    if principal is None:
        if role == Role.AGENT and is_reserved_node(name):
            raise TokenFileError(why_no_node(name))
        raise TokenFileError(f"{role} {name}: not a role ({', '.join(Role)}) with a name of letters, digits, . _ and -")
    with _lock(file):
        lines = _lines(file) if file.exists() else []
        if any(line.principal == principal for line in lines):
            raise TokenFileError(f"{role} {name} has a token already; revoke that first (--revoke {name})")
        token = secrets.token_urlsafe(TOKEN_BYTES)
        _write_new(out, token)
        try:
            _write(file, [*(line.text for line in lines), f"{role} {name} sha256:{_digest(token).hex()}"])
        except TokenFileError:
            out.unlink()
            raise
    return principal


def revoke(file: Path, name: str) -> list[Principal]:
    """Remove the tokens of a name, in every role. Gives who has lost one. Raises TokenFileError."""
    with _lock(file):
        lines = _lines(file)
        revoked = [line.principal for line in lines if line.principal is not None and line.principal.name == name]
        if not revoked:
            raise TokenFileError(f"token file {file}: {name} has no token")
        _write(file, [line.text for line in lines if line.principal not in revoked])
    return revoked


class _Line(NamedTuple):
    text: str
    principal: Principal | None = None
    """None for a comment and an empty line."""
    digest: bytes = b""


def _lines(file: Path) -> list[_Line]:
    return [_parse(f"{file}:{number}", text) for number, text in enumerate(_content(file).splitlines(), 1)]


def _parse(where: str, text: str) -> _Line:
    if not text.strip() or text.startswith("#"):
        return _Line(text)
    fields = text.split()
    if len(fields) != 3 or fields[0] not in tuple(Role):
        raise _MistakeInLine(f"{where}: {_FORM}; a role is one of {', '.join(Role)}")
    if (principal := principal_of(f"{fields[0]}/{fields[1]}")) is None:
        if fields[0] == Role.AGENT and is_reserved_node(fields[1]):
            raise _MistakeInLine(f"{where}: {why_no_node(fields[1])}")
        raise _MistakeInLine(f"{where}: {fields[1]} is not a name of {fields[0]}s")
    if (match := _HASH.fullmatch(fields[2])) is None:
        raise _MistakeInLine(f"{where}: {_FORM}; a token itself does not belong into this file")
    return _Line(text, principal, bytes.fromhex(match[1]))


def _content(file: Path) -> str:
    try:
        return private_content(file).decode(errors="replace")
    except UntrustedPathError as error:
        raise TokenFileError(f"token file {error}") from None
    except OSError as error:
        hint = "`pharoah-provider token ROLE NAME` makes it; with certificates none is needed (--tls-cert)"
        raise TokenFileError(f"token file {file}: {error.strerror}; it lists who may call: {hint}") from None


def _stamp(file: Path) -> _Stamp | None:
    """None where nothing can be found."""
    try:
        found = file.stat()
    except OSError:
        return None
    return _Stamp(found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


@contextlib.contextmanager
def _lock(file: Path) -> Iterator[None]:
    """Alone among the processes that change lists in this folder. Raises TokenFileError."""
    try:
        folder = os.open(file.absolute().parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise TokenFileError(f"token file {file}: {error.strerror}") from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _write(file: Path, lines: list[str]) -> None:
    try:
        write_atomically(file, "".join(f"{line}\n" for line in lines), durable=True)
    except OSError as error:
        raise TokenFileError(f"token file {file}: {error.strerror}") from None


def _write_new(out: Path, token: str) -> None:
    try:
        create_exclusively(out, f"{token}\n")
    except OSError as error:
        raise TokenFileError(f"{out}: {error.strerror}; choose another file with --out") from None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
