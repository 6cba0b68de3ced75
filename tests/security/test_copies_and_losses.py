"""Folders that are copied, shared or lost: no honest provider convicts itself, and none becomes another party."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from pharoah.sidecar.log_client import LogClient
from pharoah_provider import cli, high_water
from pharoah_provider.first_start import make_provider, move_away, start_new_log
from pharoah_provider.high_water import newest_epoch
from pharoah_provider.services.server import provider
from pharoah_serving.errors import ProviderError, StoreError
from tests.harness.clock import SimulatedClock
from tests.harness.exchange import RELEASE, answered, ask
from tests.harness.loopback import loopback, server_settings
from tests.harness.publisher import SEALING_STEPS, PublisherSite, before_step, publisher_site

DAY = 86_400.0
KEY_SERVICE = """
import os, pathlib, sys
verb, name = sys.argv[2:]
file = pathlib.Path(sys.argv[1], name)
if verb == "forget":
    file.unlink(missing_ok=True)
elif verb == "new":
    file.write_text(os.urandom(32).hex())
print(file.read_text() if file.exists() else "")
"""


def starts(folder: Path, **changes: Any) -> None:
    """Start a provider on a folder and stop it. Raises ProviderError."""

    folder.mkdir(exist_ok=True)

    async def inside() -> None:
        async with loopback(folder, RELEASE, **changes) as site:
            await ask(site.settings(state_folder=str(folder / "state")))

    asyncio.run(inside())


def test_a_second_provider_on_the_same_keys_or_audit_log_does_not_start(tmp_path: Path) -> None:
    async def inside() -> None:
        async with loopback(tmp_path, RELEASE) as site:
            other = {"db": tmp_path / "other.duckdb"}
            for changes in (other, {**other, "keys": str(tmp_path / "k")}):
                with pytest.raises(StoreError, match=rf"another provider uses this folder \(pid {os.getpid()}\)"):
                    async with provider(server_settings(tmp_path, **changes)):
                        pass
            assert await answered(site)

    make_provider(str(tmp_path / "k"), tmp_path / "other.duckdb")
    asyncio.run(inside())


def older(folder: Path, name: str) -> None:
    """Put back what `name` was before the second start."""
    shutil.rmtree(folder / name, ignore_errors=True)
    (folder / name).unlink(missing_ok=True)
    copy = shutil.copytree if (folder / "before" / name).is_dir() else shutil.copy2
    copy(folder / "before" / name, folder / name)


def signed_twice(folder: Path) -> None:
    """A provider that has signed, was copied, and has signed more."""
    starts(folder)
    (folder / "before").mkdir()
    for name in ("p.duckdb", "keys", "audit"):
        source = folder / name
        (shutil.copytree if source.is_dir() else shutil.copy2)(source, folder / "before" / name)

    async def revoke() -> None:
        async with publisher_site(folder, SimulatedClock()) as site:
            await site.publisher.open()
            await site.publisher.publish(replace(RELEASE, release=1))

    asyncio.run(revoke())


@pytest.mark.parametrize(
    ("restored", "message"),
    [
        (("p.duckdb",), "it is an older copy"),
        (("keys",), "this folder is a copy"),
        (("p.duckdb", "keys", "audit"), "this folder is a copy"),
    ],
)
def test_restored_copies_are_refused_and_a_new_log_is_the_remedy(
    tmp_path: Path, restored: tuple[str, ...], message: str
) -> None:
    signed_twice(tmp_path)
    for name in restored:
        older(tmp_path, name)
    with pytest.raises(ProviderError, match=message):
        starts(tmp_path)
    public = start_new_log(str(tmp_path / "keys"), tmp_path / "p.duckdb").public
    (tmp_path / "provider.pub").write_text(public.hex())
    starts(tmp_path)


def test_copies_that_overwrite_the_files_in_their_place_are_refused(tmp_path: Path) -> None:
    signed_twice(tmp_path)
    for path in (tmp_path / "before" / "keys").iterdir():
        shutil.copy2(path, tmp_path / "keys" / path.name)
    shutil.copy2(tmp_path / "before" / "p.duckdb", tmp_path / "p.duckdb")
    with pytest.raises(ProviderError, match="this folder is a copy"):
        starts(tmp_path)


def test_a_copy_beside_the_running_provider_does_not_start(tmp_path: Path) -> None:
    starts(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with pytest.raises(ProviderError, match="this folder is a copy"):
        starts(tmp_path / "b")
    starts(tmp_path / "a")


def test_a_kernel_that_says_no_longer_when_files_were_made_makes_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old kernels, C libraries and container profiles do not say it, and an upgrade changes that."""
    starts(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(high_water, "_born_ns", lambda _: 0)
        starts(tmp_path)
    starts(tmp_path)


def test_a_provider_is_moved_by_a_command_and_does_not_start_at_the_old_place(tmp_path: Path) -> None:
    starts(tmp_path / "a")
    move_away(str(tmp_path / "a" / "keys"), tmp_path / "a" / "p.duckdb")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    starts(tmp_path / "b")
    starts(tmp_path / "b")
    with pytest.raises(ProviderError, match="was moved"):
        starts(tmp_path / "a")


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        ("keys", "new keys are a new party"),
        ("keys/signing.key", "new keys are a new party"),
        ("keys/high-water.json", "is a part of a copy"),
        ("p.duckdb", "older copy, or a new one"),
    ],
)
def test_lost_files_are_an_error_and_never_a_new_identity(tmp_path: Path, lost: str, message: str) -> None:
    starts(tmp_path)
    path = tmp_path / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(ProviderError, match=message):
        starts(tmp_path)
    assert path.name != "keys" or not path.exists()


def test_a_key_folder_that_is_not_mounted_is_not_replaced_by_init(tmp_path: Path) -> None:
    starts(tmp_path)
    shutil.rmtree(tmp_path / "keys")
    with pytest.raises(StoreError, match="the database holds the log"):
        starts(tmp_path, init=True)


@pytest.mark.parametrize("step", SEALING_STEPS)
def test_a_provider_that_is_killed_at_any_step_goes_on_with_one_log(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill() -> None:
        raise Killed

    clock = SimulatedClock()
    tenant: LogClient | None = None

    async def life(*, killed: bool) -> None:
        nonlocal tenant
        async with publisher_site(tmp_path, clock) as site:
            await site.publisher.open()
            key = Ed25519PublicKey.from_public_bytes(site.keys.public)
            tenant = tenant or LogClient(key, (), None)
            followed(tenant, site, clock.now)
            if killed:
                clock.forward(DAY + 60)
                with monkeypatch.context() as patched:
                    before_step(site, step, patched, kill)
                    with pytest.raises(Killed):
                        await site.publisher.rotate()

    asyncio.run(life(killed=False))
    for _ in range(2):
        asyncio.run(life(killed=True))
    asyncio.run(life(killed=False))


def followed(tenant: LogClient, site: PublisherSite, now: float) -> None:
    """A tenant that remembers everything accepts what is served. Raises VerificationError otherwise."""
    epoch, log = site.publisher.epoch(), site.publisher.log
    assert tenant.follow(log.entries(tenant.size), log.checkpoint)
    tenant.verify(epoch.body, epoch.signature, site.publisher.list_revoked(), now)


def test_the_commands_say_what_they_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--keys", str(tmp_path / "keys"), "--db", str(tmp_path / "p.duckdb")]
    assert cli.main(["confirm-time", *where]) == 1 and "keys" in capsys.readouterr().err
    assert cli.main(["init", *where]) == 0
    public = capsys.readouterr().out.strip()
    assert cli.main(["key", *where[:2]]) == 0 and capsys.readouterr().out.strip() == public
    assert cli.main(["init", *where]) == 0 and capsys.readouterr().out.strip() == public
    assert cli.main(["confirm-time", *where]) == 0 and "confirmed: it is 20" in capsys.readouterr().out
    assert cli.main(["init", "--new-log", *where]) == 0 and capsys.readouterr().out.strip() != public
    assert cli.main(["move", *where]) == 0 and "start one copy within a day" in capsys.readouterr().out


def test_a_new_log_begins_only_where_a_provider_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--keys", str(tmp_path / "keys"), "--db", str(tmp_path / "p.duckdb")]
    assert cli.main(["init", "--new-log", *where]) == 1
    assert "no provider was here" in capsys.readouterr().err
    assert not (tmp_path / "keys").exists(), "a command that is refused makes nothing"


def test_a_new_log_begins_where_all_keys_are_lost(tmp_path: Path) -> None:
    starts(tmp_path)
    shutil.rmtree(tmp_path / "keys")
    public = start_new_log(str(tmp_path / "keys"), tmp_path / "p.duckdb").public
    (tmp_path / "provider.pub").write_text(public.hex())
    starts(tmp_path)


def test_a_new_log_begins_after_a_key_service_has_forgotten_the_old_key(tmp_path: Path) -> None:
    (tmp_path / "vault").mkdir()
    (tmp_path / "service.py").write_text(KEY_SERVICE)
    keys = f"command:{sys.executable} {tmp_path / 'service.py'} {tmp_path / 'vault'}"
    starts(tmp_path, keys=keys)
    with pytest.raises(ProviderError, match=r"still has the old signing\.key"):
        start_new_log(keys, tmp_path / "p.duckdb")
    starts(tmp_path, keys=keys)
    before, signed = (tmp_path / "provider.pub").read_text(), newest_epoch(tmp_path / "p.duckdb.state")
    (tmp_path / "vault" / "signing.key").unlink()
    public = start_new_log(keys, tmp_path / "p.duckdb").public.hex()
    assert public != before
    assert newest_epoch(tmp_path / "p.duckdb.state") == signed > 0, "no epoch of the old log is signed again"
    (tmp_path / "provider.pub").write_text(public)
    starts(tmp_path, keys=keys)


@pytest.mark.parametrize("privacy", ["private", "hashed"])
def test_a_provider_that_serves_answers_while_its_key_service_is_away(tmp_path: Path, privacy: str) -> None:
    """Its event loop would wait for the service, and all callers with it."""
    (tmp_path / "vault").mkdir()
    (tmp_path / "service.py").write_text(KEY_SERVICE)
    keys = f"command:{sys.executable} {tmp_path / 'service.py'} {tmp_path / 'vault'}"

    async def inside() -> None:
        async with loopback(tmp_path, RELEASE, keys=keys) as site:
            (tmp_path / "service.py").unlink()
            assert (await ask(site.settings(privacy=privacy))).matches

    asyncio.run(inside())
