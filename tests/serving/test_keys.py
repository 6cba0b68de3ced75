"""Secrets of a provider: a folder, or a key service that is called as a command."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from pharoah_serving import keys as keys_module
from pharoah_serving.errors import StoreError
from pharoah_serving.keys import KeyFolder, make_keys, open_keys


def test_secrets_are_owner_only_and_stay_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    first = make_keys(folder)
    seed = first.new_epoch_seed(1)
    assert open_keys(folder).epoch_seed(1) == seed and open_keys(folder).public == first.public
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder.iterdir())
    with pytest.raises(StoreError, match="never replaced"):
        first.new_epoch_seed(1)
    assert first.epoch_seed(1) == seed != first.new_epoch_seed(2)
    first.forget_epoch(1)
    first.forget_epoch(1)
    assert not (folder / "epoch-1.seed").exists()
    folder.chmod(0o755)
    with pytest.raises(StoreError, match="chmod 700"):
        open_keys(folder)


def test_a_missing_folder_or_key_is_an_error_and_never_a_new_identity(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="new keys are a new party"):
        open_keys(tmp_path / "keys")
    assert not (tmp_path / "keys").exists()
    (tmp_path / "keys").mkdir(mode=0o700)
    for name in ("signing_key", "hashed_key", "pseudonym_secret"):
        with pytest.raises(StoreError, match="new keys are a new party"):
            getattr(open_keys(tmp_path / "keys"), name)
    made = make_keys(tmp_path / "keys").public
    assert make_keys(tmp_path / "keys").public == made == open_keys(tmp_path / "keys").public


def test_secrets_are_never_shown(tmp_path: Path) -> None:
    keys = make_keys(tmp_path / "keys")
    seed = keys.new_epoch_seed(1)
    assert seed.hex() not in repr(keys) + repr(KeyFolder(tmp_path / "keys")) and repr(seed) not in repr(vars(keys))


def test_a_truncated_secret_is_named(tmp_path: Path) -> None:
    keys = make_keys(tmp_path / "keys")
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
elif verb == "new":
    file.write_text(hashlib.sha256(name.encode() + bytes([len(list(file.parent.iterdir()))])).hexdigest())
print(file.read_text() if file.exists() else "")
"""


def test_secrets_come_from_a_key_service(tmp_path: Path) -> None:
    script, folder = tmp_path / "service.py", tmp_path / "vault"
    script.write_text(SERVICE)
    folder.mkdir()
    source = f"command:{sys.executable} {script} {folder}"
    with pytest.raises(StoreError, match="did not print"):
        _ = open_keys(source).public
    keys = make_keys(source)
    assert make_keys(source).public == keys.public
    seed = keys.new_epoch_seed(4)
    with pytest.raises(StoreError, match="never replaced"):
        keys.new_epoch_seed(4)
    assert keys.epoch_seed(4) == seed and len(keys.public) == 32
    keys.forget_epoch(4)
    assert not (folder / "epoch-4.seed").exists()


@pytest.mark.parametrize("command", ["false", "echo no-hex", "/nowhere/vault", "echo 00"])
def test_a_key_service_that_fails_is_named_and_says_no_secret(command: str) -> None:
    with pytest.raises(StoreError, match=f"{command.split()[0]} get signing.key"):
        _ = open_keys(f"command:{command}").signing_key


@pytest.mark.parametrize("away", ["sleeps", "missing", "killed"])
def test_a_key_service_that_is_away_leads_to_no_second_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    script, folder = tmp_path / "service.py", tmp_path / "vault"
    script.write_text(SERVICE)
    folder.mkdir()
    made = make_keys(f"command:{sys.executable} {script} {folder}").public
    if away == "sleeps":
        monkeypatch.setattr(keys_module, "COMMAND_SECONDS", 0.05)
        script.write_text("import time\ntime.sleep(60)\n")
    elif away == "killed":
        script.write_text("import os\nos.kill(os.getpid(), 9)\n")
    command = "/nowhere/vault" if away == "missing" else f"{sys.executable} {script} {folder}"
    with pytest.raises(StoreError, match=r"get signing\.key"):
        make_keys(f"command:{command}")
    monkeypatch.undo()
    script.write_text(SERVICE)
    assert make_keys(f"command:{sys.executable} {script} {folder}").public == made


def test_a_key_service_may_fail_where_there_is_no_secret(tmp_path: Path) -> None:
    script, folder = tmp_path / "service.py", tmp_path / "vault"
    script.write_text(f"{SERVICE}\nsys.exit(not file.exists())\n")
    folder.mkdir()
    source = f"command:{sys.executable} {script} {folder}"
    assert make_keys(source).public == open_keys(source).public


def test_lasting_secrets_are_read_once_and_then_without_the_key_service(tmp_path: Path) -> None:
    script, folder = tmp_path / "service.py", tmp_path / "vault"
    script.write_text(SERVICE)
    folder.mkdir()
    source = f"command:{sys.executable} {script} {folder}"
    made, keys = make_keys(source), open_keys(source)
    kept = (made.public, made.hashed_key, made.pseudonym_secret)
    keys.read_lasting()
    script.unlink()
    assert (keys.public, keys.hashed_key, keys.pseudonym_secret) == kept
    with pytest.raises(StoreError, match=r"get signing\.key"):
        open_keys(source).read_lasting()


@pytest.mark.parametrize("missing", ["signing.key", "hashed.key", "names.key"])
def test_a_lasting_secret_that_is_missing_is_named(tmp_path: Path, missing: str) -> None:
    make_keys(tmp_path / "keys")
    (tmp_path / "keys" / missing).unlink()
    with pytest.raises(StoreError, match=f"{missing}: there is no such secret"):
        open_keys(tmp_path / "keys").read_lasting()
