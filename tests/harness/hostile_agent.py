"""An agent that answers anything: a script on a real socket, because it is the attacker, and the answers it gives."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah_protocol.node_ticket import Ticket

KEY = Ed25519PrivateKey.from_private_bytes(b"\x07" * 32)
DRIP_SECONDS = 0.05
WATCH_SECONDS = 0.05


@dataclass(frozen=True)
class AgentAnswer:
    """What an agent does when it is asked for a ticket."""

    name: str
    content: bytes = b""
    waits: bool = False
    """It keeps the connection open afterwards, until the other side has had enough."""
    drips: bool = False
    """It sends one byte at a time, slowly."""
    endless: bool = False
    """It sends the content again and again."""


CLOSES_AT_ONCE = AgentAnswer("closes at once")


def ticket_with(**fields: Any) -> bytes:
    """A good answer with these fields changed; `...` removes one."""
    body, signature = Ticket.issue("n1", "boot", KEY, time.time())
    answer = {"verb": "ticket_answer", "body": body.decode(), "signature": signature.hex(), **fields}
    return json.dumps({name: value for name, value in answer.items() if value is not ...}).encode() + b"\n"


def profile(name: str, stated: Any) -> AgentAnswer:
    return AgentAnswer(f"profile {name}", ticket_with(profile=stated))


CURVE = [[1e3, 1e-6], [1e6, 1e-4]]
ABSURD: list[Any] = [
    None, True, False, 0, -1, 1, 0.5, 1e308, float("nan"), float("inf"), -float("inf"), 2**31, 2**63, 2**70, -(2**70),
    "", "0", "sse", "1e9", "\x1b[2J", "\ud800", "x" * 20_000, [], [0], [-1], [4096], [2**70], ["a"], [0, "a"], [[0]],
    [True], [0.5], [None], list(range(10_000)), {}, {"0": 0}, {"cpus": [0]},
]  # fmt: skip
"""Values for any key of a profile."""
KEYS = ("cpus", "threads", "isa", "memory_limit_bytes", "ceilings")
WHOLE: list[Any] = [
    [], "abc", None, 5, 0.5, True, {"x": 1}, {"": ""}, {"cpus": [0], "x": {"y": []}},
    {f"key{i}": i for i in range(3000)},
    {"isa": "avx512"}, {"isa": "default"}, {"threads": 1}, {"threads": 10**6}, {"memory_limit_bytes": 1},
    {"memory_limit_bytes": 20_000_000}, {"memory_limit_bytes": 300_000_000}, {"memory_limit_bytes": 2**62},
    {"ceilings": {"overhead": 1e-5, "curves": {}}}, {"ceilings": {"overhead": float("nan"), "curves": {}}},
    {"ceilings": {"overhead": 1e-5, "curves": {"product": {"float32": CURVE * 5000}}}},
    {"ceilings": {"overhead": 1e-5, "curves": {"product": {"float32": [[2**1100, 1]]}}}},
    {"ceilings": {"overhead": 1e-5, "curves": {f"kind{i}": {"float32": CURVE} for i in range(400)}}},
]  # fmt: skip
"""Profiles as a whole."""


def _protocol_faults() -> list[AgentAnswer]:
    """Answers that are no good ticket, whatever their profile."""
    good = ticket_with(profile={})
    return [
        CLOSES_AT_ONCE,
        AgentAnswer("says nothing", waits=True),
        AgentAnswer("says half of it", good[:40], waits=True),
        AgentAnswer("drips", good, drips=True),
        AgentAnswer("never ends a line", b"x" * 4096, endless=True),
        AgentAnswer("never stops", good, endless=True),
        AgentAnswer("megabytes", ticket_with(profile={"x": "y" * 3_000_000})),
        AgentAnswer("an empty line", b"\n"),
        AgentAnswer("binary", bytes(range(256)) + b"\n"),
        AgentAnswer("deep", b'{"verb":"ticket_answer","body":"","signature":"","profile":' + b"[" * 30_000 + b"\n"),
        AgentAnswer(
            "deep and closed", ticket_with(profile=...)[:-2] + b',"profile":' + b"[" * 900 + b"]" * 900 + b"}\n"
        ),
        AgentAnswer("a long number", ticket_with(profile=...)[:-2] + b',"profile":' + b"9" * 20_000 + b"}\n"),
        AgentAnswer("no object", b"[]\n"),
        AgentAnswer("another verb", ticket_with(verb="dance")),
        AgentAnswer("no verb", ticket_with(verb=...)),
        AgentAnswer("a verb that is a list", ticket_with(verb=["ticket_answer"])),
        AgentAnswer("a failure", json.dumps({"verb": "failure", "reason": "\x1b[31mno\n" * 100}).encode() + b"\n"),
        AgentAnswer("no body", ticket_with(body=...)),
        AgentAnswer("a body that is a number", ticket_with(body=7)),
        AgentAnswer("a body that cannot be encoded", ticket_with(body="\ud800")),
        AgentAnswer("a signature that is no hex", ticket_with(signature="zz")),
        AgentAnswer("a signature that is an object", ticket_with(signature={"r": 1})),
        AgentAnswer("a newer release", ticket_with(profile={}, lease={"seconds": 60}, release=9)),
        AgentAnswer("two answers", good + good),
        AgentAnswer("an answer without a line end", good[:-1]),
        AgentAnswer("an answer that wants one", ticket_with(profile={}, wants_answer="yes")),
    ]


def answers(seed: int, count: int) -> list[AgentAnswer]:
    """So many answers, the same for the same seed; the first ones are the kinds that were found to do harm."""
    chance = random.Random(seed)
    made = [profile(f"whole {n}", stated) for n, stated in enumerate(WHOLE)] + _protocol_faults()
    made += [profile(f"{key} {n}", {key: value}) for key in KEYS for n, value in enumerate(ABSURD)]
    first, rest = made[: len(WHOLE)], made[len(WHOLE) :]
    chance.shuffle(rest)
    made = first + rest
    while len(made) < count:
        made.append(_mutated(chance, len(made)))
    return made[:count]


def _mutated(chance: random.Random, number: int) -> AgentAnswer:
    """A good answer with bytes changed, or a profile of several random values."""
    if chance.random() < 0.5:
        content = bytearray(ticket_with(profile={"cpus": [0], "threads": 1}))
        for _ in range(chance.randint(1, 6)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        return AgentAnswer(f"changed bytes {number}", bytes(content))
    stated = {chance.choice([*KEYS, "link", "gpu"]): chance.choice(ABSURD) for _ in range(chance.randint(1, 5))}
    return AgentAnswer(f"profile of several {number}", ticket_with(profile=stated, extra=chance.choice(ABSURD)))


class HostileAgent:
    """Listens on a node's socket. Each connection is answered by a thread of its own, which ends with the agent."""

    def __init__(self, path: Path, answer: AgentAnswer) -> None:
        self._answer = answer
        self._over = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(16)
        self._listener.settimeout(WATCH_SECONDS)
        self._threads = [threading.Thread(target=self._accept, name="hostile-agent")]
        self._threads[0].start()

    def close(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            thread = threading.Thread(target=self._serve, args=(connection,), name="hostile-agent-connection")
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(WATCH_SECONDS)
            try:
                if self._answer != CLOSES_AT_ONCE:
                    connection.recv(4096)
                self._send(connection)
                while self._answer.waits and not self._over.is_set():
                    try:
                        if not connection.recv(4096):
                            return
                    except TimeoutError:
                        continue
            except OSError:  # the other side has had enough
                return

    def _send(self, connection: socket.socket) -> None:
        content = self._answer.content
        if self._answer.drips:
            for byte in content:
                connection.sendall(bytes([byte]))
                if self._over.wait(DRIP_SECONDS):
                    return
            return
        connection.sendall(content)
        while self._answer.endless and not self._over.is_set():
            connection.sendall(content)


@contextmanager
def hostile_agent(path: Path, answer: AgentAnswer) -> Iterator[None]:
    """An agent that ends with the block."""
    path.unlink(missing_ok=True)
    agent = HostileAgent(path, answer)
    try:
        yield
    finally:
        agent.close()
        path.unlink(missing_ok=True)
