"""Handshakes of strangers leave no line in the log of a server, however many they are."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from pharoah_protocol.channels import ServerRole
from pharoah_protocol.grpc_log import VARIABLE
from pharoah_provider.certificates import Authority, CertificateFiles
from tests.harness.site import free_port

HANDSHAKES = 20


def provider(folder: Path) -> list[str]:
    files = {"--db": "p.duckdb", "--keys": "keys", "--audit": "audit"}
    named = [part for option, name in files.items() for part in (option, str(folder / name))]
    return ["pharoah_provider.cli", "serve", "--init", "--http", f"127.0.0.1:{free_port()}", *named]


def auditor(folder: Path) -> list[str]:
    return ["pharoah_auditor.cli", "pseudonyms", "--init", "--folder", str(folder / "auditor")]


def refused_handshake(port: int, ca: Path, role: ServerRole) -> None:
    """A handshake without a certificate, up to the refusal."""
    tls = ssl.create_default_context(cafile=ca)
    tls.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", port), 10) as raw,
        suppress(OSError),
        tls.wrap_socket(raw, server_hostname=role.server_name) as stranger,
    ):
        assert stranger.recv(1) == b""


def said(command: list[str], files: CertificateFiles, ca: Path, role: ServerRole, verbosity: str) -> str:
    """What a server writes to standard error while strangers connect."""
    port = free_port()
    names = {"--tls-cert": files.certificate, "--tls-key": files.key, "--client-ca": ca}
    options = [part for option, path in names.items() for part in (option, str(path))]
    environ = {name: value for name, value in os.environ.items() if name != VARIABLE}
    with subprocess.Popen(
        [sys.executable, "-m", *command, "--listen", f"127.0.0.1:{port}", *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**environ, "PYTHONUNBUFFERED": "1", **({VARIABLE: verbosity} if verbosity else {})},
    ) as server:  # fmt: skip
        try:
            assert server.stdout
            assert any("key for tenants" in line for line in server.stdout)
            for _ in range(HANDSHAKES):
                refused_handshake(port, ca, role)
        finally:
            server.terminate()
        return server.communicate()[1]


@pytest.mark.parametrize(
    ("command", "role"), [(provider, ServerRole.PROVIDER), (auditor, ServerRole.AUDITOR)], ids=["provider", "auditor"]
)
@pytest.mark.parametrize(("verbosity", "lines"), [("", 0), ("INFO", HANDSHAKES)], ids=["by default", "when asked for"])
def test_a_handshake_that_fails_is_logged_only_where_that_was_asked_for(
    tmp_path: Path, command: Callable[[Path], list[str]], role: ServerRole, verbosity: str, lines: int
) -> None:
    files = Authority(tmp_path / "pki", "pharoah.local").issue(role)
    log = said(command(tmp_path), files, tmp_path / "pki" / "ca.pem", role, verbosity)
    assert log.count("Handshake failed") == lines, log[-500:]
