"""Results of guest probes that are forged in every way that is known, and honest ones beside them.

The provider, its database and its keys are real, and everything goes over gRPC. Orders come from monitoring, as for
every run that has agreed and whose agent is not connected. While an order is open, all forgeries of it are sent, then
an honest result, then that again. Steady time jumps where a result must be late. Of one run the sidecar's own code does
the orders in real processes.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import secrets
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, nan
from pathlib import Path
from typing import Any

from evaluation.figures import Figures
from pharoah.sidecar.guest_probes import GuestProbes
from pharoah.sidecar.provider_connection import ProviderConnection
from pharoah_benchmarks.micro import MICRO_BENCHMARKS
from pharoah_protocol.guest_probes import MAX_REPEATS, GuestResult
from pharoah_protocol.v1 import Consent, EndRunRequest, EndState
from pharoah_protocol.vocabulary import ProbeStatus
from pharoah_provider.monitoring.guest_results import ROUNDING, ProbeRejection
from pharoah_provider.monitoring.levels import ROUNDS
from pharoah_serving.clock import Clock
from pharoah_serving.quotas import Limits
from tests.harness.guest_runs import ACCEPTED, NO_SUCH_RUN, TOO_MANY, GuestRun, guest_run, honest_seconds, joined
from tests.harness.loopback import Loopback, loopback
from tests.harness.runs import join, report, rows
from tests.harness.until import until

SHARE = 1000.0
"""Orders may take any time: how long they take has other bounds (`evaluation.hardening.consent`)."""
MANY = Limits(organisation_rejected_results=1 << 30)
LATE_SECONDS = 100.0
"""An order of these runs is good for 62 s; a run is lost after 180."""
REAL_LIMIT_SECONDS = 2.0
REAL_SECONDS = 600.0
"""How long the real sidecar may take for its orders: beside three busy processes on its core, its children, which run
at a low priority, get a thirtieth of it, and each of them computes for several seconds until it has torch."""
REAL_PROBES = 2
"""A round of monitoring: products and copies."""
MIN_KINDS = 40
ORDERS = 2 * ROUNDS
"""Orders of a run until its levels are known."""

Send = Callable[[], Awaitable[str]]


@dataclass
class Tally:
    """What was sent and what came of it."""

    chance: random.Random
    forged: Counter[str] = field(default_factory=Counter)
    """By kind of forgery."""
    rejected: Counter[str] = field(default_factory=Counter)
    as_expected: int = 0
    """Forgeries that were rejected for the reason that they deserve."""
    honest: int = 0
    accepted: int = 0

    async def forge(self, kind: str, reason: str, send: Send) -> None:
        """Send a forgery that deserves to be rejected for this reason."""
        answer = await send()
        self.forged[kind] += 1
        self.rejected[kind] += answer != ACCEPTED
        self.as_expected += answer == reason
        if answer != reason:
            print(f"  {kind}: {answer}, expected {reason}", flush=True)

    async def be_honest(self, send: Send) -> None:
        """Send a result that deserves to be accepted."""
        answer = await send()
        self.honest += 1
        self.accepted += answer == ACCEPTED
        if answer != ACCEPTED:
            print(f"  an honest result: {answer}", flush=True)


class MovedClock:
    """The real clocks, with a steady one that can be moved on."""

    def __init__(self) -> None:
        self.ahead_seconds = 0.0

    @property
    def clock(self) -> Clock:
        """The sources as a provider reads them."""
        return Clock(steady=lambda: time.monotonic() + self.ahead_seconds)


def measure(figures: Figures, quick: bool, seed: int) -> None:
    """All kinds of forgery, each at several orders; in the short form one run is attacked, and two are late.

    The seed gives the order in which an open order is attacked.
    """
    tally = Tally(random.Random(seed))
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(attacked(Path(folder), tally, runs=1 if quick else 10, late=2 if quick else 10))
        foreign = asyncio.run(across_a_restart(Path(folder), tally))
    with tempfile.TemporaryDirectory() as folder:
        real = asyncio.run(done_by_a_sidecar(Path(folder)))
    forged = sum(tally.forged.values())
    figures.ratio("forged_probe_rejected_ratio", sum(tally.rejected.values()), forged, 1.0)
    figures.ratio("forged_probe_right_reason_ratio", tally.as_expected, forged, 1.0)
    figures.add("forged_probe_kinds", len(tally.forged), f">= {MIN_KINDS}", len(tally.forged) >= MIN_KINDS)
    figures.add("forged_probes_stored", foreign, "0", foreign == 0)
    figures.ratio("honest_probe_accepted_ratio", tally.accepted, tally.honest, 1.0)
    figures.add("probes_of_a_real_sidecar", real, f">= {REAL_PROBES}", real >= REAL_PROBES)
    kinds = [(kind, str(sent), str(tally.rejected[kind])) for kind, sent in sorted(tally.forged.items())]
    figures.table("Forged results, by kind.", ("kind", "sent", "rejected"), kinds)


async def attacked(folder: Path, tally: Tally, runs: int, late: int) -> None:
    """Attack the orders of so many runs, and be late with those of others."""
    moved = MovedClock()
    async with loopback(folder, benchmark_share=SHARE, limits=MANY, clock=moved.clock) as site:
        for _ in range(runs):
            async with AsyncExitStack() as stack:
                others = [
                    await stack.enter_async_context(guest_run(site, "n2", "acme")),
                    await stack.enter_async_context(guest_run(site, "n2", "rival")),
                ]
                await _attack(await stack.enter_async_context(guest_run(site)), others[0], others[1], tally)
        await _without_a_key(site, tally)
        for number in range(late):
            await _late(site, moved, tally, stopped=number % 2 == 0)


async def _attack(run: GuestRun, own: GuestRun, rival: GuestRun, tally: Tally) -> None:
    """All forgeries of each order of a run. `own` is another run of the same tenant, `rival` that of another one."""
    earlier: GuestResult | None = None
    while run.answered < ORDERS:
        result = run.honest(await run.next_order())
        forged = list(forgeries(run, own, rival, result, earlier).items())
        tally.chance.shuffle(forged)
        for kind, forgery in forged:
            await tally.forge(kind, forgery.reason, forgery.send)
        await tally.be_honest(partial(run.send, result))
        await tally.forge("the same again", ProbeRejection.REPEATED, partial(run.send, result))
        await tally.forge("the order again, other times", ProbeRejection.REPEATED, partial(run.send, slower(result)))
        earlier = result


@dataclass(frozen=True)
class Forgery:
    """A result that must be rejected, and for what reason."""

    reason: str
    send: Send


def slower(result: GuestResult) -> GuestResult:
    """The same result with other times that are possible, too."""
    return replace(result, seconds=tuple(1.1 * took for took in result.seconds))


def forgeries(
    run: GuestRun, own: GuestRun, rival: GuestRun, result: GuestResult, earlier: GuestResult | None
) -> Mapping[str, Forgery]:
    """By kind: every way in which the answer to an open order can be forged. `earlier` was accepted before."""
    order = result.order
    body, signature = result.encode(), result.make_signature(run.key)
    found: dict[str, Forgery] = {}

    def changed(kind: str, reason: ProbeRejection, **fields: Any) -> None:
        found[kind] = Forgery(reason, partial(run.send, replace(result, order=replace(order, **fields))))

    def timed(kind: str, *seconds: float, status: ProbeStatus = ProbeStatus.MEASURED) -> None:
        sent = replace(result, seconds=seconds, status=status)
        found[kind] = Forgery(ProbeRejection.IMPOSSIBLE_NUMBERS, partial(run.send, sent))

    def raw(kind: str, reason: str, body: bytes, signature: bytes, run_id: bytes = b"", who: str = "") -> None:
        found[kind] = Forgery(reason, partial(run.send_bytes, body, signature, run_id, who))

    def sealed(kind: str, content: bytes) -> None:
        raw(kind, ProbeRejection.MALFORMED, content, signature)

    fastest = MICRO_BENCHMARKS[order.benchmark].fastest_seconds
    changed("a drawn challenge", ProbeRejection.WRONG_CHALLENGE, challenge=secrets.token_bytes(32))
    changed("no challenge", ProbeRejection.WRONG_CHALLENGE, challenge=bytes(32))
    if earlier is not None:
        changed("an earlier challenge", ProbeRejection.WRONG_CHALLENGE, challenge=earlier.order.challenge)
        found["an earlier result"] = Forgery(ProbeRejection.REPEATED, partial(run.send, earlier))
        as_earlier = replace(earlier, order=replace(earlier.order, order_id=order.order_id))
        found["an earlier result under this number"] = Forgery(
            ProbeRejection.WRONG_CHALLENGE, partial(run.send, as_earlier)
        )
    changed("an order that was never given", ProbeRejection.NEVER_GIVEN, order_id=secrets.token_bytes(16))
    changed("another benchmark", ProbeRejection.OTHER_WORK, benchmark="reproducibility")
    changed("a benchmark that does not exist", ProbeRejection.OTHER_WORK, benchmark="nothing")
    changed("fewer repeats", ProbeRejection.OTHER_WORK, repeats=1)
    changed("another limit", ProbeRejection.OTHER_WORK, limit_milliseconds=order.limit_milliseconds + 1)
    changed("another duty", ProbeRejection.OTHER_WORK, duty_thousandths=order.duty_thousandths - 1)
    changed("another time", ProbeRejection.OTHER_WORK, expires_at=order.expires_at + 60)
    changed("a run in the body that does not exist", ProbeRejection.OTHER_RUN, run_id=secrets.token_bytes(16))
    timed("not a number", nan, result.seconds[0])
    timed("an infinite time", inf)
    timed("a negative time", -result.seconds[0])
    timed("no time at all", 0.0)
    timed("the smallest number", 5e-324)
    timed("faster than any core", 0.99 * fastest)
    timed("one repeat faster than any core", *result.seconds, 0.5 * fastest)
    timed("more time than has passed", 3600.0)
    timed("more work than ordered", order.limit_seconds + 1.0, fastest)
    timed("nothing measured")
    timed("times of a wrong answer", *result.seconds, status=ProbeStatus.WRONG)
    timed("times of a refusal", *result.seconds, status=ProbeStatus.REFUSED)
    raw("a flipped bit of the signature", ProbeRejection.BAD_SIGNATURE, body, _flipped(signature))
    raw("no signature", ProbeRejection.BAD_SIGNATURE, body, b"")
    raw("a signature of zeros", ProbeRejection.BAD_SIGNATURE, body, bytes(64))
    raw("a signature of other times", ProbeRejection.BAD_SIGNATURE, body, slower(result).make_signature(run.key))
    raw("the signature without its purpose", ProbeRejection.BAD_SIGNATURE, body, run.key.sign(body))
    raw("the key of another run", ProbeRejection.BAD_SIGNATURE, body, result.make_signature(own.key))
    raw("another run of the tenant", ProbeRejection.OTHER_RUN, body, result.make_signature(own.key), own.run_id)
    as_own = replace(result, order=replace(order, run_id=own.run_id))
    raw(
        "as an order of another run",
        ProbeRejection.OTHER_RUN,
        as_own.encode(),
        as_own.make_signature(own.key),
        own.run_id,
    )
    raw("sent by another organisation", NO_SUCH_RUN, body, signature, run.run_id, rival.who)
    raw("a run of another organisation", NO_SUCH_RUN, body, signature, rival.run_id)
    raw("a run that does not exist", NO_SUCH_RUN, body, signature, secrets.token_bytes(16))
    as_rival = replace(result, order=replace(order, run_id=rival.run_id))
    raw(
        "as an order of another organisation", ProbeRejection.OTHER_RUN, as_rival.encode(),
        as_rival.make_signature(rival.key), rival.run_id, rival.who,
    )  # fmt: skip
    sealed("nothing", b"")
    sealed("a part", body[:-1])
    sealed("an order for a result", order.encode())
    sealed("hidden in the padding", body[:-1] + b"\x01")
    sealed("any bytes", os.urandom(len(body)))
    sealed("as much as a message holds", body * 60)
    raw("a megabyte", TOO_MANY, body * 900, signature)  # refused before it is read
    sealed("more repeats than fit", _with_repeats(result, MAX_REPEATS + 1))
    return found


def _flipped(signature: bytes) -> bytes:
    return bytes([signature[0] ^ 1]) + signature[1:]


def _with_repeats(result: GuestResult, count: int) -> bytes:
    """The body of a result with more times than a sound one can have."""
    sound = replace(result, seconds=result.seconds[:1] * MAX_REPEATS).encode()
    numbers = struct.pack(f">{MAX_REPEATS}d", *result.seconds[:1] * MAX_REPEATS)
    longer = numbers + numbers[:8] * (count - MAX_REPEATS)
    old = len(numbers).to_bytes(2, "big") + numbers
    return sound.replace(old, len(longer).to_bytes(2, "big") + longer)


async def _without_a_key(site: Loopback, tally: Tally) -> None:
    """Runs that have not agreed get no orders, so what they send answers none."""
    async with guest_run(site) as agreed:
        order = await agreed.next_order()
        for who in ("acme", "rival"):
            run_id = await join(site, "n2", who, consent=Consent(beside_job=True, limit_seconds=5.0))
            sent = replace(agreed.honest(order), order=replace(order, run_id=run_id))
            send = partial(agreed.send_bytes, sent.encode(), sent.make_signature(agreed.key), run_id, who)
            await tally.forge("a run without a key", ProbeRejection.NO_KEY, send)
        await tally.be_honest(partial(agreed.send, agreed.honest(order)))


async def _late(site: Loopback, moved: MovedClock, tally: Tally, *, stopped: bool) -> None:
    """An answer after the time of the order; or one that was stopped, because a run without consent came there."""
    async with guest_run(site) as run:
        order = await run.next_order()
        answer = partial(run.send, run.honest(order))
        if stopped:
            stranger = await join(site, "n1", "rival", consent=Consent())
            await until(lambda: order.order_id in run.stopped, "the order to be stopped")
            await tally.forge("after it was stopped", ProbeRejection.LATE, answer)
            await site.call("Runs", "EndRun", EndRunRequest(run_id=stranger, state=EndState.END_STATE_OK), "rival")
        else:
            moved.ahead_seconds += LATE_SECONDS
            await tally.forge("too late", ProbeRejection.LATE, answer)


async def across_a_restart(folder: Path, tally: Tally) -> int:
    """An order from before a restart of the provider is not answered after it, and a new one is.

    Returns how many probes are stored that are not honest: all honest times are known.
    """
    async with loopback(folder, benchmark_share=SHARE, limits=MANY) as site:
        run = await joined(site)
        async with run.watching():
            before = await run.next_order()
    async with loopback(folder, benchmark_share=SHARE, limits=MANY) as run.site:
        answer = partial(run.send, run.honest(before))
        for _ in range(2):
            await tally.forge("an order from before a restart", ProbeRejection.NEVER_GIVEN, answer)
        async with run.watching():
            await tally.be_honest(partial(run.send, run.honest(await run.next_order())))
        stored = [json.loads(row) for row in await rows(run.site, "probes")]
    foreign = [row for row in stored if abs(row["mean_seconds"] - honest_seconds(row["benchmark"])) > ROUNDING]
    return len(foreign) + max(0, len(stored) - tally.accepted)


async def done_by_a_sidecar(folder: Path) -> int:
    """How many orders of monitoring the code of the sidecar does in real processes."""
    async with loopback(folder, benchmark_share=SHARE) as site:
        settings = site.settings(
            allow_beside_job=True, guest_probe_seconds=3600.0, probe_limit_seconds=REAL_LIMIT_SECONDS
        )
        provider, run_id = ProviderConnection(settings), secrets.token_bytes(16)
        probes = GuestProbes(provider, run_id, settings, join_time=time.monotonic())
        consent = Consent(beside_job=True, limit_seconds=REAL_LIMIT_SECONDS, probe_key=probes.public_key)
        await join(site, run_id=run_id, consent=consent)
        probes.start()
        second = 0

        async def stored() -> bool:
            nonlocal second
            await site.call("Runs", "Report", report(run_id, second, 1.0))
            second += 1
            return len(await rows(site, "probes")) >= REAL_PROBES

        try:
            with suppress(TimeoutError):
                await until(stored, "probes of a sidecar", REAL_SECONDS)
            return len(await rows(site, "probes"))
        finally:
            await probes.stop()
            await provider.channel.close(None)
