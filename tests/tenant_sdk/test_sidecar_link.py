from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from pharoah._sidecar_link import SidecarLink
from pharoah_protocol.local_messages import encode
from pharoah_protocol.rank_messages import Launch, LaunchAnswer, Steps


def server(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(path))
    listener.listen()
    return listener


def test_a_sidecar_that_does_not_read_costs_messages_not_time(tmp_path: Path) -> None:
    with server(tmp_path / "s") as listener:
        link = SidecarLink(str(tmp_path / "s"), timeout_seconds=3600.0)
        connection, _ = listener.accept()
        while link.send(Steps(0, [1] * 1000, 0)):
            pass  # a send that waits for room would wait an hour here
        assert link.dropped == 1
        connection.close()
        link.close()


def test_ranks_that_find_no_room_wait_until_the_sidecar_accepts(tmp_path: Path) -> None:
    """Two connections fit into the queue of this one, and Linux refuses the third at once."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen(1)
        links = [SidecarLink(str(tmp_path / "s"), 5.0) for _ in range(2)]
        with pytest.raises(BlockingIOError):
            SidecarLink(str(tmp_path / "s"), 0.05)
        accepted: list[socket.socket] = []
        accepting = threading.Timer(0.05, lambda: accepted.append(listener.accept()[0]))
        accepting.start()
        links.append(SidecarLink(str(tmp_path / "s"), 30.0))
        accepting.join()
        for end in (*links, *accepted):
            end.close()


def test_an_answer_is_waited_for_and_what_follows_is_not(tmp_path: Path) -> None:
    with server(tmp_path / "s") as listener:
        link = SidecarLink(str(tmp_path / "s"), timeout_seconds=5.0)
        connection, _ = listener.accept()
        answering = threading.Timer(0.05, lambda: connection.send(encode(LaunchAnswer("ab"))))
        answering.start()
        assert link.ask(Launch(1), LaunchAnswer, 5.0) == LaunchAnswer("ab")
        while link.send(Steps(0, [1] * 1000, 0)):
            pass
        answering.join()
        connection.close()
        link.close()
