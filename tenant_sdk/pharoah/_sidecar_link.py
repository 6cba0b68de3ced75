"""The rank's side of the socket to the sidecar: one message per packet, never blocking after the greeting.

A SEQPACKET socket keeps the borders of messages, and its end shows the sidecar that the rank is gone. A message that
does not fit into the socket's buffer is dropped and counted.
"""

from __future__ import annotations

import socket
import time
from typing import TypeVar

from pharoah_protocol.local_messages import MAX_MESSAGE_BYTES, Message, decode, encode
from pharoah_protocol.rank_messages import Failure

SIDECAR = "PHAROAH_SIDECAR"
"""Path of the sidecar's socket, set for ranks by the process that started the sidecar."""
SERVES = "PHAROAH_SERVES"
"""Set for ranks of a job that serves, as its dry run has found."""
DRY_RUN = "PHAROAH_DRY_RUN"
"""Set in the child of a dry run: `register` is inert there."""

CONNECT_AGAIN_SECONDS = 0.01
"""The sidecar accepts a connection in less; ours."""

A = TypeVar("A", bound=Message)


def connect(to_sidecar: socket.socket, path: str, timeout_seconds: float) -> None:
    """Connect a Unix socket. Raises OSError when nobody listens, or not in time.

    Linux does not wait for room where many ranks connect at once and the socket has a timeout (unix(7), EAGAIN).
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        to_sidecar.settimeout(timeout_seconds)
        try:
            return to_sidecar.connect(path)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(CONNECT_AGAIN_SECONDS)


class SidecarLink:
    """A connection to the sidecar."""

    def __init__(self, path: str, timeout_seconds: float) -> None:
        """Raises OSError when nobody listens."""
        self.path = path
        self.dropped = 0
        """Messages that did not fit into the socket's buffer."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # As far as the system allows it: the fingerprint of a step that repeats nothing can be large (socket(7)).
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_MESSAGE_BYTES)
        try:
            connect(self._socket, path, timeout_seconds)
        except OSError:
            self._socket.close()
            raise
        self._socket.setblocking(False)

    @classmethod
    def from_kept(cls, connected: socket.socket, path: str) -> SidecarLink:
        """The connection that the program before this one has kept open."""
        link = cls.__new__(cls)
        link.path, link.dropped, link._socket = path, 0, connected
        connected.setblocking(False)
        return link

    def keep_for_program(self) -> int:
        """The descriptor, which stays open in the next program of this process."""
        self._socket.set_inheritable(True)
        return self._socket.fileno()

    def ask(self, question: Message, expected: type[A], timeout_seconds: float) -> A:
        """Send and wait for the answer, which must be of the expected class.

        Raises OSError when it does not come in time, and ValueError when the sidecar answers anything else.
        """
        self._socket.settimeout(timeout_seconds)
        try:
            self._socket.send(encode(question, wants_answer=True))
            answer = self._receive()
        finally:
            # With a timeout left in place Python would wait for room before every send, whatever the flags say.
            self._socket.setblocking(False)
        if answer is None:
            raise ConnectionResetError("the sidecar is gone")
        if isinstance(answer, Failure):
            raise ValueError(answer.reason)
        if not isinstance(answer, expected):
            raise ValueError(f"the sidecar answered {question.VERB!r} with {answer.VERB!r}")
        return answer

    def send(self, message: Message) -> bool:
        """Send without waiting; False when it was dropped. Raises nothing."""
        try:
            self._socket.send(encode(message))
            return True
        except (OSError, ValueError, TypeError):
            self.dropped += 1
            return False

    def wait_for_message(self) -> Message | None:
        """The next message, however long it takes; None when the sidecar is gone. Raises OSError and ValueError."""
        self._socket.settimeout(None)
        return self._receive()

    def _receive(self) -> Message | None:
        packet = self._socket.recv(MAX_MESSAGE_BYTES)
        return decode(packet).message if packet else None

    def close(self) -> None:
        """Close. A thread that waits for a message wakes up."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._socket.close()

    def forget(self) -> None:
        """In a forked child: close the descriptor; the parent's connection goes on."""
        self._socket.close()
