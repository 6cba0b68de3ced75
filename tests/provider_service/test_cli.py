from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from pharoah_provider import cli

TOKENS = "operator ops oooooooooooooooooooo\n"


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    return cli.main(list(arguments)), capsys.readouterr().err


def test_a_missing_campaign_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, error = run_command(capsys, "campaign", str(tmp_path / "none.toml"))
    assert code == 1 and "none.toml" in error


def test_a_missing_token_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, error = run_command(capsys, "nodes", "--token-file", str(tmp_path / "none.token"))
    assert code == 1 and "none.token" in error


def test_a_provider_that_is_not_there_is_an_error_with_its_status(capsys: pytest.CaptureFixture[str]) -> None:
    code, error = run_command(capsys, "nodes", "--endpoint", "127.0.0.1:9")
    assert code == 1 and "UNAVAILABLE" in error


def serve(tmp_path: Path, *arguments: str) -> list[str]:
    files = ["--db", str(tmp_path / "p.duckdb"), "--keys", str(tmp_path / "keys"), "--tokens", str(tmp_path / "tokens")]
    return ["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", *files, *arguments]


def test_serving_without_a_token_file_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, error = run_command(capsys, *serve(tmp_path))
    assert code == 1 and "tokens" in error


def test_plain_text_never_leaves_loopback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tokens").write_text(TOKENS)
    code, error = run_command(capsys, *serve(tmp_path, "--listen", "0.0.0.0:7443"))
    assert code == 1 and "--tls-cert" in error


def test_a_taken_port_and_a_corrupt_database_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tokens").write_text(TOKENS)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, error = run_command(capsys, *serve(tmp_path, "--listen", address))
        assert code == 1 and address in error
        code, error = run_command(capsys, *serve(tmp_path, "--http", address))
        assert code == 1 and address in error
    (tmp_path / "p.duckdb").write_bytes(os.urandom(9000))
    code, error = run_command(capsys, *serve(tmp_path))
    assert code == 1 and "p.duckdb" in error
