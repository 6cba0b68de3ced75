"""`register` and the session it returns: the public face of the SDK inside a training process."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import queue
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pharoah._alert import Alert
from pharoah._early_failure import report_early_failure
from pharoah._errors import IncompatibleError, UnknownReason
from pharoah._flight_responder import start_responder, start_responder_from_hook
from pharoah._guard import Guard
from pharoah._inject.pharoah_finder import Finder
from pharoah._listener import AlertCallback, Listener
from pharoah._process_end import Failure, watch_process_end
from pharoah._rank_identity import command, may_ask, rank, ranks_here, render_command
from pharoah._settings import Settings
from pharoah._sidecar_link import DRY_RUN, SERVES, SIDECAR, SidecarLink
from pharoah._verdict import Verdict, unknown
from pharoah._waited_end import wait_for_end
from pharoah.capture import hooks
from pharoah.capture.clock import StepClock
from pharoah_protocol.rank_messages import (
    AskValidation,
    Check,
    CheckAnswer,
    End,
    Ended,
    Findings,
    Hello,
    HelloAnswer,
    Launch,
    RunStarted,
    Status,
    StatusAnswer,
)
from pharoah_protocol.vocabulary import EndState, LaunchGate, Mode

if TYPE_CHECKING:
    from pharoah.dryrun import DryRun

log = logging.getLogger("pharoah")

StepFn = Callable[[], object]
LISTEN_AGAIN_SECONDS = 60.0
"""A training loop may ask in each step: when its sidecar is gone, it is tried once a minute."""


class Session:
    """One job under Pharoah. Every method can be called at any time, in any process, and does not raise.

    Thread-safe. In a forked child, and when nothing listens, the same methods do nothing.
    """

    def __init__(self, verdict: Verdict, link: SidecarLink | None = None, settings: Settings | None = None) -> None:
        self._verdict = verdict
        self._link = link
        self._settings = settings or Settings()
        self._clock = _clock_of(link, self._settings) if link else None
        self._listener: Listener | None = None
        self._listen_at = 0.0
        """When to try to listen again, on the monotonic clock."""
        self._failure: Failure | None = None
        if link is not None:
            hooks.on_fork(self._forget)

    @property
    def verdict(self) -> Verdict:
        """The newest verdict: a `pending` one becomes final after the first steps were captured."""
        newer = self._listener.verdict if self._listener else None
        return self._verdict if newer is None else newer

    @property
    def run_id(self) -> str:
        """The same on all ranks of a node; empty when there is no sidecar."""
        return self._verdict.run_id

    def step(self) -> None:
        """A step is over. Microseconds; optional where torch optimizers step, and where a model answers requests."""
        if self._clock is not None and not hooks.inert():
            self._clock.tick("session")
        else:
            hooks.step_stated()

    def on_alert(self, callback: AlertCallback) -> AlertCallback:
        """Call `callback(alert)` on a daemon thread for every change of an alert. Usable as a decorator."""
        with Guard("on_alert"):
            if listener := self._listening():
                listener.callbacks.append(callback)
        return callback

    def alerts(self) -> Iterator[Alert]:
        """Alerts that have come since the last call; does not wait."""
        listener = self._listening()
        while listener is not None:
            try:
                yield listener.pending.get_nowait()
            except queue.Empty:
                return

    def should_checkpoint(self) -> bool:
        """Whether an alert has asked for a checkpoint since the last call. For the training loop: it reads a variable.
        The first call opens the connection on which alerts come; alerts that hold already come as well.

        Ranks hear of an alert at different steps, and those of other nodes may hear nothing: before they save together,
        they must agree (`torch.distributed.all_reduce` with MAX)."""
        listener = self._listening()
        return listener is not None and listener.take_checkpoint()

    def ask_validation(self) -> None:
        """Ask the provider to test this node, at the next round minute: beside this job if it agrees to
        micro-benchmarks, else when the node is idle. The provider learns that you asked, and no reason."""
        if self._link is not None and not hooks.inert():
            self._link.send(AskValidation())

    def status(self) -> dict[str, Any]:
        """The state now: run, steps, verdict, dropped messages, and whether the provider is reached."""
        known: dict[str, Any] = {"run_id": self.run_id, "verdict": self.verdict.status, "connected": False}
        if self._clock is not None and self._link is not None and not hooks.inert():
            known.update(steps=self._clock.steps, dropped=self._link.dropped)
            with Guard("status"), contextlib.closing(SidecarLink(self._link.path, 0.5)) as link:
                known.update(vars(link.ask(Status(), StatusAnswer, 0.5)))
        return known

    def finish(self, state: str = "") -> None:
        """The job is over; `state` is one of the end states, `ok` or `failed` by default. Takes at most 2 s."""
        if self._link is None or hooks.inert():
            return
        link, self._link = self._link, None
        with Guard("finish"):
            hooks.detach()
            with Guard("flush"):
                if self._clock is not None:
                    self._clock.flush()
            with contextlib.suppress(OSError):
                ended = _end_state(state) if state else EndState.FAILED if self._failure else EndState.OK
                status, error = self._failure or (0, "")
                end = End(ended, status=status, error=error, stated=bool(state))
                with wait_for_end(link.path, self._settings.shutdown_timeout_seconds) as seconds:
                    link.ask(end, Ended, seconds)
            if self._listener:
                self._listener.close()
            link.close()

    def _listening(self) -> Listener | None:
        if self._listener is None and self._link is not None and not hooks.inert():
            if time.monotonic() < self._listen_at:
                return None
            self._listen_at = time.monotonic() + LISTEN_AGAIN_SECONDS
            with Guard("alerts"):
                self._listener = Listener(self._link.path, rank())
        return self._listener

    def _forget(self) -> None:
        for held in (self._link, self._listener):
            if held is not None:
                held.forget()
        self._listener = None  # a forked child hears no alerts of its parent


def _clock_of(link: SidecarLink, settings: Settings) -> StepClock:
    return StepClock(link, settings.capture_every_steps, settings.step_file)


_session: Session | None = None


def register(
    job: StepFn | None = None,
    *,
    gate: str | None = None,
    mode: str | None = None,
    privacy: str | None = None,
    endpoint: str | None = None,
    allow_beside_job: bool | None = None,
    dry_run_timeout_seconds: float | None = None,
) -> Session:
    """Check this job before its first step, and monitor it while it runs.

    Where the fingerprint comes from: the handle left by `pharoah run`, if there is one; else `job`, a function that
    does one training step, dry-run in a child; else this script, dry-run by running the same command line in a child.
    What cannot be dry-run is `pending` until step 3 has been captured.

    Never raises because of Pharoah, the provider or the network, nor for an environment variable that cannot be read:
    its default is used, and a line on standard error says so. Raises SettingsError for an argument of this call that
    cannot be used, and IncompatibleError if `gate="block"` and the verdict is incompatible. Calling it again returns
    the same session.
    """
    global _session
    if _session is not None or hooks.inert() or os.environ.get(DRY_RUN):
        return _session or Session(unknown("inside a dry run or a forked child"))
    unreadable: list[str] = []
    settings = Settings.load(
        unreadable=unreadable.append,
        gate=gate,
        mode=mode,
        privacy=privacy,
        endpoint=endpoint,
        allow_beside_job=allow_beside_job,
        dry_run_timeout_seconds=dry_run_timeout_seconds,
    )
    _session = Session(unknown("pharoah failed to start"))
    with Guard("settings"):
        _say_unreadable(unreadable, settings)
    with Guard("register"):
        _session = _begin(job, settings)
    if _is_refused(_session.verdict, settings) and not os.environ.get(SIDECAR):
        verdict, failed = _session.verdict, _session
        _session = None
        failed.finish("cancelled")
        raise IncompatibleError(verdict)
    return _session


def _say_unreadable(lines: Sequence[str], settings: Settings) -> None:
    """Once on a node; `pharoah run` has said it already where it has started this process."""
    if lines and settings.mode != Mode.DISABLED and not os.environ.get(SIDECAR) and may_ask():
        from pharoah_system.standard_streams import say

        for line in lines:
            say(f"pharoah: {line}")


def _is_refused(verdict: Verdict, settings: Settings) -> bool:
    """Whether the user wants no start with this verdict."""
    return settings.gate == LaunchGate.BLOCK and verdict.blocking


def _begin(job: StepFn | None, settings: Settings) -> Session:
    if settings.mode == Mode.DISABLED:
        return Session(unknown("pharoah is disabled"))
    if os.environ.get(SIDECAR):
        return _join(os.environ[SIDECAR], settings)
    if settings.mode != Mode.ONLINE:
        return Session(unknown(f"mode={settings.mode}: the provider is not asked"))
    if settings.no_provider:
        return Session(unknown(settings.no_provider))
    if getattr(sys, "frozen", False) or not sys.executable:  # it would start the program of the job again
        return Session(unknown("this program is not run by a Python interpreter; use `pharoah run`"))
    from pharoah._sidecar_start import NoRoomError, sidecar_of_this_node

    began_at = time.monotonic()
    try:
        path = sidecar_of_this_node(settings)
    except NoRoomError as error:
        return Session(unknown(str(error)))
    return _join(path, settings, lambda: _dry_run(job, settings, began_at))


def _join(path: str, settings: Settings, dry_run: Callable[[], DryRun] | None = None) -> Session:
    """Greet the sidecar. The first rank that may ask about a job that was not checked yet has to `dry_run` it."""
    link = None
    try:
        link = SidecarLink(path, settings.timeout_seconds)
        hello = Hello(rank(), ranks_here(), may_dry_run=dry_run is not None and may_ask())
        answer = link.ask(hello, HelloAnswer, settings.timeout_seconds)
        verdict, serves = Verdict.from_dict(answer.verdict), answer.serves
        if dry_run is not None and answer.dry_run_needed:
            verdict, serves = _check(link, settings, dry_run)
            if not _is_refused(verdict, settings):
                link.send(Launch(ranks_here()))
    except (OSError, ValueError) as error:
        if link is not None:
            link.close()
        return Session(unknown(f"the sidecar does not answer: {error}"))
    session = Session(verdict, link, settings)
    start_responder(path)
    if session._clock is not None:
        session._clock.serves = serves or bool(os.environ.get(SERVES))
        _watch(session._clock)
    _finish_at_exit(session)
    if answer.dry_run_needed:
        log.info("%s", session.verdict.summary())
    return session


def _check(link: SidecarLink, settings: Settings, dry_run: Callable[[], DryRun]) -> tuple[Verdict, bool]:
    """The verdict on a job that was not checked yet, with what its cost means on this node; and whether it serves."""
    patience = 4 * settings.timeout_seconds
    job = render_command(command())
    try:
        dry = dry_run()
    except UnknownReason as reason:
        link.send(RunStarted(job))
        return Verdict.from_dict(link.ask(Check(pending=str(reason)), CheckAnswer, patience).verdict), False
    try:
        answer = link.ask(Check(dry.fingerprint.to_json()), CheckAnswer, patience)
    except OSError as error:
        if error.errno != errno.EMSGSIZE:
            raise
        answer = link.ask(Check(pending="the fingerprint is larger than a message may be"), CheckAnswer, patience)
    verdict = Verdict.from_dict(answer.verdict)
    with Guard("cost"):
        from pharoah.comparison.record import record_of  # here: they bring the archetypes
        from pharoah.cost.findings import cost_findings, estimate_step_seconds
        from pharoah.documented import list_documented_findings

        link.send(RunStarted(job, record_of(dry).groups))
        found = (
            *list_documented_findings(dry.fingerprint, dry.cost, verdict),
            *cost_findings(dry.fingerprint, dry.cost, answer.profile, verdict),
        )
        expected = estimate_step_seconds(dry.fingerprint, dry.cost, answer.profile)
        link.send(Findings(tuple(vars(finding) for finding in found), expected))
        verdict = verdict.with_findings(*found)
    return verdict, dry.fingerprint.serves


def _watch(clock: StepClock) -> None:
    """Time optimizer steps, from now on or from the import of torch on."""

    def attach() -> None:
        hooks.attach(clock)
        start_responder_from_hook()

    if sys.modules.get("torch") is not None:
        hooks.attach(clock)
    else:
        sys.meta_path.insert(0, Finder(attach))  # type: ignore[no-untyped-call]


def _dry_run(job: StepFn | None, settings: Settings, began_at: float) -> DryRun:
    """Raises UnknownReason, also when the time since `began_at` is over: the job waits in wall time."""
    from pharoah import dryrun  # here: it brings the archetypes, which a job without a provider never needs

    seconds, unprotected = settings.dry_run_timeout_seconds, settings.allow_unprotected_dry_run
    left = max(0.0, began_at + seconds - time.monotonic())
    if job is not None:
        return dryrun.dry_run_step(job, seconds, wall_seconds=left, allow_unprotected=unprotected)
    return dryrun.dry_run(command(), seconds, wall_seconds=left, allow_unprotected=unprotected)


def _end_state(text: str) -> EndState:
    """The end state of a user's word; `failed` for a word that is not an end state a job can report."""
    if text in set(EndState) - {EndState.LOST}:
        return EndState(text)
    log.warning("finish(%r): not an end state; the run is reported as failed", text)
    return EndState.FAILED


def _finish_at_exit(session: Session) -> None:
    """Report the end at exit, and what has failed."""

    def fail(failure: Failure) -> None:
        session._failure = session._failure or failure

    watch_process_end(fail, session.finish)


def watch_end_from_hook() -> None:
    """For `pharoah run`: a script that does not call `register` may fail before its first optimizer step."""
    failures: list[Failure] = []

    def end_session() -> None:
        with Guard("exit"):
            first = failures[:1]
            failures.clear()  # from Python 3.13 on, a process of a fork server comes here twice
            if _session is None and first and not hooks.inert() and not os.environ.get(DRY_RUN):
                report_early_failure(os.environ[SIDECAR], first[0])

    with Guard("exit"):
        watch_process_end(failures.append, end_session)


def join_from_hook() -> StepClock | None:
    """For `pharoah run`: connect at the first optimizer step of a script that does not call `register`."""
    global _session
    with Guard("join"):
        if _session is None and os.environ.get(SIDECAR) and not os.environ.get(DRY_RUN):
            _session = _join(os.environ[SIDECAR], Settings.load(unreadable=lambda _line: None))
        return _session._clock if _session else None
    return None
