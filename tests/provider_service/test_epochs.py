"""Epochs: what is sealed opens with the right input; the same ingredients give the same bytes. And their secrets."""

from __future__ import annotations

import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah_archetypes import canonical_input
from pharoah_learning.release import LearnedRow, Release, SealInputs
from pharoah_learning.sealing import Epoch, seal
from pharoah_protocol.log.merkle import root
from pharoah_protocol.tables.epoch_head import verify_head
from pharoah_protocol.tables.rows import open_row, split
from pharoah_protocol.voprf import protocol
from pharoah_serving.errors import StoreError
from pharoah_serving.keys import KeyFolder, open_keys

ROW = LearnedRow("server", "ctx", "exact", ("a=1", "b=2"), "block", "memory", 5, 5, 0, 25, 1, 1)
RECIPE = SealInputs(9, Release(3, (ROW,)), (("device", "cpu"), ("server", "ctx")), 1000)
KEY, SEED = Ed25519PrivateKey.from_private_bytes(bytes(32)), b"s" * 32


def sealed(**changes: object) -> Epoch:
    return seal(replace(RECIPE, **changes), SEED, KEY)  # type: ignore[arg-type]


def test_an_epoch_opens_with_the_right_input_and_its_own_key() -> None:
    epoch = sealed()
    head = verify_head(epoch.body, epoch.signature, KEY.public_key(), 1000.0)
    assert (head.epoch, head.release) == (9, 3)
    one = epoch.classes[epoch.ids["server", "ctx"]]
    rows = split(one.content)
    assert root(rows) == head.table(one.class_id).root
    scalar, blinded = protocol.blind(value := canonical_input("arch", "exact", ROW.tokens))
    (evaluated,), proof = protocol.evaluate(one.secret, one.public, [blinded])
    protocol.verify(head.table(one.class_id).public_key, [blinded], [evaluated], proof)
    opened = open_row(rows, protocol.finalize(value, scalar, evaluated), 9, one.class_id)
    assert opened is not None and (opened.severity, opened.failures, opened.base_runs) == ("block", 5, 25)


def test_the_same_ingredients_make_the_same_epoch_and_others_another() -> None:
    first = sealed()
    assert sealed().body == first.body
    assert {one.content for one in sealed().classes.values()} == {one.content for one in first.classes.values()}
    others = [sealed(epoch=10), sealed(release=Release(3)), seal(RECIPE, b"t" * 32, KEY)]
    rows = [{row for one in epoch.classes.values() for row in split(one.content)} for epoch in (first, *others)]
    assert not rows[0] & rows[1] and not rows[0] & rows[3]
    assert len({epoch.body for epoch in (first, *others)}) == 4
    assert not first.classes.keys() & others[2].classes.keys(), "handles do not link epochs"


def test_a_class_nothing_is_known_of_looks_like_any_other() -> None:
    epoch = sealed(groups=(("server", "ctx"), ("server", "new")))
    assert len({len(one.content) for one in epoch.classes.values()}) == 1


def test_two_rows_for_one_input_are_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        sealed(release=Release(3, (ROW, replace(ROW, severity="ok"))))


def test_secrets_are_owner_only_and_stay_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    first = open_keys(folder)
    seed = first.new_epoch_seed(1)
    assert open_keys(folder).epoch_seed(1) == seed and open_keys(folder).public == first.public
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder.iterdir())
    assert first.new_epoch_seed(1) != seed
    first.forget_epoch(1)
    first.forget_epoch(1)
    assert not (folder / "epoch-1.seed").exists()
    folder.chmod(0o755)
    with pytest.raises(StoreError, match="chmod 700"):
        open_keys(folder)


def test_secrets_are_never_shown(tmp_path: Path) -> None:
    keys = open_keys(tmp_path / "keys")
    seed = keys.new_epoch_seed(1)
    assert seed.hex() not in repr(keys) + repr(KeyFolder(tmp_path / "keys")) and repr(seed) not in repr(vars(keys))


def test_a_truncated_secret_is_named(tmp_path: Path) -> None:
    keys = open_keys(tmp_path / "keys")
    keys.new_epoch_seed(1)
    (tmp_path / "keys" / "epoch-1.seed").write_bytes(b"short")
    with pytest.raises(StoreError, match=r"epoch-1\.seed"):
        keys.epoch_seed(1)


SERVICE = """
import hashlib, pathlib, sys
verb, name = sys.argv[2:]
file = pathlib.Path(sys.argv[1], name)
if verb == "forget":
    file.unlink(missing_ok=True)
elif verb == "new" or not file.exists():
    file.write_text(hashlib.sha256(name.encode() + bytes([len(list(file.parent.iterdir()))])).hexdigest())
print(file.read_text() if file.exists() else "")
"""


def test_secrets_come_from_a_key_service(tmp_path: Path) -> None:
    script, folder = tmp_path / "service.py", tmp_path / "vault"
    script.write_text(SERVICE)
    folder.mkdir()
    keys = open_keys(f"command:{sys.executable} {script} {folder}")
    seed = keys.new_epoch_seed(4)
    assert keys.epoch_seed(4) == seed and len(keys.public) == 32
    keys.forget_epoch(4)
    assert not (folder / "epoch-4.seed").exists()


@pytest.mark.parametrize("command", ["false", "echo no-hex", "/nowhere/vault", "echo 00"])
def test_a_key_service_that_fails_is_named_and_says_no_secret(command: str) -> None:
    with pytest.raises(StoreError, match=f"{command.split()[0]} get signing.key"):
        _ = open_keys(f"command:{command}").signing_key
