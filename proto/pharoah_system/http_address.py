"""Whom an HTTP exchange is with, and what can go wrong in one.

`HttpError`
├── `HttpAddressError`: the URL cannot be used.
├── `UnreachableError`: no connection, or it broke.
├── `OverdueError`: the exchange has not ended by its deadline.
└── `InvalidAnswerError`: what came is no answer of HTTP, or is beyond its bounds.

No error and no `origin` holds a password, a path or a query: those of a webhook are secrets.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import quote, unquote, urlsplit

MAX_URL_CHARACTERS = 8192
_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}")
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f]")
_SAFE = "%/:=&?~+!$,;'@()*[]"
"""Characters of a path or a query that stay as they are (RFC 3986, section 3.3)."""


class Phase(StrEnum):
    """How far an exchange has come."""

    ADDRESS = "reading its URL"
    NAME = "looking up its name"
    CONNECT = "connecting"
    TLS = "agreeing on TLS"
    CHECK = "seeing who serves it"
    SEND = "sending the request"
    STATUS = "waiting for the status"
    HEADERS = "reading the headers"
    BODY = "reading the body"


class HttpError(OSError):
    """An exchange that failed; the message names the host and how far it came."""

    def __init__(self, origin: str, phase: Phase, why: str) -> None:
        super().__init__(f"{origin}: {why} ({phase})" if origin else why)
        self.origin, self.phase = origin, phase


class HttpAddressError(HttpError, ValueError):
    """A URL that cannot be used."""

    def __init__(self, why: str) -> None:
        super().__init__("", Phase.ADDRESS, why)


class UnreachableError(HttpError):
    """There is no connection, or it broke."""


class OverdueError(HttpError, TimeoutError):
    """The exchange has not ended by its deadline."""


class InvalidAnswerError(HttpError):
    """What came is no answer of HTTP, or has more of something than it may have."""


@dataclass(frozen=True)
class HttpAddress:
    """A URL in parts that can be sent as they are."""

    scheme: str
    host: str
    """A name in ASCII or an address, without brackets."""
    port: int
    target: str = field(repr=False)
    """Path and query."""
    authorization: str = field(default="", repr=False)
    """The value of the header, from the user and the password in the URL; empty for none."""

    @classmethod
    def from_url(cls, url: str) -> HttpAddress:
        """Raises HttpAddressError, which does not repeat the URL: it may hold a password."""
        if len(url) > MAX_URL_CHARACTERS or _UNPRINTABLE.search(url):
            raise HttpAddressError(
                f"the URL has a blank, a control character, or more than {MAX_URL_CHARACTERS} characters"
            )
        try:
            parts = urlsplit(url)
            scheme, host, port = parts.scheme.lower(), parts.hostname or "", parts.port
        except ValueError:
            raise HttpAddressError("the URL has no valid host and port, as http://HOST:PORT/PATH has") from None
        if scheme not in _PORTS:
            raise HttpAddressError("the URL does not begin with http:// or https://")
        port = _PORTS[scheme] if port is None else port
        if not port:
            raise HttpAddressError("the URL has port 0; expected 1 to 65535")
        target = quote(parts.path or "/", safe=_SAFE) + (f"?{quote(parts.query, safe=_SAFE)}" if parts.query else "")
        return cls(scheme, _ascii_host(host), port, target, _basic(parts.username, parts.password))

    @property
    def uses_tls(self) -> bool:
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """Host and port as the header `Host` has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """What logs and errors name it by."""
        return f"{self.scheme}://{self.authority}"


def _ascii_host(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        name = host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        name = ""
    if not _HOST.fullmatch(name):
        raise HttpAddressError("the URL has no host, or one that is neither a name nor an address")
    return name


def _basic(user: str | None, password: str | None) -> str:
    """RFC 7617."""
    if user is None and password is None:
        return ""
    pair = f"{unquote(user or '')}:{unquote(password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"
