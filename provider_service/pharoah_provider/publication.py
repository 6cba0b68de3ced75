"""Which epoch is served: sealing, rotating, rolling back, revoking. One change at a time; each survives a crash.

An epoch exists once its head and its log entry are committed, in one transaction. After a crash the next start seals
the epoch again from its seed; the result must be equal to the head that was committed. The number of an epoch is
written down before its head is signed, so that no number is signed twice. While the clock has jumped nothing is sealed
and nothing is destroyed; what is served already stays served (ADR 24).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

from pharoah_learning.context_rule import ContextRule
from pharoah_learning.release import ClassKey, Release, SealInputs
from pharoah_learning.sealing import Epoch, groups_of, seal
from pharoah_protocol.log.forgotten import ForgetChange, ForgetKind, ForgottenEvidence, entry_of
from pharoah_protocol.log.view import HEAD, REVOKED, Entry, View
from pharoah_protocol.tables import signed_messages
from pharoah_protocol.tables.epoch_head import is_in_force
from pharoah_protocol.vocabulary import Scope
from pharoah_provider.contexts import Contexts
from pharoah_provider.epoch_seeds import EpochSeeds
from pharoah_provider.shielding import complete_despite_cancellation
from pharoah_provider.storage.base import Storage
from pharoah_provider.storage.records import EpochRecord, SignedHead
from pharoah_provider.transparency_log import TransparencyLog
from pharoah_serving.errors import Invalid, NotReady, StoreError, Unknown
from pharoah_serving.keys import Keys
from pharoah_serving.time_guard import TimeGuard

log = logging.getLogger("pharoah.provider.epochs")

ROTATE_SECONDS = 24 * 3600
"""After this long the release is sealed again under a fresh seed (ADR 13)."""
EARLY_SECONDS = 300
"""An epoch that begins later than this is sealed again: the clock was ahead. Clients accept one that begins within the
next hour (`epoch_head.EARLY_SECONDS`), so that small steps of the clock seal nothing."""
COSIGN_SECONDS = 300
"""How often witnesses cosign again. Cosignatures hold for fifteen minutes, so two attempts may fail. Cosignatures of an
earlier tree count for nothing, so that each `rotate` asks again until all have cosigned the tree that is served."""
AUDIT_RETENTION_SECONDS = 30 * 24 * 3600
"""How long an epoch can be audited: its seed is kept for this long after it began (ADR 13)."""


class _Attempt(NamedTuple):
    """What decides whether a release can be sealed."""

    release: int
    groups: frozenset[ClassKey]
    """The classes that are sealed."""


class RestoredRelease(NamedTuple):
    """What is served after a release was rolled back."""

    release: int
    epoch: int
    """The epoch that holds the release."""


class Publisher:
    """Serves the current epoch and the one before it, so that a tenant can finish the questions it has begun."""

    def __init__(
        self,
        store: Storage,
        keys: Keys,
        transparency: TransparencyLog,
        guard: TimeGuard,
        contexts: Contexts | None = None,
    ) -> None:
        """`contexts` follows the release that is served."""
        self._store, self._keys, self._guard = store, keys, guard
        self._seeds = EpochSeeds(store.published, keys, guard)
        self._contexts = contexts or Contexts()
        self.log = transparency
        self._epochs: dict[int, Epoch] = {}
        self._current = 0
        self._revoked: dict[int, set[bytes]] = {}
        """By epoch that is served: class handle and tag of its revoked rows."""
        self._release: Release | None = None
        """The release that is served."""
        self._failed: _Attempt | None = None
        """The last attempt to seal a release that cannot be sealed."""
        self._use: Callable[[Release], None] = lambda _: None
        self._lock = asyncio.Lock()

    async def open(self) -> None:
        """Start: serve the epochs that were served before. Without their seed the newest release is sealed anew."""
        for record in (await self._store.published.newest_epochs(2))[::-1]:
            if (epoch := await self._reseal(record)) is not None:
                self._epochs[epoch.head.epoch] = epoch
                self._current = epoch.head.epoch
        if self._epochs and max(self._epochs) != self.log.view.epoch:
            self._current, self._epochs = 0, {}  # the newest epoch of the log could not be sealed again
        self._revoked = {number: set(await self._store.log.list_revoked(number)) for number in self._epochs}
        if self._current:
            current = self._epochs[self._current]
            self._contexts.use(current.context_rule, current.contexts)
            self._release = await self._store.published.release(current.head.release)
        await self._serve(self.log.view)
        await self.rotate()

    def follow(self, use: Callable[[Release], None]) -> None:
        """Call `use` with the release that is served, now and whenever another one is served, whatever the reason."""
        self._use = use
        if self._release is not None:
            use(self._release)

    def _load_served(self, release: Release) -> None:
        """From now on a release is served, which may be the one before, sealed again."""
        if self._release is None or release.release != self._release.release:
            self._release = release
            self._use(release)

    def epoch(self, number: int | None = None) -> Epoch:
        """The current epoch, or one that is still served. Raises NotReady before the first release, Unknown."""
        if not self._current:
            raise NotReady("nothing has been released yet")
        if (number := self._current if number is None else number) not in self._epochs:
            raise Unknown(f"epoch {number} is over")
        return self._epochs[number]

    def list_revoked(self) -> bytes:
        """The list of revoked rows to which the log commits; empty without any."""
        rows = self.list_revoked_rows(self._current)
        return signed_messages.encode_revoked(self._current, rows) if rows else b""

    def list_revoked_rows(self, epoch: int) -> set[bytes]:
        """Class handle and tag of each revoked row, in an epoch that is served."""
        return self._revoked.get(epoch, set())

    @property
    def in_force(self) -> bool:
        """Whether clients accept what is served now: they check both ends of an epoch."""
        head = self._epochs[self._current].head if self._current else None
        return head is not None and is_in_force(head, self._guard.now())

    def require_time(self) -> None:
        """Raises NotReady while the clock has jumped."""
        if self._guard.jumped:
            raise NotReady("the clock of the provider has jumped: set it right, or confirm it (confirm-time)")

    async def rotate(self) -> None:
        """Seal again if that is due: after a day, for a newer release, for a node whose class is not sealed, and when
        the clock shows a time before the epoch. Destroy seeds that no audit may ask for any more."""
        await complete_despite_cancellation(self._rotate())

    async def _rotate(self) -> None:
        async with self._lock:
            if self._guard.jumped and not self.in_force:
                self._guard.accept("shows another time than before, and nothing that was sealed is in force")
            # What is served holds on when the disk is full and an epoch is due, so it comes first.
            if self.log.tip != self.log.view and self.log.tip.epoch == self._current:
                await self._serve_tip()  # it could not be signed when it was committed
            elif self.log.cosigned_seconds_ago > COSIGN_SECONDS:
                await self._serve(self.log.view)
            if (release := await self._store.published.newest_release()) is not None:
                await self._seal_if_due(release)
            await self._seeds.destroy_old(AUDIT_RETENTION_SECONDS)

    async def _seal_if_due(self, release: Release) -> None:
        """Seal a release if that is due. One that cannot be sealed leaves the current epoch served, and is not tried
        again with the same classes: it would fail each minute."""
        if not await self._due(release):
            return
        attempt = _Attempt(release.release, frozenset(await self._classes(release)))
        if attempt == self._failed:
            return
        try:
            await self._seal(release)
        except ValueError:
            self._failed = attempt
            log.exception("release %d cannot be sealed: roll it back", release.release)

    async def publish(self, release: Release) -> int:
        """Seal a release as the next epoch and serve it; returns the number of the epoch. Raises NotReady."""
        return await complete_despite_cancellation(self._publish(release))

    async def rollback(self, release: int = 0) -> RestoredRelease:
        """Roll the newest release back; returns what is served instead.

        With the number of the release it may be repeated: one that was rolled back before changes nothing. Raises
        NotReady, and Invalid for another release than the newest.
        """
        return await complete_despite_cancellation(self._rollback(release))

    async def revoke(self, rows: Iterable[str]) -> int:
        """Revoke rows of the current epoch, by id; returns how many. Raises Invalid for a row it does not have."""
        return await complete_despite_cancellation(self._revoke(list(rows)))

    async def reinstate(self, rows: Iterable[str]) -> int:
        """Let revoked rows hold again, from the next epoch on; returns how many. Raises Invalid for another row."""
        return await complete_despite_cancellation(self._reinstate(list(rows)))

    async def forget(self, kind: ForgetKind, name: str, *, undone: bool = False) -> None:
        """Change which evidence is left out from the next learning on, in the store and in the log.

        Raises Invalid when it would change nothing.
        """
        await complete_despite_cancellation(self._forget(kind, name, undone))

    async def append(self, *entries: Entry) -> None:
        """Append other entries to the log, and serve it."""
        await complete_despite_cancellation(self._append(*entries))

    async def _catch_up(self) -> None:
        """Serve what was committed when it could not be signed: what follows is signed together with it. Raises
        NotReady where an epoch is among it, which the next rotation replaces, and StoreError."""
        if self._current and self.log.tip.epoch != self._current:
            raise NotReady(
                "an epoch could not be signed when it was made; another one is made within a minute, unless the clock "
                "has jumped (`pharoah-provider confirm-time`) or the newest release cannot be sealed (`rollback`)"
            )
        if self.log.tip != self.log.view:
            await self._serve_tip()

    async def _publish(self, release: Release) -> int:
        async with self._lock:
            self.require_time()
            return await self._seal(release)

    async def _seal(self, release: Release) -> int:
        """The caller holds the lock and has looked at the clock. Raises StoreError, ValueError."""
        newest = await self._store.published.newest_epochs(1)
        number = max(self.log.newest_epoch, newest[0].epoch if newest else 0) + 1
        recipe = SealInputs(number, release, tuple(sorted(await self._classes(release))), int(self._guard.now()))
        await self.log.reserve_epoch(number)
        async with self._seeds.new(number) as seed:
            epoch = await asyncio.to_thread(seal, recipe, seed, self._keys.signing_key)
            revoked = _rows_of(epoch, await self._store.log.list_revoked_ids())
            entries = [Entry.from_body(HEAD, number, epoch.body).encode()]
            if revoked:  # a revoked row stays revoked, also when it is learned again
                entries.append(
                    Entry.from_body(REVOKED, number, signed_messages.encode_revoked(number, revoked.values())).encode()
                )
            self.log.tip.read(entries)  # raises before anything is committed
            sealed = SignedHead(head=epoch.head, body=epoch.body, signature=epoch.signature)
            await self._store.published.put_epoch(recipe, sealed, list(revoked.values()), self._position, entries)
        view = self.log.append(*entries)

        def switch() -> None:
            self._epochs = {key: held for key, held in self._epochs.items() if key == self._current} | {number: epoch}
            kept = {key: rows for key, rows in self._revoked.items() if key in self._epochs}
            self._current, self._revoked = number, kept | {number: set(revoked.values())}
            self._contexts.use(epoch.context_rule, epoch.contexts)
            self._load_served(release)

        await self._serve(view, switch)
        return number

    async def _rollback(self, release: int) -> RestoredRelease:
        async with self._lock:
            self.require_time()
            served, newest = self.epoch().head.release, await self._store.published.newest_release()
            withdrawn = max(served, newest.release if newest else 0)  # a rollback that was cut off is completed
            if release > withdrawn and release <= await self._store.published.last_release_number():
                return RestoredRelease(release=served, epoch=self._current)  # it was rolled back before
            if release not in (0, withdrawn):
                raise Invalid(f"release: {release} is not the newest one, which is {withdrawn}")
            before = await self._store.published.release_before(withdrawn)
            if before is None:
                raise NotReady(f"release {withdrawn} is the only one")
            await self._store.published.roll_back_release(withdrawn)
            if withdrawn != served:  # it could not be sealed: what is served stays
                return RestoredRelease(release=served, epoch=self._current)
            return RestoredRelease(release=before.release, epoch=await self._seal(before))

    async def _revoke(self, ids: list[str]) -> int:
        async with self._lock:
            await self._catch_up()
            current = self.epoch()
            found = _rows_of(current, ids)
            if missing := [i for i in ids if i not in found]:
                raise Invalid(f"rows: {missing[0]} is not in epoch {self._current} (see `pharoah-provider table`)")
            revoked = self.list_revoked_rows(self._current) | set(found.values())
            if revoked == self.list_revoked_rows(self._current):
                await self._store.log.keep_revoked(self._current, found)  # some may have been reinstated since
                return len(found)
            entry = Entry.from_body(
                REVOKED, self._current, signed_messages.encode_revoked(self._current, revoked)
            ).encode()
            self.log.tip.read([entry])
            await self._store.log.put_revoked(self._current, current.head.release, found, self._position, entry)
            view = self.log.append(entry)
            await self._serve(view, lambda: self._revoked.update({self._current: revoked}))
            return len(found)

    async def _reinstate(self, ids: list[str]) -> int:
        async with self._lock:
            revoked = set(await self._store.log.list_revoked_ids())
            if missing := [i for i in ids if i not in revoked]:
                raise Invalid(f"rows: {missing[0]} is not revoked")
            await self._store.log.reinstate(ids)
            return len(ids)

    async def _forget(self, kind: ForgetKind, name: str, undone: bool) -> None:
        async with self._lock:
            await self._catch_up()
            changes = await self._store.log.list_forgotten()
            held = ForgottenEvidence.after(changes)
            is_held = name in (held.nodes if kind is ForgetKind.NODE else held.cells)
            if undone and not is_held:
                raise Invalid(f"name: {kind} {name!r} is not forgotten")
            if is_held and not undone and kind is ForgetKind.CELL:
                raise Invalid(f"name: {kind} {name!r} is forgotten already")
            # Nothing may wait between the time and the change: a release that is learned later must know the change.
            change = ForgetChange(kind, name, self._guard.now(), undone)
            entry = entry_of([*changes, change]).encode()
            self.log.tip.read([entry])
            await self._store.log.put_forgotten(change, self._position, entry)
            await self._serve(self.log.append(entry))

    async def _append(self, *entries: Entry) -> None:
        async with self._lock:
            await self._catch_up()
            encoded = [entry.encode() for entry in entries]
            self.log.tip.read(encoded)
            await self._store.log.put_log_entries(self._position, encoded)
            view = self.log.append(*encoded)
            await self._serve(view)

    async def _serve(self, view: View, switch: Callable[[], None] = lambda: None) -> None:
        """Serve this view of the log together with the epoch it names, and store the checkpoint with its cosignatures.

        Nothing may wait between the log and `switch`: tenants reject a head that is not the newest one in its log.
        """
        await self.log.serve(view)
        switch()
        await self._store.log.put_checkpoint(self.log.checkpoint)

    async def _serve_tip(self) -> None:
        """Serve everything that was committed, with the revoked rows as they are stored."""
        revoked = {number: set(await self._store.log.list_revoked(number)) for number in self._epochs}
        await self._serve(self.log.tip, lambda: self._revoked.update(revoked))

    @property
    def _position(self) -> int:
        return self.log.tip.frontier.size

    async def _reseal(self, record: EpochRecord) -> Epoch | None:
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

    async def _due(self, release: Release) -> bool:
        if self._guard.jumped:
            return False
        if not self._current or self.log.tip.epoch != self._current:
            return True
        current, now = self.epoch(), self._guard.now()
        if not -EARLY_SECONDS <= now - current.head.not_before <= ROTATE_SECONDS:
            return True
        return release.release != current.head.release or not await self._groups(release.context_rule) <= set(
            current.ids
        )

    async def _classes(self, release: Release) -> set[ClassKey]:
        """The classes of which an epoch of a release has tables: those of its rows, and those of all nodes."""
        return groups_of(release.rows) | await self._groups(release.context_rule)

    async def _groups(self, rule: ContextRule) -> set[ClassKey]:
        nodes = await self._store.nodes.nodes()
        contexts = {ClassKey(scope=Scope.SERVER, group_id=rule.context_of(node.server_facts)) for node in nodes}
        return contexts | {ClassKey(scope=Scope.DEVICE, group_id=node.device_id) for node in nodes}


def _rows_of(epoch: Epoch, ids: Iterable[str]) -> dict[str, bytes]:
    """By id: class handle and tag of each of these rows that the epoch has."""
    wanted = set(ids)
    return {i: one.class_id + tag for one in epoch.classes.values() for i, tag in one.tags.items() if i in wanted}
