"""A real provider process with tenants of four organisations that use it, and with attackers.

It is served as the product is: on a port with TLS, where every caller has a certificate, or on a Unix socket, where
every caller has a token. The two nodes have agents in name only: whoever floods signs their tickets with keys that
everybody here knows (`tests.harness.loopback`).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pharoah._settings import Settings
from pharoah_protocol.channels import Access, AccessFiles
from pharoah_provider.certificates import DENIED, Authority
from pharoah_serving.keys import open_keys
from tests.harness.exchange import RELEASE
from tests.harness.loopback import KEYS
from tests.harness.publisher import fill
from tests.harness.site import free_port
from tests.harness.sockets import socket_folder
from tests.harness.tokens import write_list, write_token

NODES = tuple(KEYS)
USERS = ("tenant/one/a", "tenant/two/a", "tenant/three/a", "tenant/four/a")
"""Tenants of four organisations that use the provider as it is meant."""
WORST_TENANT, WORST_AGENT = "tenant/worst/a", "agent/n2"
CALLERS = (*USERS, WORST_TENANT, *(f"agent/{name}" for name in NODES))
DENIED_CALLER = "tenant/denied/a"
"""Its certificate is on the deny list. The handshake succeeds, so this is the strongest stranger that TLS lets in."""
QUOTAS = ("--tenant-offers", "100000", "--tenant-queries", "100000", "--organisation-queries", "100000")
"""A day's verdicts of the four tenants pass within minutes here."""
STOP_SECONDS = 20.0


@dataclass(frozen=True)
class Entrance:
    """Where a provider listens, and what callers show there."""

    endpoint: str
    options: tuple[str, ...]
    """What `pharoah-provider serve` is given besides."""
    files: Callable[[str], AccessFiles]
    """The files of a caller, such as `tenant/one/a`."""


@dataclass
class FloodedSite:
    """Where the provider is reached; `process` runs it."""

    folder: Path
    entrance: Entrance
    metrics: str
    process: subprocess.Popen[str]

    @property
    def endpoint(self) -> str:
        return self.entrance.endpoint

    def access(self, caller: str) -> Access:
        """How a caller reaches the provider."""
        return Access.from_files(self.endpoint, self.entrance.files(caller))

    def settings(self, user: str, **changes: Any) -> Settings:
        """How a tenant calls: private mode, its own state folder."""
        files = self.entrance.files(user)
        return Settings(
            endpoint=self.endpoint,
            provider_key_file=str(self.folder / "provider.pub"),
            token_file=str(files.token or ""),
            ca_file=str(files.ca or ""),
            certificate_file=str(files.certificate or ""),
            certificate_key_file=str(files.key or ""),
            state_folder=str(self.folder / f"state-{_stem(user)}"),
            timeout_seconds=30.0,
            **changes,
        )

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.communicate()

    def restart(self) -> None:
        """The same provider again: same files, same address."""
        self.process = _served(self.folder, self.entrance, self.metrics)


@contextmanager
def site_with_certificates(folder: Path) -> Iterator[FloodedSite]:
    """A provider on a port of this machine, with TLS."""
    pki = folder / "pki"
    authority = Authority(pki, "pharoah.local")
    authority.issue("provider", ("127.0.0.1",))
    for name in (*CALLERS, DENIED_CALLER):
        authority.issue(name)
    authority.deny(DENIED_CALLER)
    names = {"--tls-cert": "provider.pem", "--tls-key": "provider.key", "--client-ca": "ca.pem", "--deny-list": DENIED}
    options = tuple(part for flag, name in names.items() for part in (flag, str(pki / name)))
    with _running(folder, Entrance(f"127.0.0.1:{free_port()}", options, lambda who: certificate(pki, who))) as site:
        yield site


@contextmanager
def site_on_a_socket(
    folder: Path, callers: Sequence[str] = CALLERS, prepare: Callable[[Path], None] = lambda _: None
) -> Iterator[FloodedSite]:
    """A provider on a Unix socket that knows these callers. `prepare` is given the folder before it starts."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = {name: f"{name.replace('/', ' ', 1)} {secrets.token_urlsafe(32)}" for name in callers}
    write_list(folder / "tokens", lines.values())
    files = {name: AccessFiles(token=write_token(folder / f"{_stem(name)}.token", lines[name])) for name in callers}
    with socket_folder() as sockets:
        entrance = Entrance(f"unix:{sockets}/p.sock", ("--tokens", str(folder / "tokens")), files.__getitem__)
        with _running(folder, entrance, prepare) as site:
            yield site


def certificate(pki: Path, caller: str) -> AccessFiles:
    """The certificate that the authority in a folder has issued to a caller."""
    return AccessFiles(pki / "ca.pem", pki / f"{_stem(caller)}.pem", pki / f"{_stem(caller)}.key")


@contextmanager
def _running(
    folder: Path, entrance: Entrance, prepare: Callable[[Path], None] = lambda _: None
) -> Iterator[FloodedSite]:
    """A provider process that ends with the context, also after an exception."""
    asyncio.run(fill(folder, RELEASE, NODES))
    prepare(folder)
    (folder / "provider.pub").write_text(open_keys(folder / "keys").public.hex())
    metrics = f"127.0.0.1:{free_port()}"
    site = FloodedSite(folder, entrance, metrics, _served(folder, entrance, metrics))
    try:
        yield site
    finally:
        site.process.terminate()
        try:
            site.process.wait(STOP_SECONDS)
        finally:
            site.process.kill()
            site.process.communicate()


def _served(folder: Path, entrance: Entrance, metrics: str) -> subprocess.Popen[str]:
    """A provider process that listens."""
    with (folder / "provider.log").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "pharoah_provider.cli", "serve", "--listen", entrance.endpoint, "--http", metrics,
             "--db", folder / "p.duckdb", "--keys", folder / "keys", "--audit", folder / "audit",
             *entrance.options, *QUOTAS],
            stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
    assert process.stdout
    if any("provider key for tenants:" in line for line in process.stdout):
        return process
    process.communicate()
    raise RuntimeError(f"the provider has ended; its log says why: {(folder / 'provider.log').read_text()[-500:]}")


def _stem(caller: str) -> str:
    """The name of a caller's files, as the authority has them."""
    return caller.replace("/", "-")
