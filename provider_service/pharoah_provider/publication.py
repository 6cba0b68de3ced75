"""Which epoch is served: sealing, rotating, taking back. One change at a time; each survives a crash at any point.

An epoch exists once its head and its log entry are committed, in one transaction. What a crash leaves out after that
is made up at the next start: the epoch is sealed again from its seed, and must come out the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from pharoah_learning.release import ClassKey, Release, SealInputs
from pharoah_learning.sealing import Epoch, groups_of, seal
from pharoah_protocol.log.view import HEAD, REVOKED, Entry, View
from pharoah_protocol.tables import signed_messages
from pharoah_provider.shielding import complete_despite_cancellation
from pharoah_provider.storage.base import Storage
from pharoah_provider.storage.records import EpochRecord
from pharoah_provider.transparency_log import TransparencyLog
from pharoah_serving.errors import Invalid, NotReady, StoreError, Unknown
from pharoah_serving.keys import Keys

log = logging.getLogger("pharoah.provider.epochs")

ROTATE_SECONDS = 24 * 3600
"""A release is sealed again under a fresh seed after this long."""
COSIGN_SECONDS = 300
"""How often witnesses are asked again, so that nobody can be shown an old log for long."""
DISPUTE_SECONDS = 30 * 24 * 3600
"""How long a seed is kept for audits after its epoch began."""


class Publisher:
    """Serves the current epoch and the one before it, so that nobody is cut off in the middle of asking."""

    def __init__(self, store: Storage, keys: Keys, transparency: TransparencyLog) -> None:
        self._store, self._keys = store, keys
        self.log = transparency
        self._epochs: dict[int, Epoch] = {}
        self._current = 0
        self._revoked: dict[int, set[bytes]] = {}
        """By epoch that is served: class handle and tag of rows that no longer hold."""
        self._lock = asyncio.Lock()

    async def open(self, now: float) -> None:
        """After a start: serve again what was served, if its seed is still there; else seal anew."""
        for record in (await self._store.published.newest_epochs(2))[::-1]:
            if (epoch := await self._again(record)) is not None:
                self._epochs[epoch.head.epoch] = epoch
                self._current = epoch.head.epoch
        if self._epochs and max(self._epochs) != self.log.view.epoch:
            self._current, self._epochs = 0, {}  # the newest one in the log could not be made again
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
        """The signed-for list of rows that no longer hold; empty when there are none."""
        rows = self.revoked_rows(self._current)
        return signed_messages.revoked(self._current, rows) if rows else b""

    def revoked_rows(self, epoch: int) -> set[bytes]:
        """Class handle and tag of each, in an epoch that is served."""
        return self._revoked.get(epoch, set())

    async def rotate(self, now: float) -> None:
        """Seal again if that is due: after a day, for a newer release, for a node of no sealed class."""
        await complete_despite_cancellation(self._rotate(now))

    async def _rotate(self, now: float) -> None:
        async with self._lock:
            release = await self._store.published.newest_release()
            if release is not None and await self._due(release, now):
                try:
                    await self._seal(release, now)
                except ValueError:  # what is served goes on being served
                    log.exception("release %d cannot be sealed: roll it back", release.release)
            elif now - self.log.cosigned_at > COSIGN_SECONDS:
                await self._serve(self.log.view)
        for number in await self._store.published.seeds_before(now - DISPUTE_SECONDS):
            await asyncio.to_thread(self._keys.forget_epoch, number)
            await self._store.published.put_seed_destroyed(number)

    async def publish(self, release: Release, now: float) -> int:
        """Seal a release as the next epoch and serve it; the epoch's number."""
        return await complete_despite_cancellation(self._publish(release, now))

    async def rollback(self, now: float) -> tuple[int, int]:
        """Take the newest release back: (release, epoch) that are served instead. Raises NotReady."""
        return await complete_despite_cancellation(self._rollback(now))

    async def revoke(self, rows: Iterable[str]) -> int:
        """Take rows of the current epoch back, by id. Raises Invalid for one it does not have."""
        return await complete_despite_cancellation(self._revoke(list(rows)))

    async def give_back(self, rows: Iterable[str]) -> int:
        """Let rows that were taken back hold again, from the next epoch on. Raises Invalid for one that was not."""
        return await complete_despite_cancellation(self._give_back(list(rows)))

    async def append(self, *entries: Entry) -> None:
        """Other things the log carries."""
        await complete_despite_cancellation(self._append(*entries))

    async def _publish(self, release: Release, now: float) -> int:
        async with self._lock:
            return await self._seal(release, now)

    async def _seal(self, release: Release, now: float) -> int:
        """Under the lock."""
        newest = await self._store.published.newest_epochs(1)
        number = max(self.log.view.epoch, newest[0].epoch if newest else 0) + 1
        groups = groups_of(release.rows) | await self._groups()
        recipe = SealInputs(number, release, tuple(sorted(groups)), int(now))
        seed = await asyncio.to_thread(self._keys.new_epoch_seed, number)
        epoch = await asyncio.to_thread(seal, recipe, seed, self._keys.signing_key)
        taken = _rows_of(epoch, await self._store.log.revoked_ids())
        entries = [Entry.of(HEAD, number, epoch.body).encode()]
        if taken:  # a row that was taken back stays so, also when it is learned again
            entries.append(Entry.of(REVOKED, number, signed_messages.revoked(number, taken.values())).encode())
        view = self.log.view.read(entries)  # raises before anything is committed
        sealed = (epoch.head, epoch.body, epoch.signature)
        await self._store.published.put_epoch(recipe, sealed, list(taken.values()), self._position, entries)
        self.log.append(*entries)

        def turn() -> None:
            self._epochs = {key: held for key, held in self._epochs.items() if key == self._current} | {number: epoch}
            kept = {key: rows for key, rows in self._revoked.items() if key in self._epochs}
            self._current, self._revoked = number, kept | {number: set(taken.values())}

        await self._serve(view, turn)
        return number

    async def _rollback(self, now: float) -> tuple[int, int]:
        async with self._lock:
            served = self.epoch().head.release
            before = await self._store.published.release_before(served)
            if before is None:
                raise NotReady(f"release {served} is the only one there is")
            await self._store.published.roll_back_release(served)
            return before.release, await self._seal(before, now)

    async def _revoke(self, ids: list[str]) -> int:
        async with self._lock:
            current = self.epoch()
            found = _rows_of(current, ids)
            if missing := [i for i in ids if i not in found]:
                raise Invalid(f"rows: {missing[0]} is not in epoch {self._current} (see `pharoah-provider table`)")
            taken = self.revoked_rows(self._current) | set(found.values())
            if taken == self.revoked_rows(self._current):
                await self._store.log.keep_revoked(self._current, found)  # some may have been given back since
                return len(found)
            entry = Entry.of(REVOKED, self._current, signed_messages.revoked(self._current, taken)).encode()
            view = self.log.view.read([entry])
            await self._store.log.put_revoked(self._current, current.head.release, found, self._position, entry)
            self.log.append(entry)
            await self._serve(view, lambda: self._revoked.update({self._current: taken}))
            return len(found)

    async def _give_back(self, ids: list[str]) -> int:
        async with self._lock:
            taken = set(await self._store.log.revoked_ids())
            if missing := [i for i in ids if i not in taken]:
                raise Invalid(f"rows: {missing[0]} was not taken back")
            await self._store.log.reinstate(ids)
            return len(ids)

    async def _append(self, *entries: Entry) -> None:
        async with self._lock:
            encoded = [entry.encode() for entry in entries]
            view = self.log.view.read(encoded)
            await self._store.log.put_log_entries(self._position, encoded)
            self.log.append(*encoded)
            await self._serve(view)

    async def _serve(self, view: View, turn: Callable[[], None] = lambda: None) -> None:
        """Show this view of the log together with what it is about, and keep what witnesses said of it.

        Nothing may wait between the log and its `turn`: a head that is not the newest in its log is not believed.
        """
        await self.log.serve(view)
        turn()
        await self._store.log.put_checkpoint(self.log.checkpoint)

    @property
    def _position(self) -> int:
        return self.log.view.frontier.size

    async def _again(self, record: EpochRecord) -> Epoch | None:
        """An epoch sealed once more; None when its seed is not the one it was made with."""
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
            log.warning("epoch %d cannot be served again: its seed or the signing key is another one", recipe.epoch)
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
        return {("server", node.context_id) for node in nodes} | {("device", node.device_id) for node in nodes}


def _rows_of(epoch: Epoch, ids: Iterable[str]) -> dict[str, bytes]:
    """Class handle and tag of those of these rows that the epoch has, by id."""
    wanted = set(ids)
    return {i: one.class_id + tag for one in epoch.classes.values() for i, tag in one.tags.items() if i in wanted}
