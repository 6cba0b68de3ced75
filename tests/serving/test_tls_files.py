"""Files of a certificate that change while the server runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import grpc
import pytest

from pharoah_provider.certificates import Authority
from pharoah_serving.listener import Tls


def look_of(tls: Tls, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What gRPC calls for each connection: it gives None while nothing has changed."""
    given: list[Any] = []
    monkeypatch.setattr(grpc, "dynamic_ssl_server_credentials", lambda _, look, **__: given.append(look))
    tls.credentials()
    return given[0]


def test_a_file_that_cannot_be_read_for_a_moment_is_read_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path, "corp.example")
    authority.issue("provider", ("127.0.0.1",))
    tls = Tls(tmp_path / "provider.pem", tmp_path / "provider.key", tmp_path / "ca.pem")
    look = look_of(tls, monkeypatch)
    assert look() is None
    os.utime(tls.key, (2e9, 2e9))
    honest = Path.read_bytes
    with monkeypatch.context() as unreadable:
        unreadable.setattr(Path, "read_bytes", lambda path: _refused(path) if path == tls.key else honest(path))
        assert look() is None and look() is None
    assert caplog.text.count("stays in force") == 1 and "provider.key" in caplog.text
    assert look() is not None, "its mode has changed, and its time stamp has not"
    assert look() is None


def _refused(path: Path) -> bytes:
    raise PermissionError(13, "Permission denied", str(path))
