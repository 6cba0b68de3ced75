"""Whose process serves a port of this machine: real listeners of other users."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable

import pytest

from pharoah_system.served_ports import UntrustedServiceError, check_service
from pharoah_system.trusted_paths import list_trusted_users
from tests.harness.other_user import NOBODY, needs_root, squatter

US = list_trusted_users()


def listening(host: str, family: int = socket.AF_INET) -> Callable[[], socket.socket]:
    """Binds to a port that is chosen now, so that the caller knows it."""
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        port = probe.getsockname()[1]

    def bind() -> socket.socket:
        one = socket.socket(family)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind((host, port))
        return one

    bind.port = port  # type: ignore[attr-defined]
    return bind


@needs_root
@pytest.mark.parametrize(
    ("served", "asked", "family"),
    [
        ("127.0.0.1", "127.0.0.1", socket.AF_INET),
        ("0.0.0.0", "127.0.0.1", socket.AF_INET),
        ("::1", "::1", socket.AF_INET6),
        ("::", "127.0.0.1", socket.AF_INET6),
        ("::", "::1", socket.AF_INET6),
    ],
)
def test_a_service_of_another_user_is_not_trusted_unless_named(served: str, asked: str, family: int) -> None:
    bind = listening(served, family)
    with squatter(bind), socket.create_connection((asked, bind.port)) as connected:  # type: ignore[attr-defined]
        with pytest.raises(UntrustedServiceError, match=f"{NOBODY}.*PHAROAH_SERVICE_USERS"):
            check_service(connected, US, 10)
        check_service(connected, list_trusted_users(str(NOBODY)), 10)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_service_of_ours_is_trusted(family: int) -> None:
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    server = socket.create_server((host, 0), family=family)
    with server, socket.create_connection(server.getsockname()[:2]) as connected:
        accepted: list[socket.socket] = []
        accepting = threading.Thread(target=lambda: accepted.append(server.accept()[0]))
        accepting.start()  # it may accept before or after we look
        check_service(connected, frozenset({os.geteuid()}), 10)
        accepting.join()
        accepted[0].close()


def test_a_connection_that_nobody_accepts_belongs_to_nobody() -> None:
    """The kernel shows root as the user of such a connection, whoever listens."""
    server = socket.create_server(("127.0.0.1", 0))
    with server, socket.create_connection(server.getsockname()) as connected, pytest.raises(TimeoutError):
        check_service(connected, US, 0.05)


def test_a_far_end_that_this_machine_does_not_know_is_not_trusted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as connected:
        server.accept()[0].close()
        with pytest.raises(UntrustedServiceError, match="another network namespace, or not any more"):
            check_service(connected, US, 10)
