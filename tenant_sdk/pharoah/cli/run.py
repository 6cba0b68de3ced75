"""`pharoah run -- CMD`: check a job, then launch it; it ends as the job ends, by exit code or by signal."""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from pharoah._errors import UnknownReason
from pharoah._listener import Listener
from pharoah._rank_identity import shown
from pharoah._settings import Settings
from pharoah._verdict import Verdict
from pharoah.cli import _check, _common
from pharoah.comparison.record import record_of
from pharoah.dryrun.command_line import launch_of
from pharoah_protocol.local_messages import End, Ended, Findings, Launch, LaunchAnswer, RunStarted
from pharoah_protocol.node_profile import command_under
from pharoah_protocol.vocabulary import EndState, LaunchGate, Mode, VerdictStatus

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def add_parser(commands: Any) -> None:
    """Add the sub-command to the command line."""
    parser = commands.add_parser("run", help="check a job, then launch it", description=__doc__)
    _common.add_check_options(parser)
    parser.add_argument(
        "--allow-beside-job",
        action="store_true",
        default=None,
        help="let the provider run micro-benchmarks on this node while the job runs",
    )
    _common.add_command(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the sub-command; gives the exit code."""
    status = _checked_and_launched(arguments)
    return _die_of(-status) if status < 0 else status


def _checked_and_launched(arguments: argparse.Namespace) -> int:
    """The exit code of the job, or of a job that must not start; -n when signal n ended the job."""
    command, settings = _common.job_command(arguments), _common.settings_of(arguments)
    if settings.mode != Mode.ONLINE:
        return _launch(command, {})
    with contextlib.ExitStack() as held:
        try:
            link = held.enter_context(_common.sidecar(settings))
        except OSError as error:
            print(f"pharoah: {error}; the job starts without it", file=sys.stderr)
            return _launch(command, {})
        checked = _check.check_job(link, arguments, settings)
        verdict, profile = _check.with_cost(checked), checked.profile
        link.send(Findings(tuple(vars(finding) for finding in verdict.findings[len(checked.verdict.findings) :])))
        _show(verdict, settings)
        if code := _common.exit_code(verdict, arguments, settings):
            print(f"pharoah: not started (gate={settings.gate}, exit code {code})", file=sys.stderr)
            with contextlib.suppress(OSError):
                link.ask(End(EndState.CANCELLED, last=True), Ended, settings.shutdown_timeout_seconds)
            return code
        groups = record_of(checked.dry).groups if checked.dry else {}
        link.send(RunStarted(shown(command), groups))
        with contextlib.suppress(OSError):
            link.ask(Launch(_ranks(command, arguments)), LaunchAnswer, settings.timeout_seconds)
        if settings.gate != LaunchGate.OFF:
            held.enter_context(_printing(link.path, verdict))
        status = _launch(command_under(profile, command), _common.inside_pharoah(link))
        with contextlib.suppress(OSError):
            link.ask(End(_end_state(status), last=True), Ended, settings.shutdown_timeout_seconds)
    return status


def _show(verdict: Verdict, settings: Settings) -> None:
    if settings.gate != LaunchGate.OFF:
        print(f"pharoah  {verdict.render()}", file=sys.stderr, flush=True)
    _common.write_verdict(verdict, settings)


@contextlib.contextmanager
def _printing(path: str, verdict: Verdict) -> Iterator[None]:
    """While inside, print what the sidecar sends: alerts, a late verdict, and findings that were not printed before."""
    printed, pending = set(verdict.findings), verdict.status == VerdictStatus.PENDING

    def show(later: Verdict) -> None:
        nonlocal pending
        new = [finding for finding in later.findings if finding not in printed]
        if pending and later.status != VerdictStatus.PENDING:
            pending = False
            print(f"pharoah  {later.render()}", file=sys.stderr, flush=True)
        elif new:
            print(
                "pharoah", *(line for finding in new for line in finding.lines()), sep="\n", file=sys.stderr, flush=True
            )
        printed.update(new)

    try:
        listener = Listener(path, 0, show)
    except OSError as error:
        print(f"pharoah: no alerts: {error}", file=sys.stderr)
        yield
        return
    listener.callbacks.append(lambda alert: print(alert, file=sys.stderr, flush=True))
    with contextlib.closing(listener):
        yield


def _ranks(command: list[str], arguments: argparse.Namespace) -> int:
    """How many ranks there will be on this node, as far as the command line gives it."""
    try:
        return launch_of(command).on(arguments.nnodes, arguments.nproc_per_node).processes
    except UnknownReason:
        return 1


def _launch(command: list[str], extra: dict[str, str]) -> int:
    """Run the job and pass signals on to it. Its exit code; -n when signal n ended it."""
    try:
        child = subprocess.Popen(command, env={**os.environ, **extra})
    except OSError as error:
        print(f"pharoah: cannot start {command[0]}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126
    with _forwarding(child):
        return child.wait()


def _die_of(number: int) -> int:
    """End this process by the signal that ended the job, as a shell does: a scheduler or a script that started us then
    sees what it would see of the job itself. Gives the exit code for a signal that does not end a process."""
    sys.stdout.flush()
    sys.stderr.flush()
    # The job has left a core dump where one is wanted; ours would only hide it.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(OSError, ValueError):  # SIGKILL and SIGSTOP have no handler
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    return 128 + number


@contextlib.contextmanager
def _forwarding(child: subprocess.Popen[bytes]) -> Iterator[None]:
    def forward(number: int, _: Any) -> None:
        if not (number == signal.SIGINT and _in_foreground()):
            child.send_signal(number)

    previous = {number: signal.signal(number, forward) for number in FORWARDED}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _in_foreground() -> bool:
    """A terminal sends Ctrl-C to its whole foreground group: then the job has it already."""
    return sys.stdin.isatty() and os.getpgid(0) == os.tcgetpgrp(sys.stdin.fileno())


def _end_state(status: int) -> EndState:
    # A launcher such as torchrun reports the signal of its workers as an exit code above 128.
    if abs(status) % 128 in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) and (status < 0 or status > 128):
        return EndState.CANCELLED
    return EndState.FAILED if status else EndState.OK
