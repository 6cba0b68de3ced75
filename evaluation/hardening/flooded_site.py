"""A real provider process on loopback, whose callers have tokens: four tenants that use it, and attackers.

The two nodes have agents in name only: whoever floods signs their tickets with keys that everybody here knows.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah._settings import Settings
from pharoah_learning.release import Release
from pharoah_protocol.node_ticket import Ticket
from pharoah_protocol.v1 import Hello, NodeTicket
from pharoah_provider.domain import Node
from pharoah_provider.storage.duckdb import DuckStorage
from tests.harness.site import free_port

FACTS = ("device=evaluation",)
NODES = ("n1", "n2")
USERS = ("one/a", "two/a", "three/a", "four/a")
"""Tenants of four organisations that use the provider as it is meant."""
CALLERS = {"tenant": (*USERS, "worst/a"), "agent": NODES, "operator": ("ops",)}
STOP_SECONDS = 20.0


def _key(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(name.encode() * 16)


def token(name: str) -> str:
    """The token of a caller."""
    return f"token-of-{name.replace('/', '-')}-{'x' * 16}"


def ticket(name: str) -> NodeTicket:
    """A fresh ticket of a node."""
    body, signature = Ticket.issue(name, "boot", _key(name), time.time())
    return NodeTicket(body=body, signature=signature)


def hello(name: str) -> Hello:
    """The first message of a node's agent."""
    public = _key(name).public_key().public_bytes_raw()
    return Hello(node=name, ticket_key=public, boot_id="boot", server_facts=FACTS, device_facts=FACTS, cpus=[0])


@dataclass
class FloodedSite:
    """Where the provider is reached; `process` runs it."""

    folder: Path
    endpoint: str
    metrics: str
    process: subprocess.Popen[str]

    def settings(self, user: str, **changes: Any) -> Settings:
        """How a tenant calls: private mode, its own state folder."""
        name = user.replace("/", "-")
        return Settings(
            endpoint=self.endpoint,
            provider_key_file=str(self.folder / "provider.pub"),
            token_file=str(self.folder / f"{name}.token"),
            state_folder=str(self.folder / f"state-{name}"),
            timeout_seconds=30.0,
            **changes,
        )

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        """The same provider again: same files, same port."""
        self.process = _served(self.folder, self.endpoint, self.metrics)


@contextmanager
def flooded_site(folder: Path, release: Release) -> Iterator[FloodedSite]:
    """A provider process that ends with the context, also after an exception."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{role} {name} {token(name)}" for role, names in CALLERS.items() for name in names]
    _write(folder / "tokens", "\n".join(lines) + "\n")
    for names in CALLERS.values():
        for name in names:
            _write(folder / f"{name.replace('/', '-')}.token", token(name))
    asyncio.run(_fill(folder / "p.duckdb", release))
    endpoint, metrics = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    site = FloodedSite(folder, endpoint, metrics, _served(folder, endpoint, metrics))
    try:
        yield site
    finally:
        site.process.terminate()
        try:
            site.process.wait(STOP_SECONDS)
        finally:
            site.process.kill()
            site.process.wait()


def _served(folder: Path, endpoint: str, metrics: str) -> subprocess.Popen[str]:
    """A provider process that listens."""
    quotas = [part for name in ("tenant-offers", "tenant-queries", "organisation-queries") for part in (name, "100000")]
    options = [f"--{part}" if index % 2 == 0 else part for index, part in enumerate(quotas)]
    log = (folder / "provider.log").open("a")
    with log:
        process = subprocess.Popen(
            [sys.executable, "-m", "pharoah_provider.cli", "serve", "--listen", endpoint, "--http", metrics,
             "--db", folder / "p.duckdb", "--keys", folder / "keys", "--audit", folder / "audit",
             "--tokens", folder / "tokens", *options],
            stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
    assert process.stdout
    for line in process.stdout:
        if "provider key for tenants:" in line:
            (folder / "provider.pub").write_text(line.rpartition(":")[2].strip())
            return process
    process.wait()
    raise RuntimeError(f"the provider has ended; see {folder}/provider.log")


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)


async def _fill(database: Path, release: Release) -> None:
    store = DuckStorage(database)
    for name in NODES:
        public = _key(name).public_key().public_bytes_raw()
        await store.nodes.put_node(Node(name, public, "boot", FACTS, FACTS, (0,)))
    await store.published.put_release(release)
    store.close()
