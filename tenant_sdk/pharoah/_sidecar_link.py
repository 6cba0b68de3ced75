"""The rank's side of the socket to the sidecar: one packet per message, never blocking after the greeting.

A SEQPACKET socket keeps message borders and tells the sidecar by its end that the rank is gone. What does not fit the
socket's buffer is dropped and counted; the count travels with the next message that does.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any

SIDECAR = "PHAROAH_SIDECAR"
"""Path of the sidecar's socket, set for ranks by whoever started the sidecar."""
DRY_RUN = "PHAROAH_DRY_RUN"
"""Set in the child of a dry run: `register` is inert there."""


class SidecarLink:
    """A connection to the sidecar."""

    def __init__(self, path: str, timeout_seconds: float) -> None:
        """Raises OSError when nobody listens."""
        self.path = path
        self.dropped = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(timeout_seconds)
        self._pid = os.getpid()
        try:
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise
        self._socket.setblocking(False)

    def ask(self, op: str, timeout_seconds: float, **content: Any) -> dict[str, Any]:
        """Send and wait for the answer. Raises OSError when it does not come in time."""
        self._socket.settimeout(timeout_seconds)
        try:
            self._socket.send(json.dumps({"op": op, **content}).encode())
            answer = self.receive()
        finally:
            # With a timeout left in place Python would wait for room before every send, whatever the flags say.
            self._socket.setblocking(False)
        if answer is None:
            raise ConnectionResetError("the sidecar is gone")
        return answer

    def tell(self, op: str, **content: Any) -> bool:
        """Send without waiting; False when it was dropped. Raises nothing."""
        try:
            message = json.dumps({"op": op, "dropped": self.dropped, **content}).encode()
            self._socket.send(message)
            return True
        except (OSError, ValueError):
            self.dropped += 1
            return False

    def receive(self, timeout_seconds: float | None = -1) -> dict[str, Any] | None:
        """The next message; None when the sidecar is gone. -1 keeps the timeout that is set."""
        if timeout_seconds != -1:
            self._socket.settimeout(timeout_seconds)
        packet = self._socket.recv(1 << 20)
        return json.loads(packet) if packet else None

    def close(self) -> None:
        """Wakes a thread that waits in `receive`."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._socket.close()

    def forget(self) -> None:
        """In a forked child: let go of the descriptor; the parent's connection goes on."""
        self._socket.close()
