"""Everything of ours that happens before a job starts: guarded and bounded, so that the job starts whatever fails.

The work is done in a thread of its own. What it raises, or a time that it does not keep, means that the job is started
without Pharoah. Only what the user has asked for keeps a job from starting: an incompatible verdict with `--gate
block`, an unknown one with `--strict`, no provider with `--require-online`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pharoah._errors import UnknownReason
from pharoah._guard import DEBUG
from pharoah._rank_identity import render_command
from pharoah._settings import Settings
from pharoah._sidecar_link import SidecarLink
from pharoah._verdict import Verdict, unknown
from pharoah.cli import _check, _common
from pharoah.cli._job_end import command_at_end
from pharoah.comparison.record import record_of
from pharoah.dryrun import DryRun
from pharoah.launchers import launch_of
from pharoah.node_restrictions import NO_RESTRICTIONS, Restrictions
from pharoah_protocol.rank_messages import End, Ended, Findings, Launch, LaunchAnswer, RunStarted
from pharoah_protocol.vocabulary import LaunchGate
from pharoah_system.standard_streams import say
from pharoah_system.text import sanitize_text

ANSWER_SECONDS = 4.0
"""How long the answer of a provider, and what this machine computes of it, may take after the time of the dry run: two
calls (PHAROAH_TIMEOUT_S is 2 s)."""
MIN_SECONDS = 12.0
"""A limit of less is no limit for a start without a dry run: a sidecar may take 10 s (START_SECONDS)."""
WRITING_SECONDS = 2.0
"""Longest time for the file of a verdict that nobody has checked; a file is written within milliseconds."""


def longest_seconds(settings: Settings) -> float:
    """How long a job waits for us at most, from the start of this process on, in wall time. A dry run that is not done
    by its limit is ended, and the verdict comes late, from a step of the job."""
    return max(settings.dry_run_timeout_seconds + ANSWER_SECONDS, MIN_SECONDS)


@dataclass(frozen=True)
class Prepared:
    """What is known when the job is about to start."""

    words: str = ""
    """What is printed before the start; empty for nothing."""
    exit_code: int = 0
    """Why the job must not start; 0 when it may."""
    verdict: Verdict | None = None
    link: SidecarLink | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables that the job gets."""
    restrictions: Restrictions = NO_RESTRICTIONS
    shutdown: _common.ShutdownTime = field(default_factory=_common.ShutdownTime)
    held: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """The sidecar and the connection to it."""

    def command_at_end(self) -> list[str]:
        """What the waiter of the job becomes when the job has ended; empty where there is no sidecar."""
        return command_at_end(self.link, self.shutdown.seconds) if self.link is not None else []

    def end(self, end: End) -> None:
        """The job has ended, or was not started. Nothing that fails now changes what it has left."""
        with contextlib.suppress(Exception):
            if self.link is not None:
                self.link.ask(end, Ended, self.shutdown.get_remaining())
        with contextlib.suppress(Exception):
            self.held.close()


def prepare(
    command: list[str], arguments: argparse.Namespace, settings: Settings, waited_seconds: float = 0.0
) -> Prepared:
    """Check the job. Raises nothing, and takes no longer than `longest_seconds`, of which `waited_seconds` are over."""
    began_at = time.monotonic() - waited_seconds
    try:
        longest = max(0.0, longest_seconds(settings) - waited_seconds)
        return _in_time(longest, lambda held: _prepare(command, arguments, settings, held, began_at))
    except Exception as error:  # noqa: BLE001 - whatever fails here is ours, and the job starts
        if os.environ.get(DEBUG):
            say("".join(traceback.format_exception(error)))
        reason = sanitize_text(str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}", 200)
        code = _code_without_check(reason, arguments, settings)
        what = _refusal(code, settings) if code else "the job starts without it"
        return Prepared(words=f"pharoah: {reason}; {what}", exit_code=code)


def skip_check(arguments: argparse.Namespace, settings: Settings) -> Prepared:
    """The mode wants no check. Nothing is printed, but for a job that is not started. Raises nothing."""
    reason = f"mode={settings.mode}: the job is not checked"
    code = _code_without_check(reason, arguments, settings)
    return Prepared(words=f"pharoah: {reason}; {_refusal(code, settings)}" if code else "", exit_code=code)


def _code_without_check(reason: str, arguments: argparse.Namespace, settings: Settings) -> int:
    """Why a job that was not checked must not start; 0 when it may. Its verdict takes the place of one that an earlier
    start has left in the file of the verdict."""
    verdict = unknown(reason)
    with contextlib.suppress(Exception):  # a folder that hangs must not keep the job from starting
        writing = threading.Thread(target=_common.write_verdict, args=(verdict, settings), daemon=True)
        writing.start()
        writing.join(WRITING_SECONDS)
    return _common.exit_code(verdict, arguments, settings)


def _refusal(code: int, settings: Settings) -> str:
    return f"not started (gate={settings.gate}, exit code {code})"


def _prepare(
    command: list[str],
    arguments: argparse.Namespace,
    settings: Settings,
    held: contextlib.ExitStack,
    began_at: float,
) -> Prepared:
    """Check the job, and report its start to its sidecar. Raises whatever goes wrong."""
    shutdown = _common.ShutdownTime(settings.shutdown_timeout_seconds)
    link = held.enter_context(_common.sidecar(settings, shutdown, speaks=True))
    waited = time.monotonic() - began_at
    checked = _check.check_job(link, arguments, settings, max(0.0, settings.dry_run_timeout_seconds - waited))
    judged = _check.judge_here(checked)
    verdict = judged.verdict
    found = verdict.findings[len(checked.verdict.findings) :]
    link.send(Findings(tuple(vars(finding) for finding in found), judged.step_seconds))
    words = [f"pharoah  {verdict.render()}"] if settings.gate != LaunchGate.OFF else []
    _common.write_verdict(verdict, settings)
    code = _common.exit_code(verdict, arguments, settings)
    if code:
        words.append(f"pharoah: {_refusal(code, settings)}")
    else:
        link.send(RunStarted(render_command(command), record_of(checked.dry).groups if checked.dry else {}))
        with contextlib.suppress(OSError, ValueError):  # a run that is not monitored is one that was not launched here
            ranks = _ranks(command, arguments, checked.dry)
            link.ask(Launch(ranks), LaunchAnswer, settings.timeout_seconds)
    variables = _common.inside_pharoah(link, command, checked.dry)
    return Prepared("\n".join(words), code, verdict, link, variables, judged.restrictions, shutdown)


def _ranks(command: list[str], arguments: argparse.Namespace, dry: DryRun | None) -> int:
    """How many ranks there will be on this node: as the launcher itself has parsed it in the dry run, else as far as
    the command line gives it."""
    if dry is not None:
        return dry.processes
    try:
        return launch_of(command).on(arguments.nnodes, arguments.nproc_per_node).processes
    except UnknownReason:
        return 1


class _Work(threading.Thread):
    """One piece of work with what it holds open. What comes too late is closed again."""

    def __init__(self, work: Callable[[contextlib.ExitStack], Prepared]) -> None:
        super().__init__(name="pharoah-preparation", daemon=True)
        self._work = work
        self._handing_over = threading.Lock()
        self._given_up = False
        self._result: Prepared | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            with contextlib.ExitStack() as held:
                result = self._work(held)
                with self._handing_over:
                    if not self._given_up:
                        result.held.push(held.pop_all())
                        self._result = result
        except BaseException as error:  # noqa: BLE001 - it is raised where the work is waited for
            self._error = error

    def result(self, seconds: float) -> Prepared:
        """Raises TimeoutError, what the work has raised, and RuntimeError in place of what would end the process."""
        self.join(seconds)
        with self._handing_over:
            self._given_up = True
        if self._result is not None:
            return self._result
        if isinstance(self._error, Exception):
            raise self._error
        if self._error is not None:
            raise RuntimeError(f"{type(self._error).__name__}: {self._error}")
        raise TimeoutError(f"the check took longer than {seconds:g} s")


def _in_time(seconds: float, work: Callable[[contextlib.ExitStack], Prepared]) -> Prepared:
    """The result of some work, in a thread. Raises what `_Work.result` raises."""
    thread = _Work(work)
    thread.start()
    return thread.result(seconds)
