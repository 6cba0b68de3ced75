"""The list of tokens: how it is read again, what is refused, and how the command changes it."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from pharoah_protocol.vocabulary import Role
from pharoah_serving.principals import Principal
from pharoah_serving.tokens import SETTLE_SECONDS, TokenFileError, Tokens, new_token, revoke
from tests.harness.tokens import listed, write_list

ACME = f"tenant acme {'a' * 32}"
OPS = f"operator ops {'o' * 32}"
OTHER = f"operator ops {'p' * 32}"


def bearer(line: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {line.split()[2]}")]


def file_of(folder: Path, *lines: str) -> Path:
    write_list(folder / "tokens", lines)
    return folder / "tokens"


def rewrite(file: Path, content: str) -> None:
    """Change a file in place: its inode stays."""
    with file.open("r+") as opened:
        opened.truncate(0)
        opened.write(content)


class HandClock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_tokens_are_read_again_when_the_list_changes(tmp_path: Path) -> None:
    file = file_of(tmp_path, ACME)
    rewrite(file, f"# people\n\n{listed(ACME)}\n")
    tokens = Tokens(file)
    assert tokens.principal(bearer(ACME)) == Principal(Role.TENANT, "acme")
    assert tokens.principal([]) is None
    write_list(file, [OPS])
    assert tokens.principal(bearer(ACME)) is None
    assert tokens.principal(bearer(OPS)) == Principal(Role.OPERATOR, "ops")


def test_a_change_that_leaves_the_time_stamp_as_it_was_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two changes within one tick of the file system's clock."""
    clock, file = HandClock(), file_of(tmp_path, OPS)
    monkeypatch.setattr("pharoah_serving.tokens._stamp", lambda _: None)
    tokens = Tokens(file, clock)
    rewrite(file, f"{listed(OTHER)}\n")
    clock.seconds += SETTLE_SECONDS
    assert tokens.principal(bearer(OPS)) is None and tokens.principal(bearer(OTHER)) is not None


@pytest.mark.parametrize("nanoseconds", [0, 1 << 62])
def test_a_list_with_an_odd_time_is_read(tmp_path: Path, nanoseconds: int) -> None:
    file = file_of(tmp_path, OPS)
    os.utime(file, ns=(nanoseconds, nanoseconds))
    tokens = Tokens(file)
    assert tokens.principal(bearer(OPS)) == Principal(Role.OPERATOR, "ops")
    rewrite(file, f"{listed(OTHER)}\n")
    os.utime(file, ns=(nanoseconds, nanoseconds))
    assert tokens.principal(bearer(OPS)) is None


@pytest.mark.parametrize(
    "line",
    [
        "tenant acme",
        listed(ACME).replace("tenant", "king"),
        ACME,
        listed(ACME)[:-1],
        listed(ACME).upper(),
        listed(ACME).replace("acme", "../x"),
        f"{listed(ACME)} more",
    ],
)
def test_a_broken_list_names_the_line_and_not_the_token(tmp_path: Path, line: str) -> None:
    file = file_of(tmp_path)
    rewrite(file, f"\n{line}\n")
    with pytest.raises(TokenFileError, match="tokens:2") as caught:
        Tokens(file)
    assert "a" * 32 not in str(caught.value)


def test_a_mistake_in_the_list_of_a_running_provider_locks_nobody_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, file = HandClock(), file_of(tmp_path, OPS)
    tokens = Tokens(file, clock)
    rewrite(file, f"{listed(OPS)}\ngarbage\n")
    for _ in range(3):
        assert tokens.principal(bearer(OPS)) == Principal(Role.OPERATOR, "ops")
        clock.seconds += SETTLE_SECONDS
    assert caplog.text.count("stay in force") == 1 and "tokens:2" in caplog.text
    rewrite(file, f"{listed(OTHER)}\n")
    assert tokens.principal(bearer(OPS)) is None


def test_a_token_that_is_too_short_opens_nothing(tmp_path: Path) -> None:
    short = f"operator ops {'o' * 31}"
    assert Tokens(file_of(tmp_path, short)).principal(bearer(short)) is None


def test_a_new_token_is_a_file_of_its_own_and_the_list_holds_its_hash(tmp_path: Path) -> None:
    file, out = tmp_path / "tokens", tmp_path / "acme.token"
    assert new_token(file, "tenant", "acme/research", out) == Principal(Role.TENANT, "acme/research")
    token = out.read_text().strip()
    assert token not in file.read_text() and len(token) == 43
    assert {path.stat().st_mode & 0o777 for path in (file, out)} == {0o600}
    assert Tokens(file).principal([("authorization", f"Bearer {token}")]) == Principal(Role.TENANT, "acme/research")


@pytest.mark.parametrize(
    ("role", "name"), [("king", "acme"), ("tenant", "../x"), ("tenant", "a/b/c"), ("agent", "a/b"), ("operator", "")]
)
def test_a_name_that_no_certificate_could_have_gets_no_token(tmp_path: Path, role: str, name: str) -> None:
    with pytest.raises(TokenFileError, match="not a role"):
        new_token(tmp_path / "tokens", role, name, tmp_path / "x.token")
    assert not list(tmp_path.iterdir())


def test_a_word_of_a_scheduler_is_no_name_of_a_node(tmp_path: Path) -> None:
    with pytest.raises(TokenFileError, match="ALL is no name of a node"):
        new_token(tmp_path / "tokens", "agent", "ALL", tmp_path / "x.token")
    file = file_of(tmp_path)
    rewrite(file, listed(ACME).replace("tenant acme", "agent Default") + "\n")
    with pytest.raises(TokenFileError, match="tokens:1: Default is no name of a node"):
        Tokens(file)


def test_nothing_is_overwritten_and_no_name_gets_two_tokens(tmp_path: Path) -> None:
    file, out = file_of(tmp_path, ACME), tmp_path / "mine"
    out.write_text("mine")
    with pytest.raises(TokenFileError, match="mine: File exists"):
        new_token(file, "agent", "n1", out)
    assert out.read_text() == "mine" and "n1" not in file.read_text()
    with pytest.raises(TokenFileError, match="has a token already"):
        new_token(file, "tenant", "acme", tmp_path / "acme.token")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TokenFileError, match="exists"):
        new_token(file, "agent", "n1", tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists() and not (tmp_path / "acme.token").exists()


def test_revoking_a_name_keeps_comments_and_other_names(tmp_path: Path) -> None:
    file = file_of(tmp_path, ACME)
    rewrite(file, f"# people\n{listed(ACME)}\n\n{listed(OPS)}\n")
    tokens = Tokens(file)
    assert revoke(file, "acme") == [Principal(Role.TENANT, "acme")]
    assert file.read_text() == f"# people\n\n{listed(OPS)}\n"
    assert tokens.principal(bearer(ACME)) is None and tokens.principal(bearer(OPS)) is not None
    with pytest.raises(TokenFileError, match="acme has no token"):
        revoke(file, "acme")


def _make(folder: Path, name: str) -> None:
    new_token(folder / "tokens", "agent", name, folder / f"{name}.token")


def test_tokens_that_are_made_at_once_are_all_listed(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    makers = [context.Process(target=_make, args=(tmp_path, f"n{number}")) for number in range(8)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert len((tmp_path / "tokens").read_text().splitlines()) == 8
