"""The courier's own loop: ranks on one side, the provider on the other, one run in the middle."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import grpc.aio

from pharoah._alert import Alert
from pharoah._errors import UnknownReason
from pharoah._settings import Settings
from pharoah._verdict import Finding, Verdict, unknown
from pharoah.courier.evidence import Evidence
from pharoah.courier.exchange import Exchange
from pharoah.courier.flights import Flights
from pharoah.courier.journal import Journal
from pharoah.courier.judge import judge, plan_of
from pharoah.courier.names import Namer
from pharoah.courier.node import NodeAnswer, ask_node
from pharoah.courier.ranks import Ranks
from pharoah.courier.rpc import Provider
from pharoah.courier.runs import END_STATES, RunReporter
from pharoah.courier.trust import Distrust
from pharoah.plan import PLAIN
from pharoah.windows import Levels, RankWindows
from pharoah_archetypes import Fingerprint, FingerprintError, differences, parse

log = logging.getLogger("pharoah.courier")

FIRST_CONNECTION_SECONDS = 60.0
ANSWER_SECONDS = 3.0


class Courier:
    """Serves one run on one node. Ends when its last connection has closed."""

    def __init__(self, path: Path, settings: Settings, run_id: bytes) -> None:
        self._path = path
        self._settings = settings
        self._run_id = run_id
        self._connections: dict[socket.socket, asyncio.Task[None]] = {}
        self._listeners: set[socket.socket] = set()
        self._standing: set[socket.socket] = set()
        """Ranks that can say where they are when they hang."""
        self._empty = asyncio.Event()
        self._verdict = Verdict("pending", reason="nobody has asked yet", run_id=run_id.hex())
        self._asked = False
        """Whether somebody has looked at the job, or is looking."""
        self._checked: Fingerprint | None = None
        """What the verdict is about; None while it is unknown what runs."""
        self._ranks = Ranks()
        self._flights = Flights()
        self._journal = Journal(run_id, settings)
        self._watch: asyncio.Task[None] | None = None
        self._moved = False
        """Whether a rank has stepped since somebody looked."""
        self._windows: dict[int, RankWindows] = {}
        self._provider: Provider | None = None
        self._node: NodeAnswer | None = None
        self._exchange: Exchange | None = None
        self._evidence = Evidence(settings)
        self._reporter: RunReporter | None = None
        self._plan = PLAIN
        self._name: tuple[int, bytes] | None = None
        self._began = time.monotonic()
        self._late: asyncio.Task[None] | None = None
        """Asks about a job that could only be looked at after its launch."""
        self._deciding: asyncio.Task[None] | None = None
        self._record: dict[str, Any] = {}
        """What the verdict rests on."""
        self._end_state = "failed"  # unless somebody says otherwise before the last connection closes
        self._ended = False

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
            scratch = self._path.with_suffix(".new")
            server.bind(str(scratch))
            server.listen(128)
            server.setblocking(False)
            scratch.rename(self._path)  # whoever sees the path can connect
            accepting = asyncio.create_task(self._accept(loop, server))
            first = loop.call_later(FIRST_CONNECTION_SECONDS, self._end_if_empty)
            await self._empty.wait()
            first.cancel()
            accepting.cancel()
            if self._watch:
                self._watch.cancel()
        self._path.unlink(missing_ok=True)
        await self._end_run(self._end_state)

    async def _accept(self, loop: asyncio.AbstractEventLoop, server: socket.socket) -> None:
        while True:
            connection, _ = await loop.sock_accept(server)
            connection.setblocking(False)
            self._connections[connection] = asyncio.create_task(self._serve_rank(loop, connection))

    async def _serve_rank(self, loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
        try:
            while packet := await loop.sock_recv(connection, 1 << 20):
                message = json.loads(packet)
                answer = await self._handle(message, connection)
                if answer is not None:
                    await loop.sock_sendall(connection, json.dumps(answer).encode())
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("a rank's connection ended: %s: %s", type(error).__name__, error)
        finally:
            self._listeners.discard(connection)
            self._standing.discard(connection)
            del self._connections[connection]
            connection.close()
            self._end_if_empty()

    def _end_if_empty(self) -> None:
        if not self._connections:
            self._empty.set()

    async def _handle(self, message: dict[str, Any], connection: socket.socket) -> dict[str, Any] | None:
        match message["op"]:
            case "hello":
                self._ranks.expect(int(message.get("ranks", 1)))
                look = bool(message.get("may_look")) and not self._asked
                self._asked |= look
                return {"verdict": asdict(self._verdict), "look": look}
            case "check":
                await self._check(message)
                return {"verdict": asdict(self._verdict), "profile": self._node.profile if self._node else {}}
            case "launch":
                await self._launch(int(message["ranks"]))
                return {"run_id": self._run_id.hex()} if message.get("answer") else None
            case "begins":
                self._journal.begins(message["command"], message["groups"])
            case "found":
                self._verdict = self._verdict.with_findings(*(Finding(**found) for found in message["findings"]))
            case "steps":
                self._steps(message)
            case "capture":
                seen = Fingerprint.from_json(message["fingerprint"])
                await self._captured(int(message["rank"]), seen, frozenset(message["operators"]))
            case "standby":
                self._standing.add(connection)
                self._watch = self._watch or asyncio.create_task(self._watch_for_hangs())
            case "flight":
                self._flights.add(int(message["rank"]), message["calls"])
            case "listen":
                self._listeners.add(connection)
                self._tell({"verdict": asdict(self._verdict)}, [connection])
            case "status":
                return self._status()
            case "end":
                self._end_state = message["state"] if message["state"] in END_STATES else "failed"
                if message.get("last", len(self._connections) - len(self._listeners) - len(self._standing) <= 1):
                    await self._end_run(self._end_state)
                return {"ended": True}
            case unexpected:
                log.warning("a rank sent %r, which this courier does not know", unexpected)
        return None

    async def _check(self, message: dict[str, Any]) -> None:
        """Ask for a verdict about a fingerprint, or find out why there is none."""
        self._asked, run_id = True, self._run_id.hex()
        began = time.perf_counter()
        try:
            if not self._settings.endpoint:
                raise UnknownReason("no provider is configured (PHAROAH_ENDPOINT)")
            self._provider = self._provider or Provider(self._settings)
            self._node = self._node or await ask_node(self._settings.node_socket, self._settings.timeout_seconds)
            if "fingerprint" not in message:
                self._verdict = Verdict("pending", reason=message["pending"], run_id=run_id)
                return
            fingerprint = Fingerprint.from_json(message["fingerprint"])
            self._exchange = self._exchange or Exchange(self._provider, self._settings)
            self._name = await self._named(fingerprint)
            answer = await self._exchange.ask(fingerprint, self._node.ticket, self._name)
            self._checked = fingerprint
            self._plan = plan_of(answer)
            verdict = judge(answer, run_id)
            elapsed = 1000 * (time.perf_counter() - began)
            self._verdict = Verdict.from_dict({**asdict(verdict), "latency_ms": elapsed})
            self._record = {**answer.record, "verdict": verdict.status, "fingerprint": fingerprint.to_json()}
        except (UnknownReason, FingerprintError) as error:
            self._verdict = unknown(str(error), run_id)
        except Distrust as error:
            self._verdict = self._distrusted(error)
        except Exception as error:  # whatever a provider answers, the job starts
            log.exception("no verdict")
            self._verdict = unknown(f"the courier failed ({type(error).__name__})", run_id)

    def _distrusted(self, error: Distrust) -> Verdict:
        """The provider's answer is worth nothing; what it has signed of a lie is worth keeping."""
        log.warning("the provider is not believed: %s", error)
        verdict = unknown(f"the provider's answer cannot be trusted: {error}", self._run_id.hex())
        path = self._evidence.lie(error.evidence) if error.evidence else None
        if path is None:
            return verdict
        proof = Finding(
            "warn", "the provider has signed what it must not: others can check it", f"pharoah audit {path}"
        )
        return verdict.with_findings(proof)

    async def _keep_answer(self) -> None:
        """At the end: right after the answer, how long we are busy must not depend on it."""
        if self._record:
            write = asyncio.to_thread(self._evidence.answer, self._run_id.hex(), self._record)
            await asyncio.wait([asyncio.create_task(write)], timeout=self._settings.shutdown_timeout_seconds / 2)

    async def _captured(self, rank: int, seen: Fingerprint, operators: frozenset[str]) -> None:
        """What really runs: the late answer to a pending verdict, and a check of an early one and of all ranks."""
        before, compiled = self._verdict, "compiled" in seen.features
        if self._verdict.status == "pending" and compiled:
            reason = f"{self._verdict.reason}; and a compiled step does not show its structure"
            self._verdict = unknown(reason, self._run_id.hex())
        elif self._verdict.status == "pending":
            self._late = self._late or asyncio.create_task(self._ask_late(seen))
        elif self._checked is not None and (difference := _difference(self._checked, seen, compiled)):
            self._find(Finding("warn", f"what runs is not what was checked: {difference}"))
        self._find(*self._ranks.add(rank, seen, operators))
        self._journal.captured(seen)
        if self._verdict is not before:
            self._tell({"verdict": asdict(self._verdict)}, self._listeners)

    async def _ask_late(self, seen: Fingerprint) -> None:
        """At a round time after the launch: how long the job took to load is nobody's business."""
        every = self._settings.late_ask_seconds
        await asyncio.sleep(every - (time.monotonic() - self._began) % every)
        await self._check({"fingerprint": seen.to_json()})
        self._tell({"verdict": asdict(self._verdict)}, self._listeners)
        if self._exchange is not None:
            await self._exchange.decide(accept=True)

    async def _named(self, fingerprint: Fingerprint) -> tuple[int, bytes] | None:
        """The job's name, where its user shares outcomes; without one nothing is shared."""
        if not self._settings.share_outcomes or self._provider is None or self._exchange is None:
            return None
        try:
            await self._exchange.epoch()  # reads the log, which carries the provider's key of names
            namer = Namer(self._provider, self._settings)
            try:
                return await namer.name(fingerprint, self._exchange.log)
            finally:
                await namer.close()
        except (UnknownReason, Distrust, grpc.aio.AioRpcError) as error:
            log.warning("how this run ends is not shared: %s", error)
            return None

    def _find(self, *findings: Finding) -> None:
        """While the job runs: the verdict on its launch stays as it was."""
        new = tuple(finding for finding in findings if finding not in self._verdict.findings)
        self._verdict = replace(self._verdict, findings=(*self._verdict.findings, *new))

    async def _launch(self, ranks: int) -> None:
        if self._provider is None or self._node is None or self._reporter is not None:
            return  # nobody to report to; the verdict says why
        self._reporter = RunReporter(self._provider, self._run_id, self._settings, self._deliver)
        self._reporter.start(self._node.ticket, ranks, self._levels)
        if self._exchange is not None:
            self._deciding = asyncio.create_task(self._exchange.decide(accept=True))  # nobody waits for it

    async def _watch_for_hangs(self) -> None:
        """Ask all ranks where they are when none has stepped for a while."""
        while True:
            await asyncio.sleep(self._settings.hang_after_seconds / 2)
            if self._moved:
                self._moved = False
                self._flights.forget()
                continue
            self._flights.begin()
            self._tell({"where": "are you"}, self._standing)
            await asyncio.sleep(min(ANSWER_SECONDS, self._settings.hang_after_seconds / 4))
            before = self._verdict
            self._find(*self._flights.findings())
            if self._verdict.findings != before.findings:
                self._tell({"verdict": asdict(self._verdict)}, self._listeners)

    def _steps(self, message: dict[str, Any]) -> None:
        self._moved = True
        windows = self._windows.setdefault(message["rank"], RankWindows(self._plan))
        self._journal.stepped(message["rank"], message["durations"])
        windows.add(message["durations"], message["resident"])

    def _levels(self) -> list[Levels]:
        """How the ranks of this node do, in the order of their numbers."""
        return [windows.now for _, windows in sorted(self._windows.items())]

    def _deliver(self, alert: Alert) -> None:
        self._tell({"alert": asdict(alert)}, self._listeners)

    def _tell(self, message: dict[str, Any], connections: Any) -> None:
        packet = json.dumps(message).encode()
        for connection in list(connections):
            with contextlib.suppress(OSError):  # a listener that does not read loses alerts, not the run
                connection.send(packet)

    def _status(self) -> dict[str, Any]:
        reporter = self._reporter
        return {
            "run_id": self._run_id.hex(),
            "verdict": self._verdict.status,
            "connected": bool(reporter and reporter.connected),
            "node_alias": reporter.alias if reporter else "",
            "windows_dropped": reporter.dropped if reporter else 0,
            "ranks": sorted(self._windows),
        }

    async def _end_run(self, state: str) -> None:
        if not self._ended:
            self._ended = True
            await asyncio.gather(self._tell_provider(state), self._journal.end(state), self._keep_answer())

    async def _tell_provider(self, state: str) -> None:
        if self._reporter is not None:
            await self._reporter.end(state, self._name)
        elif self._exchange is not None:
            await self._exchange.decide(accept=False)


def _difference(checked: Fingerprint, seen: Fingerprint, compiled: bool) -> str:
    """How the operators of a real step differ from those of the dry one; empty when they do not."""
    if compiled:
        same = checked.compute == seen.compute
        return "" if same else "it has other kinds of contraction, or its collectives come in another order"
    if checked.archetype == seen.archetype:
        return ""
    return "; ".join(differences(parse(checked.grammar), parse(seen.grammar))[:3]) or "the number of nested repeats"
