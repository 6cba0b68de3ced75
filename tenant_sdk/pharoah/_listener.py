"""What the sidecar sends while a job runs: alerts, and verdicts that have changed."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

from pharoah._alert import Alert
from pharoah._sidecar_link import SidecarLink
from pharoah._verdict import Verdict
from pharoah_protocol.rank_messages import AlertRaised, Listen, VerdictChanged

log = logging.getLogger("pharoah")

AlertCallback = Callable[[Alert], Any]


class Listener:
    """Receives on a daemon thread; calls callbacks there, and keeps alerts for `Session.alerts`."""

    def __init__(self, path: str, rank: int, on_verdict: Callable[[Verdict], Any] | None = None) -> None:
        """Raises OSError when there is no sidecar at the path."""
        self.callbacks: list[AlertCallback] = []
        self.pending: queue.Queue[Alert] = queue.Queue(maxsize=1000)
        self.verdict: Verdict | None = None
        self._checkpoint = False
        """Whether an alert has asked for a checkpoint since `take_checkpoint`."""
        self._on_verdict = on_verdict
        self._link = SidecarLink(path, 2.0)
        self._link.send(Listen(rank))
        threading.Thread(target=self._run, name="pharoah-alerts", daemon=True).start()

    def take_checkpoint(self) -> bool:
        """Whether a checkpoint is asked for; the next call answers no, until another alert asks."""
        asked, self._checkpoint = self._checkpoint, False
        return asked

    def close(self) -> None:
        self._link.close()

    def forget(self) -> None:
        self._link.forget()

    def _run(self) -> None:
        try:
            while message := self._link.wait_for_message():
                if isinstance(message, VerdictChanged):
                    self.verdict = Verdict.from_dict(message.verdict)
                    if self._on_verdict:
                        self._on_verdict(self.verdict)
                elif isinstance(message, AlertRaised):
                    self._deliver(Alert.from_dict(message.alert))
        except Exception as error:  # noqa: BLE001 - a traceback of a thread would get into the job's standard error
            log.debug("no more alerts: %s", error)

    def _deliver(self, alert: Alert) -> None:
        self._checkpoint |= alert.checkpoint and alert.state.is_open
        with contextlib.suppress(queue.Full):
            self.pending.put_nowait(alert)
        for callback in list(self.callbacks):
            try:
                callback(alert)
            except Exception:
                log.exception("an on_alert callback raised")
