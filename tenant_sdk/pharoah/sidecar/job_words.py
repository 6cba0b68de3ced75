"""What the sidecar of `pharoah run` says while the job runs, in the place of the command, which is gone by then.

It writes to the standard error that the command was given, and renews the file of the verdict. Neither ever holds the
sidecar up for longer than `standard_streams.say` waits for room.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from pharoah._alert import Alert
from pharoah._settings import Settings
from pharoah._verdict import Finding, Verdict
from pharoah_protocol.vocabulary import LaunchGate, VerdictStatus
from pharoah_system.own_thread import begin_in_own_thread
from pharoah_system.standard_streams import say


class JobWords:
    """Speaks about one job, from its launch on."""

    def __init__(self, settings: Settings, descriptor: int) -> None:
        """`descriptor` is standard error of the command."""
        self._settings, self._descriptor = settings, descriptor
        self._known: set[Finding] | None = None
        """Findings that were said; None before the launch."""
        self._pending = False
        self._file = _VerdictFile(settings, self._say)

    def launch(self, verdict: Verdict) -> None:
        """The command has said this verdict, and the job starts."""
        self._known, self._pending = set(verdict.findings), verdict.status == VerdictStatus.PENDING

    def note_change(self, later: Verdict) -> None:
        """Say what is new in a verdict, and put it into its file."""
        if self._known is None:
            return
        new = [finding for finding in later.findings if finding not in self._known]
        self._known.update(new)
        if self._pending and later.status != VerdictStatus.PENDING:
            self._pending = False
            self._show(f"pharoah  {later.render()}")
        elif new:
            self._show("\n".join(["pharoah", *(line for finding in new for line in finding.lines())]))
        else:
            return
        self._file.write(later)

    def alert(self, alert: Alert) -> None:
        if self._known is not None:
            self._show(str(alert))

    def leaving(self, reason: str) -> None:
        """The sidecar ends before the job does."""
        self._show(f"pharoah: {reason}")

    def _show(self, text: str) -> None:
        if self._settings.gate != LaunchGate.OFF:
            self._say(text)

    def _say(self, text: str) -> None:
        say(text, self._descriptor)


class _VerdictFile:
    """Written in a thread of its own, for a file system may not answer; the newest verdict is always written last."""

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        self._path, self._say = settings.verdict_file, say
        self._lock = threading.Lock()
        self._next: Verdict | None = None
        self._writing = False

    def write(self, verdict: Verdict) -> None:
        if not self._path:
            return
        with self._lock:
            self._next = verdict
            if self._writing:
                return
            self._writing = True
        try:
            begin_in_own_thread(self._write_all)
        except RuntimeError:  # the job may have used up its processes
            self._writing = False

    def _write_all(self) -> None:
        while True:
            with self._lock:
                verdict, self._next = self._next, None
                if verdict is None:
                    self._writing = False
                    return
            verdict.write_or_say(self._path, self._say)
