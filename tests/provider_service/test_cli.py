from __future__ import annotations

import contextlib
import os
import socket
import sys
from pathlib import Path

import pytest

from pharoah_protocol.v1 import RunCampaignResponse
from pharoah_provider import cli
from pharoah_provider.cli import campaign
from pharoah_system.local_sockets import ServedSocket
from tests.harness.tokens import write_list

TOKENS = ["operator ops oooooooooooooooooooooooooooooooo"]


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    return cli.main(list(arguments)), capsys.readouterr().err


def test_a_missing_campaign_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, error = run_command(capsys, "campaign", "run", str(tmp_path / "none.toml"))
    assert code == 1 and "none.toml" in error


def test_a_missing_token_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, error = run_command(capsys, "nodes", "--token-file", str(tmp_path / "none.token"))
    assert code == 1 and "none.token" in error


def test_a_provider_that_is_not_there_is_an_error_with_its_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, error = run_command(capsys, "nodes", "--endpoint", f"unix:{tmp_path}/nobody.sock")
    assert code == 1 and "UNAVAILABLE" in error


def serve(tmp_path: Path, *arguments: str) -> list[str]:
    files = ["--db", str(tmp_path / "p.duckdb"), "--keys", str(tmp_path / "keys"), "--tokens", str(tmp_path / "tokens")]
    return ["serve", "--listen", f"unix:{tmp_path}/p.sock", "--http", "127.0.0.1:0", *files, *arguments]


def test_serving_without_a_token_file_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, error = run_command(capsys, *serve(tmp_path))
    assert code == 1 and "tokens" in error


@pytest.mark.parametrize("listen", ["0.0.0.0:7443", "127.0.0.1:7443", "unix:p.sock"])
def test_without_tls_only_a_unix_socket_is_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], listen: str
) -> None:
    write_list(tmp_path / "tokens", TOKENS)
    code, error = run_command(capsys, *serve(tmp_path, "--listen", listen))
    assert code == 1 and "--tls-cert" in error


def test_a_taken_address_and_a_corrupt_database_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_list(tmp_path / "tokens", TOKENS)
    assert cli.main(["init", "--keys", str(tmp_path / "keys")]) == 0
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, error = run_command(capsys, *serve(tmp_path, "--http", address))
        assert code == 1 and address in error
    with contextlib.closing(ServedSocket(tmp_path / "taken.sock")):
        code, error = run_command(capsys, *serve(tmp_path, "--listen", f"unix:{tmp_path}/taken.sock"))
        assert code == 1 and "taken.sock" in error and "another process" in error
    (tmp_path / "p.duckdb").write_bytes(os.urandom(9000))
    code, error = run_command(capsys, *serve(tmp_path))
    assert code == 1 and "p.duckdb: not a readable DuckDB database" in error and "another process" not in error


def test_the_first_answer_of_a_connection_counts_no_works(capsys: pytest.CaptureFixture[str]) -> None:
    """After a reconnect it names the campaign only, and a campaign that goes on is followed further."""
    first = RunCampaignResponse(campaign_id="c1")
    later = RunCampaignResponse(campaign_id="c1", done=5, total=10, node="n1", cell="gpt", outcome="ok")
    campaign._show(iter([first, later]))
    assert "campaign 5/10  n1 gpt: ok" in capsys.readouterr().out


def test_drafts_without_their_picture_are_not_left_where_matplotlib_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, error = run_command(capsys, "archetypes", "mine", str(tmp_path), "--out", str(tmp_path / "drafts"))
    assert code == 1 and "pharoah[draw]" in error and not (tmp_path / "drafts").exists()
