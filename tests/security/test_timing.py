"""What times reveal: the work of a question, the times of its messages, and headers do not depend on the job."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from pharoah._settings import Settings
from pharoah.sidecar import exchange_answers, message_times, run_reporter, verdict_client
from pharoah.sidecar.agent_client import NodeAnswer
from pharoah.sidecar.check import JobCheck
from pharoah.sidecar.message_times import DECIDE_SECONDS, GRID_SECONDS, JOIN_SECONDS, MessageTimes
from pharoah.sidecar.payload import payload
from pharoah.sidecar.provider_connection import STATED_DEADLINE_SECONDS, ProviderConnection
from pharoah.sidecar.question import prepare
from pharoah.sidecar.request_headers import TOKEN_IN_WORDS, WITHOUT_DEADLINE, request_headers, user_agent
from pharoah.sidecar.run_reporter import MAX_DELAY_SECONDS, REPORT_OFFSET_SECONDS, REPORT_SECONDS, RunReporter
from pharoah_archetypes import Fingerprint, catalogue, sketch
from pharoah_protocol.pseudonyms import Pseudonym, period_at
from pharoah_protocol.received_profile import ReceivedProfile
from pharoah_protocol.rpc import Stub
from pharoah_protocol.tables.query import BATCH_ITEMS, NODE_RUNGS, QUESTION_ITEMS, blind, inputs_of
from pharoah_protocol.v1 import ReportRequest, ReportResponse
from pharoah_protocol.voprf import group, libsodium, pure_python
from pharoah_provider import exchange_server as provider_side
from pharoah_serving.errors import Exhausted
from tests.harness.exchange import KNOWN, RELEASE, on_loopback
from tests.harness.http2_headers import header_recorder
from tests.harness.loopback import Loopback, ticket
from tests.harness.until import until

GRAMMARS = sorted((entry.grammar for entry in catalogue().values()), key=len)
SMALL, LARGE = (replace(KNOWN, archetype=name * 16, grammar=grammar) for name, grammar in
                (("01", GRAMMARS[0]), ("fe", GRAMMARS[-1])))  # fmt: skip
JOBS: tuple[Fingerprint | None, ...] = (None, KNOWN, SMALL, LARGE)
UNUSABLE = replace(KNOWN, grammar="no grammar").to_json()


class CountingGroup:
    """libsodium's group, which counts what is asked of it."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        def counted(*arguments: Any) -> Any:
            self.counts[name] += 1
            return getattr(libsodium, name)(*arguments)

        return counted


@contextmanager
def counted_group() -> Iterator[Counter[str]]:
    counting = CountingGroup()
    with group.using(counting):
        yield counting.counts


def test_every_question_costs_the_same_products() -> None:
    """A question about a job or about none, with and without a pseudonym."""
    pseudonym = Pseudonym(period_at(time.time()), bytes(32))
    seen = []
    for job in JOBS:
        for name in (None, pseudonym):
            with counted_group() as counts:
                question = prepare(job, share_outcomes=True).with_pseudonym(name).on_node("n1")
                question.batch.outputs(question.batch.blinded)
            assert len(question.batch.blinded) == BATCH_ITEMS
            assert len(question.batch.inputs) == len(question.batch.scalars) == QUESTION_ITEMS
            seen.append(counts)
    assert seen[0]["multiply"] == 2 * QUESTION_ITEMS + 4 and all(counts == seen[0] for counts in seen)


def test_a_question_has_room_for_everything_that_a_job_may_ask() -> None:
    assert len(inputs_of(KNOWN, Pseudonym(1, bytes(32)))) == QUESTION_ITEMS - len(NODE_RUNGS)
    with pytest.raises(ValueError, match="a question has"):
        blind(inputs_of(KNOWN) * 2)


class ClockInHand:
    """A clock that moves when something sleeps on it, or when it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    def times(self) -> MessageTimes:
        return MessageTimes(lambda: self.now, self.sleep)


def sent_at(work_seconds: Sequence[float], grid_seconds: float) -> list[float]:
    """When messages leave, each after so much work, counted from the answer before it."""

    async def inside() -> list[float]:
        clock = ClockInHand()
        times, found = clock.times(), []
        for seconds in work_seconds:
            times.note_answer()
            answered = clock.now
            clock.now += seconds
            await times.turn(grid_seconds)
            found.append(round(clock.now - answered, 9))
        return found

    return asyncio.run(inside())


def test_a_message_leaves_at_the_same_time_whatever_its_preparation_took() -> None:
    for grid in (GRID_SECONDS, DECIDE_SECONDS, JOIN_SECONDS):
        assert sent_at([0.0, 0.01 * grid, 0.5 * grid, 0.99 * grid], grid) == [round(grid, 9)] * 4


def test_a_late_message_waits_for_the_next_multiple_of_the_grid() -> None:
    assert sent_at([1.2, 1.9, 2.5], 1.0) == [2.0, 2.0, 3.0]


def test_the_grid_depends_on_the_group_alone() -> None:
    assert message_times.grid_seconds() == GRID_SECONDS
    with group.using(pure_python):
        assert message_times.grid_seconds() == message_times.SLOW_GRID_SECONDS


Work = Callable[[Loopback, "WatchedJob"], Awaitable[None]]


class WatchedJob:
    """A job's check with everything that the provider's side sees of it, and what was computed before each message."""

    def __init__(self, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
        self.messages: list[str] = []
        self.waits: list[float] = []
        """The grid on which each message waited for its time."""
        self.openings = self.sketches_after_the_first_message = 0
        self.check = JobCheck(bytes(16), settings, lambda _: None)
        honest_open, honest_call = exchange_answers.open_row, ProviderConnection.call
        honest_minima, honest_turn = sketch._minima, MessageTimes.turn

        def opening(*arguments: Any) -> Any:
            self.openings += 1
            return honest_open(*arguments)

        def sketching(*arguments: Any) -> Any:
            self.sketches_after_the_first_message += bool(self.messages)
            return honest_minima(*arguments)

        async def calling(connection: ProviderConnection, method: Any, request: Any) -> Any:
            self.messages.append(type(request).__name__)
            return await honest_call(connection, method, request)

        async def waiting(times: MessageTimes, every_seconds: float = 0.0) -> None:
            self.waits.append(every_seconds)
            await honest_turn(times, every_seconds)

        async def node(*_: Any) -> NodeAnswer:
            self.messages.append("TicketRequest")
            return NodeAnswer(ticket(), ReceivedProfile())

        monkeypatch.setattr(exchange_answers, "open_row", opening)
        monkeypatch.setattr(sketch, "_minima", sketching)
        monkeypatch.setattr(ProviderConnection, "call", calling)
        monkeypatch.setattr(MessageTimes, "turn", waiting)
        monkeypatch.setattr(verdict_client, "ask_node", node)

    async def asked_and_launched(self, fingerprint: str) -> None:
        await self.check.ask(fingerprint)
        self.check.launch(self.check.client.join_time())
        await self.check.end()
        await self.check.close()


def watched(folder: Path, fingerprint: str, patch: Callable[[pytest.MonkeyPatch], None] | None = None) -> WatchedJob:
    """A job that was asked about and launched beside a real provider."""
    folder.mkdir()
    found: list[WatchedJob] = []

    async def inside(site: Loopback) -> None:
        with pytest.MonkeyPatch.context() as monkeypatch:
            if patch:
                patch(monkeypatch)
            job = WatchedJob(site.settings(), monkeypatch)
            await job.asked_and_launched(fingerprint)
            found.append(job)

    on_loopback(folder, inside, RELEASE)
    return found[0]


def test_nothing_after_the_first_message_depends_on_the_job(tmp_path: Path) -> None:
    """A known job, an unknown large one, and one whose fingerprint cannot be used: a question about nothing."""
    jobs = [
        watched(tmp_path / name, fingerprint)
        for name, fingerprint in (("known", KNOWN.to_json()), ("large", LARGE.to_json()), ("unusable", UNUSABLE))
    ]
    for job in jobs:
        assert job.messages == jobs[0].messages and job.waits == jobs[0].waits
        assert job.openings == 2 * QUESTION_ITEMS
        assert job.sketches_after_the_first_message == 0
    assert jobs[0].messages[0] == "TicketRequest" and jobs[0].messages[-1] == "DecideRequest"
    assert jobs[0].waits[-1] == DECIDE_SECONDS
    assert jobs[2].check.verdict.status == "unknown" and "skeleton" in jobs[2].check.verdict.reason


def refused_question(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refusing(*_: Any) -> Any:
        raise Exhausted("no more questions today")

    monkeypatch.setattr(provider_side.ExchangeServer, "evaluate", refusing)


def wrong_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = provider_side.protocol.evaluate

    def proven(*arguments: Any) -> Any:
        return honest(*arguments)._replace(proof=bytes(64))

    monkeypatch.setattr(provider_side.protocol, "evaluate", proven)


@pytest.mark.parametrize("patch", [refused_question, wrong_proof])
def test_a_question_that_fails_is_followed_by_the_same_messages_at_the_same_times(
    tmp_path: Path, patch: Callable[[pytest.MonkeyPatch], None]
) -> None:
    good, failed = watched(tmp_path / "good", KNOWN.to_json()), watched(tmp_path / "failed", KNOWN.to_json(), patch)
    assert good.check.verdict.status == "incompatible" and failed.check.verdict.status == "unknown"
    assert failed.messages == good.messages and failed.waits == good.waits


def test_a_run_joins_at_a_round_time_after_a_call_that_failed() -> None:
    clock = ClockInHand()
    times = clock.times()
    times.note_answer()  # the call that failed
    clock.now += 0.041  # what was made of it
    assert times.next_time(JOIN_SECONDS) == 1000.0 + JOIN_SECONDS
    assert times.next_time(DECIDE_SECONDS) == 1000.0 + DECIDE_SECONDS


def test_a_late_question_is_ready_before_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is prepared at a fixed time before, and the step that was captured meanwhile waits for the next round."""
    prepared: list[float] = []
    asked: list[float] = []
    steps: list[str] = []

    async def inside(site: Loopback) -> None:
        settings = site.settings(late_ask_seconds=0.4)
        check = JobCheck(bytes(16), settings, lambda _: None)
        honest = check.client.prepare

        async def node(*_: Any) -> NodeAnswer:
            asked.append(time.monotonic())
            steps.append("asked")
            return NodeAnswer(ticket(), {})

        def preparing(fingerprint: Fingerprint | str | None) -> Any:
            prepared.append(time.monotonic())
            steps.append("prepared")
            return honest(fingerprint)

        monkeypatch.setattr(verdict_client, "ask_node", node)
        monkeypatch.setattr(check.client, "prepare", preparing)
        await check.ask("", "no dry run")
        joined = time.monotonic()
        check.launch(joined)
        check.capture(0, KNOWN, frozenset())
        await until(lambda: check.verdict.status == "incompatible", "the late verdict", 30)
        await check.end()
        await check.close()
        assert steps == ["asked", "prepared", "asked"], "the ticket of the launch, then the late question"
        assert prepared[0] >= joined + 0.2 and asked[1] >= joined + 0.4

    on_loopback(tmp_path, inside, RELEASE)


def test_times_in_reports_are_round_and_show_no_delay_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[ReportRequest] = []

    async def call(_: Any, request: ReportRequest) -> ReportResponse:
        sent.append(request)
        return ReportResponse()

    async def inside() -> None:
        monkeypatch.setattr(run_reporter, "Stub", lambda *_: SimpleNamespace(Report=None))
        provider = SimpleNamespace(channel=None, call=call)
        reporter = RunReporter(provider, bytes(16), b"", Settings(), print)  # type: ignore[arg-type]
        tick = asyncio.create_task(reporter._tick(0.05))
        await until(lambda: len(reporter._seconds) >= 6, "six seconds")
        tick.cancel()
        ended = [second[1] for second in reporter._seconds]
        gaps = [round(later - earlier, 6) for earlier, later in pairwise(ended)]
        assert gaps == [0.05] * len(gaps), "counted, not measured"
        await reporter._send()
        assert sent[0].first_ended_at == round(sent[0].first_ended_at, 1)

    asyncio.run(inside())


def test_a_report_leaves_at_the_same_fraction_of_each_second_and_after_a_random_delay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long the call before took; two reports never leave in one second."""
    now, delay = [1000.0], [0.0]
    monkeypatch.setattr(run_reporter, "random_delay", lambda longest: delay[0] * longest)
    monkeypatch.setattr(run_reporter, "Stub", lambda *_: None)
    monkeypatch.setattr(run_reporter, "time", SimpleNamespace(monotonic=lambda: now[0]))
    provider = SimpleNamespace(channel=None)
    reporter = RunReporter(provider, bytes(16), b"", Settings(), print)  # type: ignore[arg-type]
    for answered_at in (1000.0, 1000.004, 1000.2, 1003.3, 1003.76):
        for delay[0] in (0.0, 0.5, 1.0):
            now[0] = answered_at
            left_at = answered_at + reporter._until_report()
            late = left_at % REPORT_SECONDS - REPORT_OFFSET_SECONDS
            assert late == pytest.approx(delay[0] * MAX_DELAY_SECONDS)
            now[0] = left_at + 0.001
            following = now[0] + reporter._until_report()
            assert following - following % REPORT_SECONDS == left_at - left_at % REPORT_SECONDS + REPORT_SECONDS


def headers_in_words(headers: dict[str, str], token: str) -> dict[str, str]:
    return {name: value.replace(f"Bearer {token}", TOKEN_IN_WORDS) for name, value in headers.items()}


def test_the_headers_that_are_listed_are_those_that_are_sent(tmp_path: Path) -> None:
    """Every call of a run, as it leaves: seen at a server that decodes the bytes."""

    async def inside() -> None:
        (tmp_path / "token").write_text("t" * 32)
        (tmp_path / "token").chmod(0o600)
        (tmp_path / "provider.pub").write_text("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
        async with header_recorder() as recorder:
            settings = Settings(
                endpoint=recorder.endpoint,
                token_file=str(tmp_path / "token"),
                provider_key_file=str(tmp_path / "provider.pub"),
                auditor_endpoint=recorder.endpoint,
                auditor_key_file=str(tmp_path / "provider.pub"),
                auditor_token_file=str(tmp_path / "token"),
                share_outcomes=True,
                timeout_seconds=3.7,
                keep_runs=0,
            )
            agent = await user_agent()
            provider = ProviderConnection(settings)
            listed = {}
            for outgoing in payload(KNOWN, settings):
                service, _, method = outgoing.call.partition("/")
                listed[outgoing.call] = request_headers(outgoing.call, settings, agent)
                call = streamed(getattr(Stub(provider.channel, service), method))
                with pytest.raises(grpc.aio.AioRpcError):
                    if outgoing.call in WITHOUT_DEADLINE:
                        await call(outgoing.message, metadata=provider.metadata)
                    else:
                        await provider.call(call, outgoing.message)
            await provider.channel.close(None)
            sent = {
                headers[":path"].removeprefix("/pharoah.v1."): headers_in_words(headers, "t" * 32)
                for headers in recorder.calls
            }
            assert sent == listed
            assert listed["Exchange/GetEpoch"]["grpc-timeout"] == f"{STATED_DEADLINE_SECONDS / 60:g}M", (
                "not the user's 3.7 s"
            )

    asyncio.run(inside())


def streamed(method: Any) -> Any:
    """A callable that can be awaited, also of a method that answers with a stream."""

    async def call(request: Any, **options: Any) -> Any:
        made = method(request, **options)
        return [part async for part in made] if hasattr(made, "__aiter__") else await made

    return call
