"""The agent's stream to the provider: telemetry and results up, orders down; reconnects for as long as it runs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any

import grpc
import grpc.aio

from pharoah_benchmarks.campaign.cell import Cell
from pharoah_benchmarks.micro import SLOW_SECONDS, Answer, MeasureOrder, Peer, device_count, is_on_gpu
from pharoah_protocol import __version__
from pharoah_protocol.agent_messages import ForecastAnswer, NodeStateAnswer
from pharoah_protocol.backoff import Backoff
from pharoah_protocol.channels import KEEPALIVE, Access, AccessError
from pharoah_protocol.hazard_model import MAX_MODEL_BYTES
from pharoah_protocol.incident_states import IncidentState
from pharoah_protocol.rpc import Stub
from pharoah_protocol.v1 import (
    AgentMessage,
    CellOrder,
    CellResult,
    HazardModel,
    Hello,
    LookResult,
    NodeState,
    ProbeOrder,
    ProbePeer,
    ProbeResult,
)
from pharoah_protocol.v1 import Telemetry as TelemetryMessage
from pharoah_protocol.vocabulary import NodeAction
from pharoah_provider.agent.cell_telemetry import CellTelemetry
from pharoah_provider.agent.child_processes import Child, ChildDied
from pharoah_provider.agent.environment_children import EnvironmentChildren
from pharoah_provider.agent.fork_servers import cell_answer
from pharoah_provider.agent.look import Look
from pharoah_provider.agent.own_thread import in_own_thread
from pharoah_provider.agent.sample_times import SampleTimes
from pharoah_provider.agent.shared_question import SharedQuestion
from pharoah_provider.agent.telemetry import Sample, Telemetry
from pharoah_provider.domain import NOT_IDLE, Node
from pharoah_provider.owned_tasks import OwnedTasks
from pharoah_provider.shielding import complete_despite_cancellation
from pharoah_system.local_sockets import SCHEME
from pharoah_system.peer_networks import FIRST_PEER_PORT, networks_towards
from pharoah_system.text import sanitize_text

log = logging.getLogger("pharoah.agent")

KEPT_BATCHES = 500
MAX_BATCH_BYTES = 48 << 10
"""A batch is full then. The provider takes messages of 64 KiB, and one device has ten signals of a hundred bytes."""
KEPT_RESULTS = 16
"""Results of cells that the provider has not released: it was away when they came. A result has at most 4 MB."""
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.5, 10.0
MIN_MEETING_TOKEN_CHARACTERS = 32
"""What the provider makes has 43 characters, of 256 bits."""


class AgentStream:
    """One node's connection. `run` returns only when it is cancelled or the provider refuses this agent."""

    def __init__(
        self,
        node: Node,
        access: Access,
        telemetry: Telemetry,
        probes: Child,
        fork_servers: EnvironmentChildren,
        look: Look,
        remote_folder: str = "",
        peer_networks: Sequence[str] = (),
    ) -> None:
        """`remote_folder`: where a micro-benchmark may write on remote storage; empty for none.

        `peer_networks`: where other nodes may be met; empty for the networks of the interface to the provider.
        """
        self._node, self._access, self._look, self._remote_folder = node, access, look, remote_folder
        self._peer_networks = tuple(peer_networks)
        self._telemetry, self._probes, self._fork_servers = telemetry, probes, fork_servers
        self._sampling = SharedQuestion(telemetry.sample)
        """A driver that hangs while the connection is made again and again holds one thread."""
        self._out: asyncio.Queue[AgentMessage | None] = asyncio.Queue()
        """What goes out on this connection; None ends it."""
        self._unacknowledged: deque[TelemetryMessage] = deque(maxlen=KEPT_BATCHES)
        self._batch = 0
        self._noted = ""
        """The notice of the newest acknowledgement."""
        self._backoff = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
        self._orders = OwnedTasks()
        """Work that the provider has ordered. Cells go on while the connection is made again."""
        self._by_id: dict[str, asyncio.Task[None]] = {}
        """The same work by the id of its order, so that it can be stopped."""
        self._of_connection: set[asyncio.Task[None]] = set()
        """Work whose result nobody takes when the connection has ended: all but cells."""
        self._kept: OrderedDict[str, AgentMessage] = OrderedDict()
        """Results of cells by the id of their order, until the provider has stored them."""
        self.node_state = NodeStateAnswer()
        """What the provider has sent of this node."""
        self.hazard_model = ForecastAnswer()
        """The newest hazard model of the provider, without features. Whoever uses it checks its signature."""

    def restate(self, node: Node) -> None:
        """The node has other facts: they are sent at once, on a new connection. Cells go on meanwhile."""
        self._node = node
        self._out.put_nowait(None)

    async def run(self) -> None:
        """Raises PermissionError when the provider refuses this agent."""
        endpoint = self._access.endpoint
        async with self._orders:
            while True:
                why = "the provider closed the stream"
                try:
                    await self._renew()
                    async with self._access.aio_channel(KEEPALIVE) as channel:
                        await self._connect(channel)
                except grpc.aio.AioRpcError as error:
                    if error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
                        why = sanitize_text(error.details() or error.code().name)
                        raise PermissionError(f"{endpoint}: {why}") from None
                    why = sanitize_text(error.details() or error.code().name, 120)
                except AccessError as error:
                    why = str(error)
                pause = self._backoff.next_pause()
                log.warning("no connection to %s: %s; the next attempt is in %.1f s", endpoint, why, pause)
                await asyncio.sleep(pause)

    async def _renew(self) -> None:
        """The next connection is made with our certificate, or our token, as its files are now."""
        try:
            # In a thread: the file system of a node may hang, and jobs still want tickets then.
            access = await in_own_thread(self._access.renew)
        except AccessError as error:
            log.error("what was read before stays in use: %s", error)
            return
        if access is not self._access:
            log.info("the certificate or the token of this agent has changed, and is used from now on")
        self._access = access

    async def _connect(self, channel: grpc.aio.Channel) -> None:
        self._out = out = asyncio.Queue[AgentMessage | None]()
        for batch in self._unacknowledged:
            out.put_nowait(AgentMessage(telemetry=batch))
        call = Stub(channel, "Agent").Connect(self._messages(out), metadata=self._access.metadata)
        if not _is_against(self.node_state):
            self.node_state = NodeStateAnswer()  # health may be over by now; an incident goes on until it is cleared
        try:
            async with OwnedTasks() as sampling:
                async for order in call:
                    match order.WhichOneof("content"):
                        case "welcome":
                            log.info("connected to %s as %s", self._access.endpoint, self._node.node)
                            self._backoff.reset()
                            self.hazard_model = ForecastAnswer()  # one that holds comes at once
                            if order.welcome.notice:
                                log.warning("the provider: %s", sanitize_text(order.welcome.notice))
                            sampling.start(self._sample(order.welcome.telemetry_period_seconds))
                        case "ack":
                            self._note(order.ack.notice)
                            while self._unacknowledged and self._unacknowledged[0].batch <= order.ack.batch:
                                self._unacknowledged.popleft()
                        case "node_state":
                            self.node_state = _node_state(order.node_state)
                        case "hazard_model":
                            self.hazard_model = _hazard_model(order.hazard_model)
                        case "stop":
                            self._stop(order.stop.order_id)
                        case "probe":
                            self._of_connection.add(self._start(order.probe.order_id, self._probe(order.probe)))
                        case "cell":
                            self._start(order.cell.order_id, self._cell(order.cell))
                        case "look":
                            look = self._answer_look(order.look.order_id)
                            self._of_connection.add(self._start(order.look.order_id, look))
        finally:
            for task in self._of_connection:
                task.cancel()
            self._of_connection.clear()
            out.put_nowait(None)  # gRPC reads from the queue in a task that it does not end with the call

    def _note(self, notice: str) -> None:
        """Log what the provider says to the people of this node; the same words once."""
        if notice and notice != self._noted:
            log.warning("the provider: %s", sanitize_text(notice))
        self._noted = notice

    async def _messages(self, out: asyncio.Queue[AgentMessage | None]) -> AsyncIterator[AgentMessage]:
        node = self._node
        yield AgentMessage(
            hello=Hello(
                node=node.node,
                ticket_key=node.ticket_key,
                boot_id=node.boot_id,
                server_facts=node.server_facts,
                device_facts=node.device_facts,
                cpus=node.cpus,
                version=__version__,
                host=node.host,
                peer_address=node.peer_address,
            )
        )
        while (message := await out.get()) is not None:
            yield message

    async def _sample(self, period_seconds: float) -> None:
        times = SampleTimes(period_seconds)
        while True:
            sampled_at = await times.next()
            if self._out.qsize() >= KEPT_BATCHES:  # the provider is connected, and takes nothing
                continue
            batches = self._batches(sampled_at, await self._sampling.answer())
            await times.leave()
            for batch in batches:
                self._unacknowledged.append(batch)
                await self._out.put(AgentMessage(telemetry=batch))

    def _batches(self, sampled_at: float, samples: Sequence[Sample]) -> list[TelemetryMessage]:
        """The samples of one moment: one batch, or several where the provider would not take one that is so long."""
        batches = [self._next_batch()]
        for sample in samples:
            if batches[-1].ByteSize() > MAX_BATCH_BYTES:
                batches.append(self._next_batch())
            for name, value in sample.values.items():
                batches[-1].sampled_at.append(sampled_at)
                batches[-1].metric.append(name)
                batches[-1].device.append(sample.device)
                batches[-1].value.append(value)
        return batches

    def _next_batch(self) -> TelemetryMessage:
        self._batch += 1
        return TelemetryMessage(batch=self._batch)

    def _start(self, order_id: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Orders run beside each other: a probe may be wanted while a cell trains. One that runs already, because the
        provider has sent it again after a restart, goes on."""
        if (going := self._by_id.get(order_id)) is not None:
            work.close()
            return going
        task = self._by_id[order_id] = self._orders.start(work)
        task.add_done_callback(lambda done: self._finish_order(order_id, done))
        return task

    def _stop(self, order_id: str) -> None:
        self._kept.pop(order_id, None)
        if (going := self._by_id.pop(order_id, None)) is not None:
            going.cancel()

    def _finish_order(self, order_id: str, task: asyncio.Task[None]) -> None:
        self._of_connection.discard(task)
        if self._by_id.get(order_id) is task:  # one that was stopped may have been ordered again
            del self._by_id[order_id]

    async def _answer_look(self, order_id: str) -> None:
        await self._out.put(AgentMessage(look=LookResult(order_id=order_id, idle=await self._look.idle())))

    async def _probe(self, order: ProbeOrder) -> None:
        if not await self._may_probe(order):
            await self._refuse(order)
            return
        failed = await self._start_to_measure(order.duty or 1.0)
        try:
            await self._answer_probe(order, failed)
        finally:
            if any(is_on_gpu(benchmark) for benchmark in order.benchmarks):
                # A process that has used a GPU keeps memory of it, which belongs to the next job.
                await complete_despite_cancellation(self._probes.stop())

    async def _answer_probe(self, order: ProbeOrder, failed: str) -> None:
        """The result of each micro-benchmark. `failed`: why none can be had, or an empty text."""
        for benchmark in order.benchmarks:
            began = time.time()
            answer = Answer(error=failed) if failed else await self._ask_probe(benchmark, order)
            await self._out.put(
                AgentMessage(
                    probe=ProbeResult(
                        order_id=order.order_id,
                        benchmark=benchmark,
                        seconds=answer.seconds,
                        beside_job=order.beside_job,
                        started_at=began,
                        ended_at=time.time(),
                        error=answer.error,
                        correct=answer.correct,
                        digest=answer.digest,
                    )
                )
            )

    async def _start_to_measure(self, duty: float) -> str:
        """Start the child that measures, at a share of the time; why it does not start, or an empty text."""
        try:
            await self._probes.warm(duty)
        except (ChildDied, TimeoutError, OSError) as error:
            return f"{type(error).__name__}: {error}"
        return ""

    async def _may_probe(self, order: ProbeOrder) -> bool:
        """Whether nobody is on the node whom the provider does not know."""
        if order.only_if_idle:
            return await self._look.idle()
        return not order.beside_job or await self._look.only_known_jobs()

    async def _refuse(self, order: ProbeOrder) -> None:
        """Somebody uses the node whom the provider does not know."""
        now = time.time()
        for benchmark in order.benchmarks:
            result = ProbeResult(
                order_id=order.order_id, benchmark=benchmark, started_at=now, ended_at=now, error=NOT_IDLE
            )
            await self._out.put(AgentMessage(probe=result))

    async def _ask_probe(self, benchmark: str, order: ProbeOrder) -> Answer:
        try:
            wanted = measure_order(benchmark, order, self._remote_folder, await self._networks(order))
            slow = SLOW_SECONDS * device_count(benchmark, self._node.server_facts)
            return Answer.from_json(await self._probes.ask(wanted.to_json(), wanted.longest_seconds + slow))
        except (ChildDied, TimeoutError, ValueError, OSError) as error:
            return Answer(error=f"{type(error).__name__}: {error}")

    async def _networks(self, order: ProbeOrder) -> tuple[str, ...]:
        """Where this node may meet others now."""
        if self._peer_networks or not order.HasField("peer"):
            return self._peer_networks
        host = _host_of(self._access.endpoint)
        return tuple(map(str, await in_own_thread(lambda: networks_towards(host)) if host else ()))

    async def _cell(self, order: CellOrder) -> None:
        if order.order_id in self._kept:
            await self._out.put(self._kept[order.order_id])
            return
        cell, seen = Cell.from_json(order.cell), CellTelemetry(self._telemetry.for_another_reader())
        async with OwnedTasks() as watching:
            if cell.degradation is not None:
                watching.start(seen.watch())
            answer = await cell_answer(self._fork_servers, cell)
        outcome = seen.add_to(cell, answer)
        result = AgentMessage(cell=CellResult(order_id=order.order_id, outcome=outcome))
        self._kept[order.order_id] = result
        while len(self._kept) > KEPT_RESULTS:
            self._kept.popitem(last=False)
        await self._out.put(result)


def measure_order(
    benchmark: str, order: ProbeOrder, remote_folder: str = "", networks: tuple[str, ...] = ()
) -> MeasureOrder:
    """The order for the child that measures. `networks`: where it may meet others; nowhere without any.

    Raises ValueError that names the field of the provider's order.
    """
    peer = None
    if order.HasField("peer"):
        if len(order.benchmarks) != 1:
            raise ValueError(f"peer: {len(order.benchmarks)} benchmarks share one rendezvous, expected one")
        peer = _peer(order.peer, networks)
    return MeasureOrder(
        benchmark=benchmark,
        repeats=order.repeats,
        limit_seconds=order.limit_seconds,
        duty=order.duty or 1.0,
        remote_folder=remote_folder,
        peer=peer,
    )


def _peer(peer: ProbePeer, networks: tuple[str, ...]) -> Peer:
    """A provider may send a node only to another node: to no file, to no port of a service, to no stranger."""
    found = Peer(peer.rank, peer.size, peer.rendezvous, peer.token, networks)
    if not found.has_port or int(found.rendezvous.rpartition(":")[2]) < FIRST_PEER_PORT:
        raise ValueError(f"peer.rendezvous: {peer.rendezvous!r:.80} has no port from {FIRST_PEER_PORT} on")
    if len(peer.token) < MIN_MEETING_TOKEN_CHARACTERS:
        raise ValueError(f"peer.token: {len(peer.token)} characters; is the provider of an older release?")
    return found


def _host_of(endpoint: str) -> str:
    """The host of the provider's `HOST:PORT`; empty for a Unix socket."""
    return "" if endpoint.startswith(SCHEME) else endpoint.rpartition(":")[0].rpartition("/")[2].strip("[]")


def _is_against(known: NodeStateAnswer) -> bool:
    """Whether what is known speaks against the node."""
    return known.action is not NodeAction.KEEP or (known.state is not None and known.state.is_open)


def _node_state(message: NodeState) -> NodeStateAnswer:
    """The message for the local socket."""
    state = IncidentState.from_any_code(message.state)
    return NodeStateAnswer(
        state=state,
        since=int(message.since),
        evidence=sanitize_text(message.evidence),
        action=_action(message.action),
        advice=sanitize_text(message.advice),
        enforced=message.enforced,
    )


def _hazard_model(message: HazardModel) -> ForecastAnswer:
    """The message for the local socket; none where it is larger than any model or no text."""
    if len(message.content) > MAX_MODEL_BYTES:
        return ForecastAnswer()
    try:
        return ForecastAnswer(model=message.content.decode(), signature=message.signature.hex())
    except UnicodeDecodeError:
        return ForecastAnswer()


def _action(code: int) -> NodeAction:
    """An action that this release does not know is none: it must not drain a node."""
    try:
        return NodeAction.from_code(code)
    except ValueError:
        log.warning("the provider sends an action of a newer release: %d", code)
        return NodeAction.KEEP
