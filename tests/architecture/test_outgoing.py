"""Who connects to what: every connection that the product opens is opened in a place of this list.

HTTP has one client, because a time limit of each read bounds no exchange. Whoever adds a connection adds its place
here, with what bounds it and who is at the other end.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.architecture.test_walls import FOLDERS, imports, modules

FOREIGN_CLIENTS = {
    "aiohttp", "asyncssh", "ftplib", "http.client", "httplib2", "httpx", "imaplib", "nntplib", "paramiko", "poplib",
    "pycurl", "requests", "smtplib", "socketserver", "telnetlib", "tornado", "treq", "urllib.request", "urllib3",
    "websocket", "websockets", "xmlrpc.client",
}  # fmt: skip
"""Modules that open connections of their own, with limits of their own or none."""
OPENING = {
    "connect", "connect_ex", "create_connection", "create_unix_connection", "open_connection", "open_unix_connection",
    "sock_connect", "start_tls", "TCPStore", "PrefixStore", "init_process_group", "init_rpc", "secure_channel",
    "insecure_channel", "urlopen", "sendto",
}  # fmt: skip
"""Calls that open a connection or send to an address."""
PLACES = {
    "pharoah_system/http_client.py": {"connect"},  # HTTP: one deadline for the exchange
    "pharoah_system/local_sockets.py": {"connect"},  # who serves a Unix socket: sends nothing, a second
    "pharoah_system/network_interfaces.py": {"connect"},  # a datagram socket, which sends nothing: it asks for the way
    "pharoah_protocol/channels.py": {"insecure_channel", "secure_channel"},  # gRPC: every call has its deadline
    "pharoah_provider/agent/cli.py": {"open_unix_connection"},  # the agent of this node, whose socket is checked
    "pharoah/sidecar/agent_client.py": {"open_unix_connection"},  # the same
    "pharoah/_sidecar_link.py": {"connect"},  # the sidecar of this process, on a socket of its own folder
    "pharoah/_sidecar_start.py": {"connect"},  # the same
    "pharoah_benchmarks/micro_kernels/meeting.py": {"connect"},  # a partner that proves to know the token
    "pharoah_benchmarks/micro_kernels/together.py": {"TCPStore", "init_process_group"},  # the same, when it has
    "pharoah_benchmarks/campaign/ranks.py": {"init_process_group"},  # ranks of one cell, on loopback
    "pharoah_provider/agent/child_processes.py": {"open_connection"},  # a pair of sockets with our child
    "pharoah/sidecar/request_headers.py": {"insecure_channel"},  # a listener of this process, to see gRPC's headers
    "pharoah_provider/campaigns/ray_driver.py": {"open_connection"},  # a pair of sockets of our parent
}
"""Where connections are opened, and by which calls."""
HTTP_USERS = {
    "pharoah_protocol/alertmanager.py",  # alerts of sidecar and provider: nothing but a status is read
    "pharoah_provider/witnesses.py",  # what a witness answers is signed
    "pharoah_provider/agent/exporter_source.py",  # on loopback, and the user of its process is checked
}
"""Who begins an exchange over HTTP, and why the answer may be used."""
NO_CONNECTION = {
    "pharoah_provider/storage/duckdb/database.py": {"connect"},  # a database in a file
    "pharoah_provider/services/agent.py": {"connect"},  # the fleet notes that an agent is there
    "pharoah/sidecar/verdict_client.py": {"connect"},  # a channel of gRPC
}
"""Calls that have such a name and open nothing."""


def _place(package: str, path: Path) -> str:
    return str(path.relative_to(FOLDERS[package]))


@pytest.mark.parametrize("package", FOLDERS)
def test_no_module_brings_an_http_client_of_its_own(package: str) -> None:
    for path in modules(package):
        found = {name for name in imports(path) for foreign in FOREIGN_CLIENTS if f"{name}.".startswith(f"{foreign}.")}
        assert not found, f"{path} imports {found}; pharoah_system.http_client is the client"


def _opened(path: Path) -> set[str]:
    """Names of the calls of a module that open a connection."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            found |= {name} & OPENING
    return found


@pytest.mark.parametrize("package", FOLDERS)
def test_connections_are_opened_in_the_places_of_the_list(package: str) -> None:
    for path in modules(package):
        place = _place(package, path)
        allowed = PLACES.get(place, set()) | NO_CONNECTION.get(place, set())
        new = _opened(path) - allowed
        assert not new, f"{place} calls {new}: what bounds it, and who is at the other end? (PLACES)"


def test_the_list_has_no_place_that_is_gone() -> None:
    opened = {_place(package, path): _opened(path) for package in FOLDERS for path in modules(package)}
    listed = {place: calls | PLACES.get(place, set()) for place, calls in NO_CONNECTION.items()}
    for place, calls in {**PLACES, **listed}.items():
        assert calls <= opened.get(place, set()), f"{place} does not call {calls - opened.get(place, set())} any more"


def test_whoever_speaks_http_is_in_the_list() -> None:
    client = "pharoah_system.http_client"
    found = {_place(package, path) for package in FOLDERS for path in modules(package) if client in imports(path)}
    assert found == HTTP_USERS
