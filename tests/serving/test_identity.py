"""Who calls: names in certificates, tokens in a file, and a rule for every service."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pharoah_protocol.vocabulary import Role
from pharoah_serving.call_guard import RULES
from pharoah_serving.identity import Certificates, TokenFileError, Tokens
from pharoah_serving.principals import Principal


def test_tokens_are_read_again_when_the_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("# people\ntenant acme aaaaaaaaaaaaaaaaaaaa\n")
    tokens = Tokens(file)
    bearer = [("authorization", "Bearer aaaaaaaaaaaaaaaaaaaa")]
    assert tokens.principal(bearer) == Principal(Role.TENANT, "acme")
    assert tokens.principal([]) is None
    file.write_text("tenant acme bbbbbbbbbbbbbbbbbbbbb\n")
    assert tokens.principal(bearer) is None


@pytest.mark.parametrize(
    "line", ["tenant acme", "king acme aaaaaaaaaaaaaaaaaaaa", "tenant acme short", "tenant ../x aaaaaaaaaaaaaaaaaaaa"]
)
def test_a_broken_token_file_names_the_line(tmp_path: Path, line: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"\n{line}\n")
    with pytest.raises(TokenFileError, match="tokens:2"):
        Tokens(file)


def test_every_service_has_a_rule() -> None:
    from pharoah_protocol.v1 import services

    assert {service.name for service in services()} == RULES.keys()


@pytest.mark.parametrize(
    ("names", "principal"),
    [
        (["spiffe://corp.example/tenant/lab/one"], Principal(Role.TENANT, "lab/one")),
        (["spiffe://corp.example/tenant/lab"], Principal(Role.TENANT, "lab")),
        (["spiffe://corp.example/agent/n1"], Principal(Role.AGENT, "n1")),
        (["spiffe://corp.example/operator/ops"], Principal(Role.OPERATOR, "ops")),
        (["spiffe://other.example/tenant/lab/one"], None),
        (["spiffe://corp.example.evil/tenant/lab"], None),
        (["spiffe://corp.example/tenant/lab/one/more"], None),
        (["spiffe://corp.example/agent/n1/n2"], None),
        (["spiffe://corp.example/tenant/../operator/x"], None),
        (["spiffe://corp.example/king/lab"], None),
        (["spiffe://corp.example/tenant/"], None),
        (["spiffe://corp.example/tenant/lab", "spiffe://corp.example/operator/ops"], None),
        (["tenant/lab"], None),
        ([], None),
    ],
)
def test_names_of_certificates(names: list[str], principal: Principal | None) -> None:
    assert Certificates("corp.example").principal(names) == principal


def test_accounts_count_for_their_organisation() -> None:
    assert Principal(Role.TENANT, "lab/one").organisation == Principal(Role.TENANT, "lab").organisation == "lab"


def test_a_mistake_in_the_tokens_of_a_running_provider_locks_nobody_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "tokens"
    file.write_text("operator ops 0123456789abcdef\n")
    tokens = Tokens(file)
    file.write_text("operator ops 0123456789abcdef\ngarbage\n")
    os.utime(file, (1, 1))
    for _ in range(3):
        assert tokens.principal([("authorization", "Bearer 0123456789abcdef")]) == Principal(Role.OPERATOR, "ops")
    assert caplog.text.count("stay in force") == 1 and "tokens:2" in caplog.text
    file.write_text("operator other fedcba9876543210\n")
    os.utime(file, (2, 2))
    assert tokens.principal([("authorization", "Bearer 0123456789abcdef")]) is None
