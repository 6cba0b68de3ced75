"""Which epoch is served: sealing, rotating, rolling back, revoking. One change at a time; each survives a crash.

An epoch exists once its head and its log entry are committed, in one transaction. After a crash the next start seals
the epoch again from its seed; the result must be equal to the head that was committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

from pharoah_learning.release import ClassKey, Release, SealInputs
from pharoah_learning.sealing import Epoch, groups_of, seal
from pharoah_protocol.log.view import HEAD, REVOKED, Entry, View
from pharoah_protocol.tables import signed_messages
from pharoah_protocol.vocabulary import Scope
from pharoah_provider.shielding import complete_despite_cancellation
from pharoah_provider.storage.base import Storage
from pharoah_provider.storage.records import EpochRecord, SignedHead
from pharoah_provider.transparency_log import TransparencyLog
from pharoah_serving.errors import Invalid, NotReady, StoreError, Unknown
from pharoah_serving.keys import Keys

log = logging.getLogger("pharoah.provider.epochs")

ROTATE_SECONDS = 24 * 3600
"""After this long the release is sealed again under a fresh seed (ADR 13)."""
COSIGN_SECONDS = 300
"""How often witnesses cosign again. Cosignatures hold for fifteen minutes, so two attempts may fail."""
AUDIT_RETENTION_SECONDS = 30 * 24 * 3600
"""How long an epoch can be audited: its seed is kept for this long after it began (ADR 13)."""


class RestoredRelease(NamedTuple):
    """What is served after a release was rolled back."""

    release: int
    epoch: int
    """The new epoch that holds the release."""


class Publisher:
    """Serves the current epoch and the one before it, so that a tenant can finish the questions it has begun."""

    def __init__(self, store: Storage, keys: Keys, transparency: TransparencyLog) -> None:
        self._store, self._keys = store, keys
        self.log = transparency
        self._epochs: dict[int, Epoch] = {}
        self._current = 0
        self._revoked: dict[int, set[bytes]] = {}
        """By epoch that is served: class handle and tag of its revoked rows."""
        self._lock = asyncio.Lock()

    async def open(self, now: float) -> None:
        """Start: serve the epochs that were served before. Without their seed the newest release is sealed anew."""
        for record in (await self._store.published.newest_epochs(2))[::-1]:
            if (epoch := await self._resealed(record)) is not None:
                self._epochs[epoch.head.epoch] = epoch
                self._current = epoch.head.epoch
        if self._epochs and max(self._epochs) != self.log.view.epoch:
            self._current, self._epochs = 0, {}  # the newest epoch of the log could not be sealed again
        self._revoked = {number: set(await self._store.log.revoked(number)) for number in self._epochs}
        await self._serve(self.log.view)
        await self.rotate(now)

    def epoch(self, number: int | None = None) -> Epoch:
        """The current epoch, or one that is still served. Raises NotReady before the first release, Unknown."""
        if not self._current:
            raise NotReady("nothing has been released yet")
        if (number := self._current if number is None else number) not in self._epochs:
            raise Unknown(f"epoch {number} is over")
        return self._epochs[number]

    def revoked(self) -> bytes:
        """The list of revoked rows to which the log commits; empty without any."""
        rows = self.revoked_rows(self._current)
        return signed_messages.revoked(self._current, rows) if rows else b""

    def revoked_rows(self, epoch: int) -> set[bytes]:
        """Class handle and tag of each revoked row, in an epoch that is served."""
        return self._revoked.get(epoch, set())

    async def rotate(self, now: float) -> None:
        """Seal again if that is due: after a day, for a newer release, and for a node whose class is not sealed."""
        await complete_despite_cancellation(self._rotate(now))

    async def _rotate(self, now: float) -> None:
        async with self._lock:
            release = await self._store.published.newest_release()
            if release is not None and await self._due(release, now):
                try:
                    await self._seal(release, now)
                except ValueError:  # the current epoch stays served
                    log.exception("release %d cannot be sealed: roll it back", release.release)
            elif now - self.log.cosigned_at > COSIGN_SECONDS:
                await self._serve(self.log.view)
        for number in await self._store.published.seeds_before(now - AUDIT_RETENTION_SECONDS):
            await asyncio.to_thread(self._keys.forget_epoch, number)
            await self._store.published.put_seed_destroyed(number)

    async def publish(self, release: Release, now: float) -> int:
        """Seal a release as the next epoch and serve it; returns the number of the epoch."""
        return await complete_despite_cancellation(self._publish(release, now))

    async def rollback(self, now: float) -> RestoredRelease:
        """Roll the newest release back; returns what is served instead. Raises NotReady."""
        return await complete_despite_cancellation(self._rollback(now))

    async def revoke(self, rows: Iterable[str]) -> int:
        """Revoke rows of the current epoch, by id; returns how many. Raises Invalid for a row it does not have."""
        return await complete_despite_cancellation(self._revoke(list(rows)))

    async def reinstate(self, rows: Iterable[str]) -> int:
        """Let revoked rows hold again, from the next epoch on; returns how many. Raises Invalid for another row."""
        return await complete_despite_cancellation(self._reinstate(list(rows)))

    async def append(self, *entries: Entry) -> None:
        """Append other entries to the log, and serve it."""
        await complete_despite_cancellation(self._append(*entries))

    async def _publish(self, release: Release, now: float) -> int:
        async with self._lock:
            return await self._seal(release, now)

    async def _seal(self, release: Release, now: float) -> int:
        """The caller holds the lock."""
        newest = await self._store.published.newest_epochs(1)
        number = max(self.log.view.epoch, newest[0].epoch if newest else 0) + 1
        groups = groups_of(release.rows) | await self._groups()
        recipe = SealInputs(number, release, tuple(sorted(groups)), int(now))
        seed = await asyncio.to_thread(self._keys.new_epoch_seed, number)
        epoch = await asyncio.to_thread(seal, recipe, seed, self._keys.signing_key)
        revoked = _rows_of(epoch, await self._store.log.revoked_ids())
        entries = [Entry.of(HEAD, number, epoch.body).encode()]
        if revoked:  # a revoked row stays revoked, also when it is learned again
            entries.append(Entry.of(REVOKED, number, signed_messages.revoked(number, revoked.values())).encode())
        view = self.log.view.read(entries)  # raises before anything is committed
        sealed = SignedHead(head=epoch.head, body=epoch.body, signature=epoch.signature)
        await self._store.published.put_epoch(recipe, sealed, list(revoked.values()), self._position, entries)
        self.log.append(*entries)

        def switch() -> None:
            self._epochs = {key: held for key, held in self._epochs.items() if key == self._current} | {number: epoch}
            kept = {key: rows for key, rows in self._revoked.items() if key in self._epochs}
            self._current, self._revoked = number, kept | {number: set(revoked.values())}

        await self._serve(view, switch)
        return number

    async def _rollback(self, now: float) -> RestoredRelease:
        async with self._lock:
            served = self.epoch().head.release
            before = await self._store.published.release_before(served)
            if before is None:
                raise NotReady(f"release {served} is the only one")
            await self._store.published.roll_back_release(served)
            return RestoredRelease(release=before.release, epoch=await self._seal(before, now))

    async def _revoke(self, ids: list[str]) -> int:
        async with self._lock:
            current = self.epoch()
            found = _rows_of(current, ids)
            if missing := [i for i in ids if i not in found]:
                raise Invalid(f"rows: {missing[0]} is not in epoch {self._current} (see `pharoah-provider table`)")
            revoked = self.revoked_rows(self._current) | set(found.values())
            if revoked == self.revoked_rows(self._current):
                await self._store.log.keep_revoked(self._current, found)  # some may have been reinstated since
                return len(found)
            entry = Entry.of(REVOKED, self._current, signed_messages.revoked(self._current, revoked)).encode()
            view = self.log.view.read([entry])
            await self._store.log.put_revoked(self._current, current.head.release, found, self._position, entry)
            self.log.append(entry)
            await self._serve(view, lambda: self._revoked.update({self._current: revoked}))
            return len(found)

    async def _reinstate(self, ids: list[str]) -> int:
        async with self._lock:
            revoked = set(await self._store.log.revoked_ids())
            if missing := [i for i in ids if i not in revoked]:
                raise Invalid(f"rows: {missing[0]} is not revoked")
            await self._store.log.reinstate(ids)
            return len(ids)

    async def _append(self, *entries: Entry) -> None:
        async with self._lock:
            encoded = [entry.encode() for entry in entries]
            view = self.log.view.read(encoded)
            await self._store.log.put_log_entries(self._position, encoded)
            self.log.append(*encoded)
            await self._serve(view)

    async def _serve(self, view: View, switch: Callable[[], None] = lambda: None) -> None:
        """Serve this view of the log together with the epoch it names, and store the checkpoint with its cosignatures.

        Nothing may wait between the log and `switch`: tenants reject a head that is not the newest one in its log.
        """
        await self.log.serve(view)
        switch()
        await self._store.log.put_checkpoint(self.log.checkpoint)

    @property
    def _position(self) -> int:
        return self.log.view.frontier.size

    async def _resealed(self, record: EpochRecord) -> Epoch | None:
        """A stored epoch, sealed again; None when its seed or its release is gone, or the result differs."""
        release = await self._store.published.release(record.release)
        if release is None or not record.groups:
            return None
        recipe = SealInputs(record.epoch, release, record.groups, record.began)
        try:
            seed = await asyncio.to_thread(self._keys.epoch_seed, recipe.epoch)
            epoch = await asyncio.to_thread(seal, recipe, seed, self._keys.signing_key)
        except StoreError as error:
            log.warning("epoch %d cannot be served again: %s", recipe.epoch, error)
            return None
        if epoch.body != record.head:
            log.warning("epoch %d cannot be served again: its seed or the signing key has changed", recipe.epoch)
            return None
        return epoch

    async def _due(self, release: Release, now: float) -> bool:
        if not self._current:
            return True
        current = self.epoch()
        began_long_ago = now - current.head.not_before > ROTATE_SECONDS
        return began_long_ago or release.release != current.head.release or not await self._groups() <= set(current.ids)

    async def _groups(self) -> set[ClassKey]:
        nodes = await self._store.nodes.nodes()
        contexts = {ClassKey(scope=Scope.SERVER, group_id=node.context_id) for node in nodes}
        return contexts | {ClassKey(scope=Scope.DEVICE, group_id=node.device_id) for node in nodes}


def _rows_of(epoch: Epoch, ids: Iterable[str]) -> dict[str, bytes]:
    """By id: class handle and tag of each of these rows that the epoch has."""
    wanted = set(ids)
    return {i: one.class_id + tag for one in epoch.classes.values() for i, tag in one.tags.items() if i in wanted}
