"""A provider on a TCP port without TLS, for attacks on connections: those of a Unix socket have no names of their own.

The product serves no port without TLS, so the choice of the address is replaced.
"""

from __future__ import annotations

from typing import Any

import grpc.aio
import pytest

from pharoah_provider.services import server


class PlainPort:
    """A free port on this machine."""

    def bind(self, bound: grpc.aio.Server) -> str:
        return f"127.0.0.1:{bound.add_insecure_port('127.0.0.1:0')}"

    def close(self) -> None:
        """Nothing is left: the server has closed its port."""


@pytest.fixture
def plain_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every provider of this test listens on a port without TLS."""

    def address_of(*_: Any) -> PlainPort:
        return PlainPort()

    monkeypatch.setattr(server, "address_of", address_of)
