from __future__ import annotations

import json
import socket
import threading
from pathlib import Path

from pharoah._sidecar_link import SidecarLink


def server(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(path))
    listener.listen()
    return listener


def test_a_sidecar_that_does_not_read_costs_messages_not_time(tmp_path: Path) -> None:
    with server(tmp_path / "s") as listener:
        link = SidecarLink(str(tmp_path / "s"), timeout_seconds=3600.0)
        connection, _ = listener.accept()
        while link.tell("steps", durations=[1] * 1000):
            pass  # a send that waits for room would wait an hour here
        assert link.dropped == 1
        connection.close()
        link.close()


def test_an_answer_is_waited_for_and_what_follows_is_not(tmp_path: Path) -> None:
    with server(tmp_path / "s") as listener:
        link = SidecarLink(str(tmp_path / "s"), timeout_seconds=5.0)
        connection, _ = listener.accept()
        answering = threading.Timer(0.05, lambda: connection.send(json.dumps({"verdict": "ok"}).encode()))
        answering.start()
        assert link.ask("hello", 5.0) == {"verdict": "ok"}
        while link.tell("steps", durations=[1] * 1000):
            pass
        answering.join()
        connection.close()
        link.close()
