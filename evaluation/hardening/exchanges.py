"""Every exchange that the product begins, with peers that are slow, endless or wrong: how long it holds its caller.

The peers are real services on loopback (`tests/harness/hostile_peers`). Each exchange is the product's own call with
its own deadline, and not the client below it. Beside them, a peer that answers well is the control.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from evaluation.figures import Figures
from pharoah.sidecar.alert_webhook import AlertWebhook
from pharoah_benchmarks.micro import Peer
from pharoah_benchmarks.micro_kernels.meeting import meet
from pharoah_benchmarks.micro_kernels.together import PARTNER_SECONDS
from pharoah_protocol import alertmanager
from pharoah_protocol.alertmanager import CALL_SECONDS, AlertSender, OutsideAlert
from pharoah_protocol.log.checkpoint import WITNESS, Checkpoint, Verifier, sign
from pharoah_provider.agent.exporter_source import ANSWER_SECONDS, ExporterAddress, ExporterSource
from pharoah_provider.agent.signals._device_fields import DeviceField
from pharoah_provider.agent.signals._signal import NotOnThisNode
from pharoah_provider.monitoring.operator_webhook import OperatorWebhook
from pharoah_provider.transparency_log import WitnessError
from pharoah_provider.witnesses import TIMEOUT_SECONDS, read_witnesses
from tests.harness.hostile_peers import HOSTILE_PEERS, Served, full_port, hostile_peer
from tests.harness.site import free_port

ALLOWED_SECONDS = 0.3
"""What a process may need besides waiting: to start a thread, and to be given a processor."""
MAX_OVERRUN = 1.1
_CONTROL = "answers"
QUICK_PEERS = ("is silent", "drips the status", "drips the body", "continues for ever", "drips a handshake")
AT_ONCE = 4
"""Exchanges at the same time. Most of them wait, but peers that send as fast as they can take a core each."""
LARGE_BODY = bytes(16_000_000)
"""More than the buffers of both ends take, so that a peer that does not read holds the sender."""
NEXT_SECONDS = 2 * CALL_SECONDS + 5.0
"""When the next alert must have come: after the deadline of the first call, and the pause of the sender."""
_TOKEN = "t" * 43
_ALERT = OutsideAlert(key="first", labels={"alertname": "Pharoah"}, annotations={"summary": "slow"}, began_at=1e9)


@dataclass(frozen=True)
class Exchange:
    """One exchange of the product: what it does with a port, and within which time."""

    name: str
    call: Callable[[int], object]
    deadline_seconds: float


@dataclass(frozen=True)
class Case:
    exchange: Exchange
    peer: str
    seconds: float
    outcome: str

    @property
    def overrun(self) -> float:
        """The time taken, less what is allowed besides, over the deadline."""
        return max(self.seconds - ALLOWED_SECONDS, 0.0) / self.exchange.deadline_seconds


def measure(figures: Figures, quick: bool, seed: int) -> None:
    """Add the figures of this part."""
    logging.getLogger("pharoah").setLevel(logging.CRITICAL)
    chosen = {name: HOSTILE_PEERS[name] for name in (QUICK_PEERS if quick else HOSTILE_PEERS)}
    with (
        _peers_in_a_process({**chosen, _CONTROL: _answers}) as ports,
        TemporaryDirectory() as folder,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        exchanges = list(_exchanges(Path(folder)))
        pairs = [(one, peer) for one in [*exchanges, _LARGE] for peer in chosen]
        random.Random(seed).shuffle(pairs)
        cases = list(pool.map(lambda pair: _timed(pair[0], pair[1], ports[pair[1]]), pairs))
        with full_port() as port:
            cases += pool.map(lambda one: _timed(one, "never accepts", port), exchanges)
        control = _timed(exchanges[0], _CONTROL, ports[_CONTROL])
        sent = list(pool.map(_next_is_sent, [(name, peer) for name in _SENDERS for peer in chosen.items()]))
    _report(figures, cases, sent)
    took = control.outcome == "no error"
    figures.add("exchanges_control_taken", took, "True", took)


def _answers(served: Served) -> None:
    """The control: a receiver as it should be."""
    served.read_all()
    _accept_call(served)


def _accept_call(served: Served) -> None:
    served.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


def _report(figures: Figures, cases: list[Case], sent: list[str]) -> None:
    worst = max(cases, key=lambda case: case.overrun)
    holds = worst.overrun <= MAX_OVERRUN
    figures.add("deadline_overrun_ratio", worst.overrun, f"<= {MAX_OVERRUN}", holds, f"n={len(cases)}")
    figures.ratio("next_alert_sent_ratio", sum(not problem for problem in sent), len(sent), 1.0)
    figures.add("exchanges_peers", len({case.peer for case in cases}))
    figures.details["exchanges"] = [f"{case.exchange.name}; {case.peer}; {case.seconds:.2f} s; {case.outcome}"
                                    for case in cases] + [problem for problem in sent if problem]  # fmt: skip
    rows = []
    for name in dict.fromkeys(case.exchange.name for case in cases):
        own = [case for case in cases if case.exchange.name == name]
        longest = max(own, key=lambda case: case.seconds)
        rows.append([name, f"{longest.exchange.deadline_seconds:g}", f"{longest.seconds:.2f}", longest.peer])
    figures.table("The longest time of each exchange over all peers.",
                  ["exchange", "deadline, s", "longest, s", "with a peer that"], rows)  # fmt: skip


@contextmanager
def _peers_in_a_process(peers: Mapping[str, Callable[[Served], None]]) -> Iterator[Mapping[str, int]]:
    """Their ports. In a process of its own: threads that send without an end would hold the interpreter of those whose
    time is measured."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve_peers, args=(peers, theirs), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.kill()
        process.join()


def _serve_peers(peers: Mapping[str, Callable[[Served], None]], ports: Connection) -> None:
    with ExitStack() as owned:
        ports.send({name: owned.enter_context(hostile_peer(behaviour)) for name, behaviour in peers.items()})
        threading.Event().wait()


def _timed(exchange: Exchange, peer: str, port: int) -> Case:
    began = time.monotonic()
    try:
        exchange.call(port)
        outcome = "no error"
    except (OSError, ValueError, WitnessError, NotOnThisNode) as error:
        outcome = f"{type(error).__name__}: {error}"
    return Case(exchange, peer, time.monotonic() - began, outcome)


def _exchanges(folder: Path) -> Iterator[Exchange]:
    body = b"[]"
    yield Exchange("alerts", lambda port: alertmanager._call(f"http://127.0.0.1:{port}/", body), CALL_SECONDS)
    yield Exchange("alerts, TLS", lambda port: alertmanager._call(f"https://127.0.0.1:{port}/", body), CALL_SECONDS)
    yield Exchange("exporter", _read_exporter, ANSWER_SECONDS)
    yield Exchange("witness", partial(_ask_witness, folder), TIMEOUT_SECONDS)
    yield Exchange("meeting, the other rank", _join, PARTNER_SECONDS)
    yield Exchange("meeting, rank 0", _host, PARTNER_SECONDS)


_LARGE = Exchange(
    "alerts, 16 MB", lambda port: alertmanager._call(f"http://127.0.0.1:{port}/", LARGE_BODY), CALL_SECONDS
)


def _read_exporter(port: int) -> object:
    address = ExporterAddress.from_text(f"http://127.0.0.1:{port}/metrics")
    return ExporterSource(address.fetch, address.url).read(DeviceField.TEMPERATURE_CELSIUS)


def _ask_witness(folder: Path, port: int) -> object:
    key = Ed25519PrivateKey.from_private_bytes(b"w" * 32)
    file = folder / f"witness-{port}-{threading.get_ident()}"
    file.write_text(f"{Verifier('witness.example', WITNESS, key.public_key().public_bytes_raw())} "
                    f"http://127.0.0.1:{port}\n")  # fmt: skip
    (witness,) = read_witnesses(file)
    return witness.ask(0, [], sign(Checkpoint("log", 1, bytes(32)), key))


def _join(port: int) -> object:
    return meet(Peer(1, 2, f"127.0.0.1:{port}", _TOKEN, ("127.0.0.0/8",)), PARTNER_SECONDS, lambda: 0)


def _host(port: int) -> object:
    """Rank 0, to which a stranger connects that repeats what the hostile service at `port` sends."""
    place = free_port()
    threading.Thread(target=_relay, args=(place, port), daemon=True).start()
    return meet(Peer(0, 2, f"127.0.0.1:{place}", _TOKEN, ("127.0.0.0/8",)), PARTNER_SECONDS, lambda: 0)


def _relay(place: int, port: int) -> None:
    until = time.monotonic() + PARTNER_SECONDS
    while time.monotonic() < until:
        with suppress(OSError), ExitStack() as owned:
            meeting, peer = (
                owned.enter_context(socket.create_connection(("127.0.0.1", end), 1.0)) for end in (place, port)
            )
            peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while content := peer.recv(4096):
                meeting.sendall(content)
        time.sleep(0.05)


# the next alert


class _OnceHostile:
    """A receiver that treats its first connection badly and answers all later ones."""

    def __init__(self, behaviour: Callable[[Served], None]) -> None:
        self._behaviour, self._first, self._lock = behaviour, True, threading.Lock()
        self.bodies: list[bytes] = []

    def __call__(self, served: Served) -> None:
        with self._lock:
            first, self._first = self._first, False
        if first:
            self._behaviour(served)
        else:
            self.bodies.append(served.read_all())
            _accept_call(served)


def _of_sidecar(url: str) -> Any:
    return AlertWebhook(url, b"r" * 16)._sender


def _of_provider(url: str) -> Any:
    return OperatorWebhook(url)._sender


_SENDERS: Mapping[str, Callable[[str], AlertSender]] = {"sidecar": _of_sidecar, "provider": _of_provider}


def _next_is_sent(case: tuple[str, tuple[str, Callable[[Served], None]]]) -> str:
    """Empty when the alert that follows a hostile call has come; else what has not."""
    sender_name, (peer, behaviour) = case
    receiver = _OnceHostile(behaviour)

    async def send(port: int) -> bool:
        sender = _SENDERS[sender_name](f"http://127.0.0.1:{port}/")
        sender.send(_ALERT)
        await asyncio.sleep(0.5)
        sender.send(replace(_ALERT, key="next", labels={"alertname": "Next"}))
        try:
            async with asyncio.timeout(NEXT_SECONDS):
                while not any(b"Next" in body for body in receiver.bodies):
                    await asyncio.sleep(0.1)
        except TimeoutError:
            return False
        finally:
            await sender.close(0.1)
        return True

    with hostile_peer(receiver) as port:
        came = asyncio.run(send(port))
    return "" if came else f"{sender_name}: no next alert after a receiver that {peer}"
