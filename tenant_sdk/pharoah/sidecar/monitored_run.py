"""One run while it runs: the levels of its ranks, the reports to the provider, and its record on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from pharoah._alert import Alert
from pharoah._settings import Settings
from pharoah.end_causes import JudgedEnd
from pharoah.sidecar.guest_probes import GuestProbes
from pharoah.sidecar.provider_connection import ProviderConnection
from pharoah.sidecar.run_recorder import RunRecorder
from pharoah.sidecar.run_reporter import RunReporter
from pharoah_archetypes import Fingerprint
from pharoah_protocol.monitoring_plan import PLAIN, MonitoringPlan
from pharoah_protocol.pseudonyms import Pseudonym
from pharoah_protocol.reports import RankWindows, ReportedLevels
from pharoah_protocol.v1 import NodeTicket
from pharoah_protocol.vocabulary import EndState


class MonitoredRun:
    """Keeps the record of every run; reports to the provider from `launch` on."""

    def __init__(self, run_id: bytes, job_id: bytes, settings: Settings, deliver: Callable[[Alert], None]) -> None:
        """`job_id` is shared by the job's runs on all its nodes, or empty. `deliver` gets every alert."""
        self._run_id, self._job_id = run_id, job_id
        self._settings = settings
        self._deliver = deliver
        self._recorder = RunRecorder(run_id, settings)
        self._windows: dict[int, RankWindows] = {}
        self.reporter: RunReporter | None = None
        """None until the run was launched."""
        self._guests: GuestProbes | None = None
        """The micro-benchmarks that this process runs itself; None until the run was launched."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """Numbers of the ranks that have stepped."""
        return tuple(sorted(self._windows))

    def note_start(self, command: str, groups: Mapping[str, dict[str, str]]) -> None:
        """Begin the run's record."""
        self._recorder.note_start(command, groups)

    def launch(self, provider: ProviderConnection, ticket: NodeTicket, ranks: int, join_time: float) -> None:
        """Join the provider's runs at a monotonic time, then report to it. Does nothing the second time."""
        if self.reporter is None:
            self._guests = guests = GuestProbes(provider, self._run_id, self._settings, join_time)
            self.reporter = RunReporter(
                provider, self._run_id, self._job_id, self._settings, self._deliver, probe_key=guests.public_key
            )
            self.reporter.start(ticket, ranks, self.levels, join_time=join_time)
            guests.start()

    @property
    def measuring(self) -> bool:
        """Whether micro-benchmarks run beside the job, so that step times do not describe the node."""
        by_provider = self.reporter is not None and self.reporter.measuring
        return by_provider or (self._guests is not None and self._guests.measuring)

    def next_program(self, rank: int, plan: MonitoringPlan = PLAIN) -> None:
        """The rank was started again, or another program has its number now: its steps are compared with its own. The
        position of the rank stays."""
        if rank in self._windows:
            self._windows[rank] = RankWindows(plan)

    def note_step(self, rank: int, durations: Sequence[int], resident: int, plan: MonitoringPlan = PLAIN) -> None:
        """Steps of a rank: nanoseconds in order, and bytes of memory after the last."""
        windows = self._windows.setdefault(rank, RankWindows(plan))
        self._recorder.note_step(rank, durations)
        if self.measuring:
            windows.discard_open_window()
        else:
            windows.add(durations, resident)

    def ask_validation(self) -> None:
        """Ask the provider to validate this node, if the run was launched."""
        if self.reporter:
            self.reporter.ask_validation()

    def capture(self, step: Fingerprint) -> None:
        self._recorder.capture(step)

    def levels(self) -> list[ReportedLevels]:
        """How the ranks of this node do now, in the order in which they first stepped.

        The provider counts risky seconds rank by rank, so a position means the same rank for the whole run, also when
        a rank with a smaller number steps later.
        """
        return [windows.now for windows in self._windows.values()]

    async def end(self, end: JudgedEnd, pseudonym: Pseudonym | None) -> None:
        """Report and record how the run ended; with the job's pseudonym, if its user shares outcomes."""
        if end.state is EndState.LOST:  # a run that can report its end is not lost; only the provider sets this state
            end = end._replace(state=EndState.FAILED)
        ends = [self._recorder.end(end.state)]
        if self._guests:
            ends.append(self._guests.stop())
        if self.reporter:
            ends.append(self.reporter.end(end, pseudonym))
        await asyncio.gather(*ends)
