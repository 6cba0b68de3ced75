"""Identities of callers: certificates with SPIFFE names, or tokens on loopback. One or the other, never both."""

from __future__ import annotations

import hmac
import logging
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from pharoah_protocol.vocabulary import Role
from pharoah_serving import Context
from pharoah_serving.errors import ProviderError
from pharoah_serving.principals import Principal

log = logging.getLogger("pharoah.provider.services")

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
_PATH = re.compile(rf"(tenant)/({_NAME}(?:/{_NAME})?)|(agent|operator)/({_NAME})")


class TokenFileError(ProviderError):
    """A token file that cannot be read; the message names file and line."""


class Identities(Protocol):
    """Finds out who makes a call."""

    def of(self, context: Context) -> Principal | None:
        """The caller of a call; None for an unknown one."""
        ...


class Certificates:
    """Names from client certificates: `spiffe://DOMAIN/tenant/ORGANISATION/ACCOUNT`, `/agent/NODE`, `/operator/NAME`.

    gRPC has checked the certificate against the trust bundle. Common names are ignored.
    """

    def __init__(self, domain: str) -> None:
        self._prefix = f"spiffe://{domain}/"

    def of(self, context: Context) -> Principal | None:
        names = context.auth_context().get("peer_spiffe_id", ())
        return self.principal(bytes(name).decode(errors="replace") for name in names)

    def principal(self, names: Iterable[str]) -> Principal | None:
        """None unless there is exactly one name, of this domain and of a known form."""
        ids = list(names)
        match = _PATH.fullmatch(ids[0].removeprefix(self._prefix)) if len(ids) == 1 else None
        if match is None or not ids[0].startswith(self._prefix):
            return None
        role, name, *_ = (part for part in match.groups() if part)
        return Principal(Role(role), name)


class Tokens:
    """Bearer tokens of a file with one `role name token` per line; read again when it changes. While the provider runs,
    a file with a mistake changes nothing: the tokens that were read before stay in force."""

    def __init__(self, file: Path) -> None:
        """Raises TokenFileError."""
        self._file = file
        self._stamp = 0
        self._tokens: list[tuple[Principal, bytes]] = []
        self._refresh()

    def of(self, context: Context) -> Principal | None:
        return self.principal(context.invocation_metadata())

    def principal(self, metadata: Any) -> Principal | None:
        self._refresh()
        given = next((value for key, value in metadata or () if key == "authorization"), "")
        token = str(given).removeprefix("Bearer ").encode()
        found = None
        for principal, known in self._tokens:
            if hmac.compare_digest(known, token):
                found = principal
        return found

    def _refresh(self) -> None:
        try:
            stamp = self._file.stat().st_mtime_ns
            if stamp == self._stamp:
                return
            known, self._stamp = self._stamp, stamp
            self._tokens = _parse(self._file)
        except OSError as error:
            if not self._stamp:
                hint = "one `role name token` a line, or certificates (--tls-cert, --tls-key, --client-ca)"
                raise TokenFileError(
                    f"token file {self._file}: {error.strerror}; it lists who may call: {hint}"
                ) from None
        except TokenFileError as error:
            if not known:
                raise
            log.warning("the tokens read before stay in force: %s", error)


def _parse(file: Path) -> list[tuple[Principal, bytes]]:
    tokens = []
    for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.split()
        if len(fields) != 3 or fields[0] not in tuple(Role):
            raise TokenFileError(f"{file}:{number}: expected `role name token`, role one of {', '.join(Role)}")
        if not _PATH.fullmatch(f"{fields[0]}/{fields[1]}"):
            raise TokenFileError(f"{file}:{number}: {fields[1]} is not a name of {fields[0]}s")
        if len(fields[2]) < 16:
            raise TokenFileError(f"{file}:{number}: the token of {fields[1]} is shorter than 16 characters")
        tokens.append((Principal(Role(fields[0]), fields[1]), fields[2].encode()))
    return tokens
