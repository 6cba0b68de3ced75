"""A provider process with a synthetic release, reached over loopback under mutual TLS; the evaluation is its node."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from evaluation.privacy.synthetic_release import GROUPS, Universe
from pharoah._settings import Settings
from pharoah_learning.release import Release
from pharoah_protocol.channels import Access
from pharoah_protocol.node_ticket import Ticket
from pharoah_protocol.v1 import NodeTicket
from pharoah_provider.certificates import Authority
from pharoah_provider.channel import operator_channel
from pharoah_provider.domain import Node
from pharoah_provider.storage.duckdb import DuckStorage
from tests.harness.site import free_port

NODE_KEY = Ed25519PrivateKey.from_private_bytes(b"n" * 32)
FACTS = ("device=evaluation",)


def node() -> Node:
    return Node("n1", NODE_KEY.public_key().public_bytes_raw(), "boot", FACTS, FACTS, (0,))


def ticket() -> NodeTicket:
    body, signature = Ticket.issue("n1", "boot", NODE_KEY, time.time())
    return NodeTicket(body=body, signature=signature)


def release_for_node(universe: Universe) -> Release:
    """The universe's release, about the node's own classes."""
    mine = {"server": node().facts_id, "device": node().device_id}
    chosen = {group for group in GROUPS if group in (("server", "a"), ("device", "gpu"))}
    rows = [row for row in universe.release.rows if (row.scope, row.group_id) in chosen]
    return Release(1, tuple(replace(row, group_id=mine[row.scope]) for row in rows))


@dataclass(frozen=True)
class ExchangeSite:
    folder: Path
    endpoint: str

    def settings(self, **changes: Any) -> Settings:
        pki = self.folder / "pki"
        return Settings(
            endpoint=self.endpoint,
            provider_key_file=str(self.folder / "provider.pub"),
            ca_file=str(pki / "ca.pem"),
            certificate_file=str(pki / "tenant-lab-one.pem"),
            certificate_key_file=str(pki / "tenant-lab-one.key"),
            state_folder=str(self.folder / "state"),
            timeout_seconds=30.0,
            **changes,
        )

    def operator(self) -> grpc.Channel:
        pki = self.folder / "pki"
        files = [(pki / name).read_bytes() for name in ("ca.pem", "operator-ops.key", "operator-ops.pem")]
        return operator_channel(Access(self.endpoint, credentials=grpc.ssl_channel_credentials(*files)))


@contextmanager
def exchange_site(
    folder: Path, release: Release, program: Sequence[str] = ("-m", "pharoah_provider.cli")
) -> Iterator[ExchangeSite]:
    """A provider process that ends with the context, also after an exception. `program` is what Python runs."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = Authority(folder / "pki", "pharoah.local")
    authority.issue("provider", ("127.0.0.1",))
    for name in ("tenant/lab/one", "operator/ops"):
        authority.issue(name)
    asyncio.run(_fill(folder / "p.duckdb", release))
    endpoint = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [sys.executable, *program, "serve", "--init", "--listen", endpoint, "--http", "127.0.0.1:0",
         "--db", folder / "p.duckdb", "--keys", folder / "keys", "--audit", folder / "audit",
         "--tls-cert", folder / "pki/provider.pem", "--tls-key", folder / "pki/provider.key",
         "--client-ca", folder / "pki/ca.pem", "--tenant-queries", "1000000", "--organisation-queries", "1000000",
         "--tenant-offers", "1000000"],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        assert process.stdout
        for line in process.stdout:
            if "provider key for tenants:" in line:
                (folder / "provider.pub").write_text(line.rpartition(":")[2].strip())
                break
        yield ExchangeSite(folder, endpoint)
    finally:
        process.terminate()
        try:
            process.wait(20)
        finally:
            process.kill()
            process.communicate()


async def _fill(database: Path, release: Release) -> None:
    store = DuckStorage(database)
    await store.nodes.put_node(node())
    await store.published.put_release(release)
    store.close()
