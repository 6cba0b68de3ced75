"""Witnesses that are away for a moment: how soon the log that is served has their cosignatures again."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah_auditor.witness import Refusal, Witness
from pharoah_protocol.log.checkpoint import Note, SignatureLine, log_verifier
from pharoah_protocol.log.view import AUDIT, Entry
from pharoah_provider.publication import COSIGN_SECONDS, ROTATE_SECONDS
from pharoah_provider.services.upkeep import PERIOD_SECONDS
from pharoah_provider.transparency_log import Witness as Handle
from pharoah_provider.transparency_log import WitnessError
from pharoah_serving.errors import StoreError
from pharoah_serving.keys import open_keys
from tests.harness.clock import SimulatedClock
from tests.harness.publisher import PublisherSite, fill, publisher_site


@dataclass
class Reachable:
    """A witness without the HTTP in between, which may be away."""

    witness: Witness
    is_away: bool = False
    asked: list[int] = field(default_factory=list)
    """The size of the log at each request that it got."""

    def __call__(self, old: int, proof: Sequence[bytes], note: Note) -> SignatureLine:
        if self.is_away:
            raise WitnessError("away")
        self.asked.append(note.checkpoint.size)
        lines = [f"old {old}", *(base64.b64encode(part).decode() for part in proof)]
        try:
            answer = self.witness.add_checkpoint("\n".join(lines).encode() + b"\n\n" + note.encode(), 10**9)
        except Refusal as refusal:
            raise WitnessError(refusal.text, int(refusal.text) if refusal.text.isdigit() else None) from None
        return Note.decode(note.checkpoint.body + b"\n" + answer).signatures[0]


def with_witnesses(
    folder: Path, count: int, work: Callable[[PublisherSite, list[Reachable], SimulatedClock], Awaitable[None]]
) -> None:
    """Do `work` with a publisher that is open and so many witnesses of its log."""

    async def inside() -> None:
        await fill(folder)
        known, clock = log_verifier(open_keys(folder / "keys").public), SimulatedClock()
        keys = [Ed25519PrivateKey.from_private_bytes(bytes([number + 1]) * 32) for number in range(count)]
        witnesses = [
            Reachable(Witness(f"w{number}.example", key, [known], folder / f"seen-{number}.json"))
            for number, key in enumerate(keys)
        ]
        handles = [Handle(one.witness.verifier, one) for one in witnesses]
        async with publisher_site(folder, clock, handles) as site:
            await site.publisher.open()
            await work(site, witnesses, clock)

    asyncio.run(inside())


def cosignatures(site: PublisherSite, witnesses: Sequence[Reachable]) -> list[bool]:
    """Whether what is served is cosigned, by witness."""
    note = Note.decode(site.publisher.log.checkpoint)
    return [note.find_cosign_time(one.witness.verifier) is not None for one in witnesses]


def test_witnesses_that_miss_a_change_of_the_log_are_asked_again_within_a_minute(tmp_path: Path) -> None:
    async def work(site: PublisherSite, witnesses: list[Reachable], clock: SimulatedClock) -> None:
        assert cosignatures(site, witnesses) == [True] * 3
        for one in witnesses[1:]:
            one.is_away = True
        await site.publisher.append(Entry(AUDIT, 5, bytes(32)))
        assert cosignatures(site, witnesses) == [True, False, False]
        for one in witnesses[1:]:
            one.is_away = False
        clock.forward(PERIOD_SECONDS)
        await site.publisher.rotate()
        assert cosignatures(site, witnesses) == [True] * 3

    with_witnesses(tmp_path, 3, work)


def test_a_cosignature_of_the_tree_before_does_not_count_for_the_tree_that_is_served(tmp_path: Path) -> None:
    async def work(site: PublisherSite, witnesses: list[Reachable], clock: SimulatedClock) -> None:
        (only,) = witnesses
        only.is_away = True
        await site.publisher.append(Entry(AUDIT, 5, bytes(32)))
        only.is_away = False
        clock.forward(PERIOD_SECONDS)
        await site.publisher.rotate()
        assert cosignatures(site, witnesses) == [True]

    with_witnesses(tmp_path, 1, work)


def test_witnesses_that_have_all_cosigned_are_left_alone_for_five_minutes(tmp_path: Path) -> None:
    async def work(site: PublisherSite, witnesses: list[Reachable], clock: SimulatedClock) -> None:
        before = [len(one.asked) for one in witnesses]
        for _ in range(int(COSIGN_SECONDS // PERIOD_SECONDS)):
            clock.forward(PERIOD_SECONDS)
            await site.publisher.rotate()
        assert [len(one.asked) for one in witnesses] == before
        clock.forward(PERIOD_SECONDS)
        await site.publisher.rotate()
        assert [len(one.asked) for one in witnesses] == [count + 1 for count in before]

    with_witnesses(tmp_path, 2, work)


def test_a_witness_that_misses_a_renewal_keeps_its_cosignature_and_is_asked_again_within_a_minute(
    tmp_path: Path,
) -> None:
    async def work(site: PublisherSite, witnesses: list[Reachable], clock: SimulatedClock) -> None:
        away = witnesses[1]
        away.is_away = True
        clock.forward(COSIGN_SECONDS + 1)
        await site.publisher.rotate()
        assert cosignatures(site, witnesses) == [True, True]
        before, away.is_away = len(away.asked), False
        clock.forward(PERIOD_SECONDS)
        await site.publisher.rotate()
        assert len(away.asked) == before + 1

    with_witnesses(tmp_path, 2, work)


def test_witnesses_cosign_again_while_an_epoch_is_due_that_cannot_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(site: PublisherSite, witnesses: list[Reachable], clock: SimulatedClock) -> None:
        async def full(*_: object) -> None:
            raise StoreError("the disk is full")

        monkeypatch.setattr(site.store.published, "put_epoch", full)
        before = [len(one.asked) for one in witnesses]
        clock.forward(ROTATE_SECONDS + 60)
        with pytest.raises(StoreError, match="full"):
            await site.publisher.rotate()
        assert [len(one.asked) for one in witnesses] == [count + 1 for count in before]

    with_witnesses(tmp_path, 2, work)
