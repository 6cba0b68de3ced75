"""The sidecar's own loop: ranks on one side, the provider on the other, one run in the middle."""

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

from pharoah._alert import Alert
from pharoah._settings import Settings
from pharoah._verdict import Finding, Verdict, unknown
from pharoah.sidecar.hang_detector import HangDetector
from pharoah.sidecar.rank_comparison import RankComparison
from pharoah.sidecar.run_recorder import RunRecorder
from pharoah.sidecar.run_reporter import END_STATES, RunReporter
from pharoah.sidecar.verdict_client import VerdictClient
from pharoah_archetypes import Fingerprint, differences, parse
from pharoah_protocol.reports import RankWindows, ReportedLevels

log = logging.getLogger("pharoah.sidecar")

FIRST_CONNECTION_SECONDS = 60.0
ANSWER_SECONDS = 3.0


class Sidecar:
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
        self._asker = VerdictClient(run_id.hex(), settings)
        self._ranks = RankComparison()
        self._flights = HangDetector()
        self._journal = RunRecorder(run_id, settings)
        self._watch: asyncio.Task[None] | None = None
        self._moved = False
        """Whether a rank has stepped since somebody looked."""
        self._windows: dict[int, RankWindows] = {}
        self._reporter: RunReporter | None = None
        self._seen: Fingerprint | None = None
        """A real step, of a job that could not be looked at before."""
        self._compiled = False
        """Such a job shows nothing in a real step, either."""
        self._late: asyncio.Task[None] | None = None
        """Asks about a job that could only be looked at after its launch."""
        self._end_state = "failed"  # unless somebody says otherwise before the last connection closes
        self._spoken = self._ended = False

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
                self._spoken = True
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
            if self._spoken:  # not only looked whether somebody listens
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
                node = self._asker.node
                return {"verdict": asdict(self._verdict), "profile": node.profile if node else {}}
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
                log.warning("a rank sent %r, which this sidecar does not know", unexpected)
        return None

    async def _check(self, message: dict[str, Any]) -> None:
        """Ask for a verdict about a fingerprint, or find out why there is none."""
        self._asked = True
        self._verdict = await self._asker.check(message.get("fingerprint", ""), message.get("pending", ""))

    async def _captured(self, rank: int, seen: Fingerprint, operators: frozenset[str]) -> None:
        """What really runs: the late answer to a pending verdict, and a check of an early one and of all ranks."""
        before, compiled = self._verdict, "compiled" in seen.features
        if self._verdict.status == "pending" and compiled:
            reason = f"{self._verdict.reason}; and a compiled step does not show its structure"
            self._verdict, self._compiled = unknown(reason, self._run_id.hex()), True
        elif self._verdict.status == "pending":
            self._seen = self._seen or seen
        elif self._asker.checked and (difference := _difference(self._asker.checked, seen, compiled)):
            self._find(Finding("warn", f"what runs is not what was checked: {difference}"))
        self._find(*self._ranks.add(rank, seen, operators))
        self._journal.captured(seen)
        if self._verdict is not before:
            self._tell({"verdict": asdict(self._verdict)}, self._listeners)

    async def _ask_late(self, launched_at: float) -> None:
        """At a round time after the launch, and also when there is nothing to ask: how long the job took to load, or
        that it cannot be seen into, is nobody's business."""
        every = self._settings.late_ask_seconds
        await asyncio.sleep(every)
        while self._seen is None and not self._compiled:
            await asyncio.sleep(every - (time.monotonic() - launched_at) % every)
        if self._seen is None:
            await self._asker.cover()
        else:
            await self._check({"fingerprint": self._seen.to_json()})
            self._tell({"verdict": asdict(self._verdict)}, self._listeners)
        self._asker.decide(accept=True)

    def _find(self, *findings: Finding) -> None:
        """While the job runs: the verdict on its launch stays as it was."""
        new = tuple(finding for finding in findings if finding not in self._verdict.findings)
        self._verdict = replace(self._verdict, findings=(*self._verdict.findings, *new))

    async def _launch(self, ranks: int) -> None:
        provider, node = self._asker.provider, self._asker.node
        if provider is None or node is None or self._reporter is not None:
            return  # nobody to report to; the verdict says why
        self._reporter = RunReporter(provider, self._run_id, self._settings, self._deliver)
        self._reporter.start(node.ticket, ranks, self._levels, after_seconds=self._asker.until_unrelated())
        if self._verdict.status == "pending":
            self._late = asyncio.create_task(self._ask_late(time.monotonic()))
        else:
            self._asker.decide(accept=True)

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
        windows = self._windows.setdefault(message["rank"], RankWindows(self._asker.plan))
        self._journal.stepped(message["rank"], message["durations"])
        if self._reporter and self._reporter.measuring:
            windows.put_off()
        else:
            windows.add(message["durations"], message["resident"])

    def _levels(self) -> list[ReportedLevels]:
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
            if self._late:
                self._late.cancel()
            told = self._reporter.end(state, self._asker.name) if self._reporter else asyncio.sleep(0)
            await asyncio.gather(told, self._journal.end(state), self._asker.end())


def _difference(checked: Fingerprint, seen: Fingerprint, compiled: bool) -> str:
    """How the operators of a real step differ from those of the dry one; empty when they do not."""
    if compiled:
        same = checked.compute == seen.compute
        return "" if same else "it has other kinds of contraction, or its collectives come in another order"
    if checked.archetype == seen.archetype:
        return ""
    return "; ".join(differences(parse(checked.grammar), parse(seen.grammar))[:3]) or "the number of nested repeats"
