"""Identities of callers: names in certificates. On a Unix socket tokens identify callers (`pharoah_serving.tokens`)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from pharoah_protocol.vocabulary import Role
from pharoah_serving.context import Context
from pharoah_serving.principals import Principal

if TYPE_CHECKING:
    from pharoah_serving.peer_certificates import PeerCertificates

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
_PATH = re.compile(rf"(tenant)/({_NAME}(?:/{_NAME})?)|(agent|operator)/({_NAME})")

RESERVED_NODES = frozenset({
    "all", "any", "default", "none", "null",  # scontrol(1), slurm.conf(5): words in the place of a node's name
    "localhost", "localhost.localdomain", "localhost4", "localhost6", "ip6-localhost",  # any machine means itself
})  # fmt: skip
"""Words that are no names of nodes, in any case: to a scheduler they mean all of its nodes, or whichever it is on."""


class Identities(Protocol):
    """Finds out who makes a call."""

    def identify(self, context: Context) -> Principal | None:
        """The caller of a call; None for an unknown one."""
        ...


class Certificates:
    """Names from client certificates: `spiffe://DOMAIN/tenant/ORGANISATION/ACCOUNT`, `/agent/NODE`, `/operator/NAME`.

    gRPC has checked the certificate against the trust bundle when the connection began; `peers` knows what has changed
    since then. Common names are ignored.
    """

    def __init__(self, domain: str, peers: PeerCertificates | None = None) -> None:
        self._prefix, self._peers = f"spiffe://{domain}/", peers

    def identify(self, context: Context) -> Principal | None:
        peer = context.auth_context()
        if self._peers is not None and not all(
            self._peers.accepts(bytes(pem)) for pem in peer.get("x509_pem_cert", [b""])
        ):
            return None
        names = peer.get("peer_spiffe_id", ())
        return self.principal(bytes(name).decode(errors="replace") for name in names)

    def principal(self, names: Iterable[str]) -> Principal | None:
        """None unless there is exactly one name, of this domain and of a known form."""
        ids = list(names)
        if len(ids) != 1 or not ids[0].startswith(self._prefix):
            return None
        return principal_of(ids[0].removeprefix(self._prefix))


def principal_of(path: str) -> Principal | None:
    """Who `tenant/ORGANISATION[/ACCOUNT]`, `agent/NODE` or `operator/NAME` is; None for any other form, and for an
    agent with a reserved word in place of a node."""
    if (match := _PATH.fullmatch(path)) is None:
        return None
    role, name, *_ = (part for part in match.groups() if part)
    if role == Role.AGENT and is_reserved_node(name):
        return None
    return Principal(Role(role), name)


def is_reserved_node(name: str) -> bool:
    """Whether a scheduler reads this name as something else than one node."""
    return name.lower() in RESERVED_NODES


def why_no_node(name: str) -> str:
    """The message about a reserved name."""
    return f"{name} is no name of a node: a scheduler reads it as all nodes, or as whichever it is on; choose another"
