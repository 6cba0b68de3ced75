from __future__ import annotations

import stat
from pathlib import Path

import pytest

from pharoah.exchange import voprf
from pharoah.exchange.head import merkle_root, verify_head
from pharoah.exchange.rows import open_row
from pharoah_archetypes import canonical_input
from pharoah_provider.domain import LearnedRow, Release
from pharoah_provider.epochs import seal
from pharoah_provider.errors import StoreError
from pharoah_provider.keys import KeyFolder
from pharoah_provider.services.auth import RULES, TokenFileError, Tokens

ROW = LearnedRow("server", "ctx", "exact", ("a=1", "b=2"), "block", "memory", 5, 5, 0, 25, 1, 1)


def test_an_epoch_opens_with_the_right_input_and_its_own_key(tmp_path: Path) -> None:
    keys = KeyFolder(tmp_path / "keys")
    epoch = seal(Release(3, (ROW,)), 9, keys, {("device", "cpu")}, now=1000.0)
    head = verify_head(epoch.body, epoch.signature, keys.signing_key().public_key(), 1000.0)
    assert (head.epoch, head.release) == (9, 3)
    sealed = epoch.classes[epoch.ids["server", "ctx"]]
    assert merkle_root(sealed.rows) == head.table(sealed.class_id).root
    scalar, blinded = voprf.blind(value := canonical_input("arch", "exact", ROW.tokens))
    output = voprf.finalize(value, scalar, voprf.evaluate(sealed.secret, blinded))
    opened = open_row(sealed.rows, output, 9, sealed.class_id)
    assert opened is not None and (opened.severity, opened.failures, opened.base_runs) == ("block", 5, 25)


def test_a_class_nothing_is_known_of_looks_like_any_other(tmp_path: Path) -> None:
    epoch = seal(Release(1, (ROW,)), 1, KeyFolder(tmp_path / "keys"), {("server", "new")})
    assert len({len(sealed.rows) for sealed in epoch.classes.values()}) == 1


def test_tables_of_two_epochs_share_nothing(tmp_path: Path) -> None:
    keys = KeyFolder(tmp_path / "keys")
    first, second = (seal(Release(1, (ROW,)), number, keys, set()) for number in (1, 2))
    assert not first.classes.keys() & second.classes.keys()
    rows = [{row for sealed in epoch.classes.values() for row in sealed.rows} for epoch in (first, second)]
    assert not rows[0] & rows[1]


def test_secrets_are_owner_only_and_stay_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    first = KeyFolder(folder).epoch_seed(1)
    assert KeyFolder(folder).epoch_seed(1) == first
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder.iterdir())
    folder.chmod(0o755)
    with pytest.raises(StoreError, match="chmod 700"):
        KeyFolder(folder)


def test_a_truncated_secret_is_named(tmp_path: Path) -> None:
    keys = KeyFolder(tmp_path / "keys")
    keys.epoch_seed(1)
    (tmp_path / "keys" / "epoch-1.seed").write_bytes(b"short")
    with pytest.raises(StoreError, match=r"epoch-1\.seed"):
        keys.epoch_seed(1)


def test_tokens_are_read_again_when_the_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("# people\ntenant acme aaaaaaaaaaaaaaaaaaaa\n")
    tokens = Tokens(file)
    bearer = [("authorization", "Bearer aaaaaaaaaaaaaaaaaaaa")]
    assert tokens.principal(bearer) == ("tenant", "acme")
    assert tokens.principal([]) is None
    file.write_text("tenant acme bbbbbbbbbbbbbbbbbbbbb\n")
    assert tokens.principal(bearer) is None


@pytest.mark.parametrize("line", ["tenant acme", "king acme aaaaaaaaaaaaaaaaaaaa", "tenant acme short"])
def test_a_broken_token_file_names_the_line(tmp_path: Path, line: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"\n{line}\n")
    with pytest.raises(TokenFileError, match="tokens:2"):
        Tokens(file)


def test_every_service_has_a_rule() -> None:
    from pharoah.proto.v1 import services

    assert {service.name for service in services()} == RULES.keys()
