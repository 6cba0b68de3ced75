"""Honest operators who start two providers, restore copies, lose folders and kill processes: real `serve` processes.

A tenant that remembers everything asks each provider that starts. Whatever it keeps as evidence is held against
`prove`. Where a provider refuses to start, the operator does what the message says, and a verdict must come then.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import grpc.aio

from pharoah._errors import UnknownReason
from pharoah._settings import Settings
from pharoah.sidecar.exchange_client import ExchangeClient
from pharoah.sidecar.log_client import VerificationError
from pharoah.sidecar.provider_connection import ProviderConnection
from pharoah_learning.release import Release
from pharoah_protocol.rpc import Stub
from pharoah_protocol.tables.misbehaviour import InvalidEvidenceError, prove
from pharoah_protocol.v1 import RevokeRequest
from pharoah_protocol.vocabulary import Outcome
from pharoah_serving.keys import open_keys
from tests.harness.exchange import KNOWN, ROW
from tests.harness.loopback import TOKENS, bearer, ticket
from tests.harness.publisher import fill, fill_database
from tests.harness.sockets import socket_folder
from tests.harness.tokens import write_list, write_token

START_SECONDS = 30.0
FILES = ("p.duckdb", "keys", "audit")
SECOND_ROW = replace(ROW, tokens=(*ROW.tokens[:-1], "size=other"), outcome=Outcome.ERROR)
"""A row to revoke on one of two copies, so that their logs differ."""
RELEASE = Release(1, (ROW, SECOND_ROW))


@dataclass
class Site:
    """The files of one provider, and a tenant that remembers what it was shown."""

    folder: Path
    proofs: list[str] = field(default_factory=list)
    """What was proven of the provider."""
    refusals: list[str] = field(default_factory=list)
    """Why a provider did not start."""
    verdicts: int = 0

    def prepare(self) -> None:
        """Keys, tokens, a node and a release."""
        self.folder.mkdir()
        asyncio.run(fill(self.folder, RELEASE))
        self.put_tokens()
        self.pin()

    def put_tokens(self) -> None:
        write_list(self.folder / "tokens", TOKENS.values())
        write_token(self.folder / "acme.token", TOKENS["acme"])

    def pin(self) -> None:
        """The tenant pins the key that the operator prints."""
        (self.folder / "provider.pub").write_text(open_keys(self.folder / "keys").public.hex())

    @contextmanager
    def provider(
        self, *, at: Path | None = None, kill: bool = False, files: Mapping[str, Path] | None = None
    ) -> Iterator[str | None]:
        """The address of a started provider; None when it refuses to start. `kill` ends it with SIGKILL; `files` are
        used instead of those in its folder."""
        where = at or self.folder
        used = {"db": where / "p.duckdb", "keys": where / "keys", "audit": where / "audit", **(files or {})}
        used["tokens"] = self.folder / "tokens"
        with socket_folder() as sockets, (self.folder / "log").open("w+") as log:
            endpoint = f"unix:{sockets}/p.sock"
            command = [sys.executable, "-m", "pharoah_provider.cli", "serve", "--listen", endpoint]
            command += ["--http", "127.0.0.1:0"]
            command += [part for name, path in used.items() for part in (f"--{name}", str(path))]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder)
            try:
                yield endpoint if self._started(process, log.name) else None
            finally:
                process.kill() if kill else process.terminate()
                process.wait()

    def _started(self, process: subprocess.Popen[bytes], log: str) -> bool:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            said = Path(log).read_text()
            if "provider key for tenants" in said:
                return True
            if process.poll() is not None:
                self.refusals.append(said.strip().splitlines()[-1] if said.strip() else "")
                return False
            time.sleep(0.02)
        raise TimeoutError(f"{self.folder}: the provider neither starts nor ends")

    def ask(self, endpoint: str) -> bool:
        """Whether the tenant gets a verdict; what its evidence proves is noted."""
        return asyncio.run(self._ask(endpoint))

    async def _ask(self, endpoint: str) -> bool:
        settings = Settings(
            endpoint=endpoint,
            token_file=str(self.folder / "acme.token"),
            provider_key_file=str(self.folder / "provider.pub"),
            state_folder=str(self.folder / "state"),
            timeout_seconds=10.0,
        )
        provider = ProviderConnection(settings)
        try:
            await ExchangeClient(provider, settings).ask(KNOWN, ticket())
        except VerificationError as error:
            try:
                self.proofs.append(prove(error.evidence or {}, provider.key.public_bytes_raw()))
            except InvalidEvidenceError:
                pass
            return False
        except UnknownReason:
            return False
        finally:
            await provider.channel.close(None)
        self.verdicts += 1
        return True

    def revoke(self, endpoint: str, row: str) -> None:
        """The log gets one entry more."""
        asyncio.run(_revoke(endpoint, row))

    def start_new_log(self) -> None:
        """What a refusal advises: a new key, which the tenant pins."""
        command = [sys.executable, "-m", "pharoah_provider.cli", "init", "--keys", str(self.folder / "keys")]
        command += ["--db", str(self.folder / "p.duckdb"), "--new-log"]
        subprocess.run(command, check=True, capture_output=True, timeout=START_SECONDS)
        self.pin()


async def _revoke(endpoint: str, row: str) -> None:
    async with grpc.aio.insecure_channel(endpoint) as channel:
        request = RevokeRequest(rows=[row])
        try:
            await Stub(channel, "Operator").Revoke(request, timeout=20, metadata=bearer("ops"))
        except grpc.aio.AioRpcError:
            pass  # killed meanwhile, or refused


def copied(source: Path, target: Path, names: tuple[str, ...]) -> None:
    """Copy files of a provider over what is there."""
    target.mkdir(exist_ok=True)
    for name in names:
        remove(target / name)
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name)
        elif (source / name).exists():
            shutil.copy2(source / name, target / name)


def remove(path: Path) -> None:
    """Delete a file or a folder, if it is there."""
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def two_providers(site: Site) -> bool:
    """The same keys with another database, another audit log, and copies of everything, beside the running one."""
    site.prepare()
    with site.provider() as first:
        assert first is not None
        held = site.ask(first)
        for name, path in (("db", site.folder / "other.duckdb"), ("audit", site.folder / "other-audit")):
            with site.provider(files={name: path}) as second:
                if second is not None:
                    site.revoke(second, SECOND_ROW.id)
                    site.ask(second)
        site.revoke(first, ROW.id)
        copied(site.folder, site.folder / "copy", FILES)
        with site.provider(at=site.folder / "copy") as third:
            if third is not None:
                site.revoke(third, SECOND_ROW.id)
                site.ask(third)
        site.revoke(first, SECOND_ROW.id)
        return site.ask(first) and held


def restored(site: Site, names: tuple[str, ...], *, in_place: bool) -> bool:
    """Copies from before the last signatures take the place of the files, or overwrite their contents."""
    site.prepare()
    with site.provider() as endpoint:
        assert endpoint is not None
        site.ask(endpoint)
    copied(site.folder, site.folder / "before", FILES)
    with site.provider() as endpoint:
        assert endpoint is not None
        site.revoke(endpoint, ROW.id)
        site.ask(endpoint)
    if in_place:
        for name in names:
            source, target = site.folder / "before" / name, site.folder / name
            shutil.copytree(source, target, dirs_exist_ok=True) if source.is_dir() else shutil.copyfile(source, target)
    else:
        copied(site.folder / "before", site.folder, names)
    return _started_or_helped(site)


def lost(site: Site, name: str) -> bool:
    """A file or folder of a provider is gone."""
    site.prepare()
    with site.provider() as endpoint:
        assert endpoint is not None
        site.revoke(endpoint, ROW.id)
        site.ask(endpoint)
    remove(site.folder / name)
    return _started_or_helped(site, is_empty=name == "p.duckdb")


def killed(site: Site, seed: int, kills: int) -> bool:
    """kill -9 at random moments of publishing, and a start after each."""
    chance = random.Random(seed)
    site.prepare()
    held = True
    for number in range(kills):
        with site.provider(kill=True) as endpoint:
            if endpoint is None:
                return False
            held = site.ask(endpoint) and held
            if number < kills - 1:
                _begin_a_change(endpoint, chance.uniform(0.0, 0.08), (ROW, SECOND_ROW)[number % 2].id)
    return held


def _begin_a_change(endpoint: str, after_seconds: float, row: str) -> None:
    """Ask for a change of the log, and leave after a moment: the provider is killed while it works on it."""

    async def begin() -> None:
        change = asyncio.ensure_future(_revoke(endpoint, row))
        await asyncio.wait({change}, timeout=after_seconds)
        change.cancel()
        await asyncio.wait({change})

    asyncio.run(begin())


def _started_or_helped(site: Site, *, is_empty: bool = False) -> bool:
    """Whether a verdict comes: from the provider as it is, or after what its refusal advises. An empty database gets
    what its agents and a campaign would bring again."""
    with site.provider() as endpoint:
        if endpoint is not None:
            site.revoke(endpoint, SECOND_ROW.id)
            return site.ask(endpoint)
    site.start_new_log()
    if is_empty:
        asyncio.run(fill_database(site.folder, RELEASE))
    with site.provider() as endpoint:
        return endpoint is not None and site.ask(endpoint)
