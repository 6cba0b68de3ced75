"""The sidecar of one job on one node: its socket, its check, its run and its watch for hangs, connected."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from pharoah._alert import Alert
from pharoah._settings import Settings
from pharoah._verdict import Finding, Verdict
from pharoah.findings.nothing_remembered import NOTHING_REMEMBERED
from pharoah.sidecar.agent_client import ask_signals
from pharoah.sidecar.alert_webhook import AlertWebhook
from pharoah.sidecar.asked_validation import calls_for_validation
from pharoah.sidecar.check import JobCheck
from pharoah.sidecar.evidence import state_folder
from pharoah.sidecar.hang_watch import HangWatch
from pharoah.sidecar.job_end import JobEnd
from pharoah.sidecar.job_identity import JobIdentity
from pharoah.sidecar.job_words import JobWords
from pharoah.sidecar.local_watch import LocalWatch
from pharoah.sidecar.monitored_run import MonitoredRun
from pharoah.sidecar.node_forecaster import NodeForecaster
from pharoah.sidecar.node_verdicts import NodeVerdicts
from pharoah.sidecar.rank_processes import RankProcesses, Standing
from pharoah.sidecar.server import Connection, ConnectionServer, ConnectionUse, Handler
from pharoah_archetypes import Fingerprint
from pharoah_protocol import rank_messages as messages
from pharoah_protocol.agent_messages import SignalReading
from pharoah_protocol.local_messages import Message
from pharoah_system.own_thread import begin_in_own_thread
from pharoah_system.trusted_paths import UntrustedFolderError, find_folder

log = logging.getLogger("pharoah.sidecar")

_ONE_NODE = JobIdentity()
TERMINATION_SECONDS = 20.0
"""How long a sidecar that is asked to end waits for the job, which was asked, too: Slurm kills what is left after 30 s
(slurm.conf, KillWait)."""

WEBHOOK_SHARE = 0.8
"""The share of the shutdown time in which the last alerts are sent: the rest is for what is written after them."""
MAX_OPEN_ALERTS = 64
"""A job has 24 alerts of its own in a day; a provider must not fill this machine's memory."""


class Sidecar:
    """Ends when the last connection has closed. Each handler below serves the message of its name."""

    def __init__(
        self,
        path: Path,
        settings: Settings,
        run_id: bytes,
        identity: JobIdentity = _ONE_NODE,
        words: JobWords | None = None,
        job_begins: Callable[[], None] = lambda: None,
    ) -> None:
        """`words` says what changes while the job runs; None where the ranks listen themselves. `job_begins` is called
        once or more when the job is there or is about to start: whatever was done before it is over."""
        self._words, self._job_begins = words, job_begins
        self._run_id, self._settings = run_id, settings
        self._job_end, self._asks = JobEnd(), settings.ask_validation
        self._webhook, self._shutdown_seconds = (
            AlertWebhook(settings.alert_url, run_id),
            settings.shutdown_timeout_seconds,
        )
        self._ending: asyncio.Task[None] | None = None
        """The end of the run, once it has begun."""
        self._open_alerts: dict[str, Alert] = {}
        """By id; those that were confirmed and not resolved yet."""
        handlers: dict[type[Message], Handler] = {
            messages.Hello: self._hello,
            messages.Check: self._check,
            messages.Launch: self._launch,
            messages.RunStarted: self._run_started,
            messages.Findings: self._findings,
            messages.Steps: self._steps,
            messages.Capture: self._capture,
            messages.RegisterResponder: self._register_responder,
            messages.FlightRecord: self._flight_record,
            messages.Listen: self._listen,
            messages.Status: self._status,
            messages.AskValidation: self._ask_validation,
            messages.End: self._end,
        }
        self._server = ConnectionServer(path, handlers)
        self._job = JobCheck(run_id, settings, self._announce)
        self._run = MonitoredRun(run_id, identity.job_id, settings, self._deliver)
        self._nodes = NodeVerdicts(identity, settings, lambda: self._job.verdict, self._job.add_findings)
        self._local = LocalWatch(
            run_id,
            self._deliver_own,
            self._request_starts,
            self._is_measured,
            self._ask_signals,
            distributed=identity.nodes > 1,
            serves=lambda: self._job.serves,
            forecaster=NodeForecaster(settings),
        )
        self._ranks = RankProcesses()
        """Whose steps are reported."""
        self._hangs = HangWatch(settings, self._request_records, lambda found: self._job.add_findings(*found))

    async def serve(self) -> None:
        """Serve until the last connection has closed, or SIGTERM came and the job does not end; then report how the run
        ended."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._terminate)
        looking = asyncio.create_task(self._look_at_state_folder())
        try:
            await self._server.serve()
        finally:
            looking.cancel()
            self._local.stop()
            await self._hangs.stop()
            await self._end_run()
            await self._nodes.stop()

    async def _look_at_state_folder(self) -> None:
        """Say it once where nothing is kept because others can change the folder."""
        folder = state_folder(self._settings)
        if folder is not None:
            try:
                await asyncio.wrap_future(begin_in_own_thread(partial(find_folder, folder)))
            except UntrustedFolderError as error:
                self._job.note(NOTHING_REMEMBERED.create(reason=error.strerror))
            except (OSError, RuntimeError) as error:
                log.info("%s: %s", folder, error)

    async def _hello(self, message: messages.Hello, connection: Connection) -> Message:
        self._job_begins()
        self._job.expect(message.ranks)
        if self._settings.local_alerts:
            self._local.rank_connected(message.rank, connection.process)
        needed = message.may_dry_run and self._job.claim_dry_run()
        return messages.HelloAnswer(vars(self._job.verdict), needed, self._job.serves)

    async def _check(self, message: messages.Check, _: Connection) -> Message:
        verdict = await self._job.ask(message.fingerprint, message.pending)
        node = self._job.client.node
        if node is None:
            return messages.CheckAnswer(vars(verdict))
        return messages.CheckAnswer(vars(verdict), node.received.profile, node.received.dropped)

    async def _launch(self, message: messages.Launch, _: Connection) -> Message:
        self._job_begins()
        self._job_end.launch()
        client = self._job.client
        if client.provider and client.node and not self._run.reporter:
            join_time = client.join_time()
            self._run.launch(client.provider, client.node.ticket, message.ranks, join_time)
            self._job.launch(join_time)
            self._nodes.share()
        if self._words is not None:
            self._words.launch(self._job.verdict)
        return messages.LaunchAnswer(self._run_id.hex())

    async def _run_started(self, message: messages.RunStarted, _: Connection) -> None:
        self._job_begins()
        self._run.note_start(message.command, message.groups)

    async def _findings(self, message: messages.Findings, _: Connection) -> None:
        self._local.expected_step_seconds = message.step_seconds
        self._job.add_launch_findings(*(Finding.from_dict(finding) for finding in message.findings))

    async def _steps(self, message: messages.Steps, connection: Connection) -> None:
        self._hangs.note_step()
        self._job_end.note_step(connection.process)
        self._local.note_step(message.rank, connection.process, message.durations, message.thread)
        standing = self._ranks.note_step(message.rank, connection.process)
        if standing is Standing.OTHER:
            return
        if standing is Standing.NEXT:
            self._run.next_program(message.rank, self._job.client.plan)
        self._run.note_step(message.rank, message.durations, message.resident, self._job.client.plan)

    async def _capture(self, message: messages.Capture, _: Connection) -> None:
        step = Fingerprint.from_json(message.fingerprint)
        self._job.capture(message.rank, step, frozenset(message.operators))
        self._run.capture(step)

    async def _register_responder(self, _: messages.RegisterResponder, connection: Connection) -> None:
        connection.use = ConnectionUse.RESPONDER
        if not self._job.serves:  # a job that serves may wait for requests as long as it likes
            self._hangs.watch()

    async def _flight_record(self, message: messages.FlightRecord, _: Connection) -> None:
        self._hangs.add(message.rank, message.calls)
        self._local.take_calls(message.rank, message.starts)

    async def _listen(self, _: messages.Listen, connection: Connection) -> None:
        connection.use = ConnectionUse.LISTENER
        connection.notify(messages.VerdictChanged(vars(self._job.verdict)))
        for alert in self._open_alerts.values():  # who listens late hears what holds
            connection.notify(messages.AlertRaised(vars(alert)))

    async def _status(self, _: messages.Status, __: Connection) -> Message:
        reporter = self._run.reporter
        return messages.StatusAnswer(
            run_id=self._run_id.hex(),
            verdict=self._job.verdict.status,
            connected=bool(reporter and reporter.connected),
            node_alias=reporter.alias if reporter else "",
            windows_dropped=reporter.dropped if reporter else 0,
            ranks=self._run.ranks,
        )

    async def _ask_validation(self, _: messages.AskValidation, __: Connection) -> None:
        self._run.ask_validation()

    async def _end(self, message: messages.End, _: Connection) -> Message:
        self._job_end.take_report(message)
        last = message.last
        if len(self._server.connections(ConnectionUse.RANK)) <= 1 if last is None else last:
            await self._end_run()
        return messages.Ended()

    def _terminate(self) -> None:
        self._job_end.terminate()
        asyncio.get_running_loop().call_later(TERMINATION_SECONDS, self._server.end)

    def _announce(self, verdict: Verdict) -> None:
        if self._words is not None:
            self._words.note_change(verdict)
        self._server.notify(ConnectionUse.LISTENER, messages.VerdictChanged(vars(verdict)))

    def _deliver(self, alert: Alert) -> None:
        self._open_alerts.pop(alert.alert_id, None)
        if alert.state.is_open and len(self._open_alerts) < MAX_OPEN_ALERTS:
            self._open_alerts[alert.alert_id] = alert
        self._webhook.send(alert)
        if self._words is not None:
            self._words.alert(alert)
        self._server.notify(ConnectionUse.LISTENER, messages.AlertRaised(vars(alert)))

    def _deliver_own(self, alert: Alert) -> None:
        self._deliver(alert)
        if self._asks and calls_for_validation(alert):
            self._run.ask_validation()

    async def _ask_signals(self) -> Sequence[SignalReading]:
        settings = self._settings
        return await ask_signals(settings.node_socket, settings.timeout_seconds, settings.service_users)

    def _is_measured(self) -> bool:
        return self._run.measuring

    def _request_records(self) -> None:
        self._server.notify(ConnectionUse.RESPONDER, messages.FlightRecordRequest())

    def _request_starts(self) -> None:
        self._server.notify(ConnectionUse.RESPONDER, messages.FlightRecordRequest(starts_only=True))

    async def _end_run(self) -> None:
        """End the run once. Whoever calls this waits for all of it, also where the first caller was cancelled."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end_once())
        await asyncio.shield(self._ending)

    async def _end_once(self) -> None:
        try:
            self._local.stop()
            last_alerts = self._webhook.close(WEBHOOK_SHARE * self._shutdown_seconds)
            await asyncio.gather(self._report_end(), self._job.end(), last_alerts)
            await self._job.close()
        except Exception:
            log.exception("the end of the run was not completed")

    async def _report_end(self) -> None:
        await self._run.end(await self._job_end.judge(), self._job.client.name)
