"""A receiver of alerts as an Alertmanager takes them, on a port of its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver:
    """Keeps what it is sent; `failing` calls are answered with an error first."""

    def __init__(self, failing: int = 0) -> None:
        self.bodies: list[list[dict[str, Any]]] = []
        self.asked = 0
        """Calls so far, with those that are not answered yet."""
        self.before_answer: Callable[[], object] = lambda: None
        self.received = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                nonlocal failing
                failing -= 1
                outer.asked += 1
                outer.before_answer()
                if failing < 0:
                    outer.bodies.append(json.loads(body))
                    outer.received.set()
                self.send_response(500 if failing >= 0 else 200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing is printed."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/api/v2/alerts"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
