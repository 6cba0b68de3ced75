"""An alert of the own machine changes nothing of what the provider receives: a site of real processes, with and without
one."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.unknown_fields import UnknownFieldSet

from evaluation.privacy.watching_provider import CONTENTS, ReceivedMessage, received
from pharoah_protocol.v1 import JoinRunRequest, ReportRequest
from pharoah_system.process_family import descendants
from tests.harness.jobs import Job
from tests.harness.site import Site, running_site
from tests.harness.until import wait_until

SCRIPT = "evaluation/scripts/train_workload.py"
SECONDS = 20
STOPPED_REPORTS = 8
"""A rank is stopped until so many reports have come and the alert is printed."""
MIN_SECONDS = 15
"""Seconds that both runs must have reported: they join two seconds after they began."""
ALERT = "pharoah CONFIRMED"


def rank_process(job: Job) -> int:
    """The process that trains: the last one that was started with the script."""
    found = []
    for pid in sorted(descendants(job.process.pid)):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        if any(word.endswith(Path(SCRIPT).name) for word in words):
            found.append(pid)
    return found[-1]


def reports(messages: list[ReceivedMessage]) -> list[ReportRequest]:
    return [ReportRequest.FromString(message.content) for message in messages if message.method == "Report"]


def messages_of_a_run(site: Site, log: Path, folder: Path, *, stopped: bool) -> list[ReceivedMessage]:
    """What the provider receives of one run, from the moment at which it joins."""
    before = len(received(log))

    def since() -> list[ReceivedMessage]:
        of_tenant = [message for message in received(log)[before:] if message.method != "Connect"]
        joined = [number for number, message in enumerate(of_tenant) if message.method == "JoinRun"]
        return of_tenant[joined[0] :] if joined else []

    folder.mkdir()
    durations = folder / "durations"
    words = [sys.executable, SCRIPT, "mlp", '{"width": 64, "batch": 16}', "--seconds", str(SECONDS)]
    job = Job(site, "n1", [*words, "--durations", str(durations)], folder, "--gate", "warn")
    wait_until(lambda: len(reports(since())) >= 3, "the first reports", 90)
    wait_until(durations.exists, "the first steps: reports come before them", 90)
    if stopped:
        rank, seen = rank_process(job), len(reports(since()))
        os.kill(rank, signal.SIGSTOP)
        try:
            wait_until(lambda: ALERT in job.output(), "the alert of a stopped rank", 60)
            wait_until(lambda: len(reports(since())) >= seen + STOPPED_REPORTS, "reports of a stopped rank", 60)
        finally:
            os.kill(rank, signal.SIGCONT)
    assert job.wait() == 0, job.output()
    assert job.output().count(ALERT) == stopped, job.output()
    wait_until(lambda: "EndRun" in {message.method for message in since()}, "the end of the run", 20)
    return since()


def seconds_alone(messages: list[ReceivedMessage]) -> dict[int, int]:
    """Number of a second to the bytes of the report that brought nothing else. A busy machine may send two together."""
    sizes = {}
    for message in messages:
        if message.method == "Report":
            request = ReportRequest.FromString(message.content)
            if len(request.step_levels) == 1:
                sizes[request.first_second] = len(message.content)
    return sizes


def own_bytes(message: ReceivedMessage) -> int:
    """Bytes of a message without the ticket of the agent, in which the digits of a time vary."""
    if message.method == "JoinRun":
        request = JoinRunRequest.FromString(message.content)
        request.ClearField("ticket")
        return request.ByteSize()
    return len(message.content)


def shape(messages: list[ReceivedMessage]) -> Any:
    """Calls besides reports, with their sizes. Each second is reported, and once, unless its report was on its way when
    the run ended: nobody knows then whether it has come, so it is sent again."""
    calls = Counter((message.method, own_bytes(message)) for message in messages if message.method != "Report")
    seconds = [
        request.first_second + number for request in reports(messages) for number in range(len(request.step_levels))
    ]
    known = sorted(set(seconds))
    assert known == list(range(len(known)))
    assert seconds[: len(known)] == known and len(seconds) - len(known) <= len(reports(messages)[-1].step_levels)
    return calls


@pytest.mark.timeout(300)
def test_a_local_alert_sends_nothing(tmp_path: Path) -> None:
    log = tmp_path / "messages"
    program = ("-m", "evaluation.privacy.watching_provider", str(log), CONTENTS)
    profiles = {"n1": {"cpus": [min(os.sched_getaffinity(0))], "threads": 1}}
    with running_site(tmp_path / "site", profiles, provider_program=program) as site:
        quiet = messages_of_a_run(site, log, tmp_path / "quiet", stopped=False)
        alarmed = messages_of_a_run(site, log, tmp_path / "alarmed", stopped=True)
    assert shape(alarmed) == shape(quiet)
    assert {method for method, _ in shape(quiet)} == {"JoinRun", "WatchAlerts", "EndRun"}
    left, right = seconds_alone(quiet), seconds_alone(alarmed)
    both = left.keys() & right.keys()
    assert len(both) >= MIN_SECONDS and all(left[second] == right[second] for second in both)
    for request in reports([*quiet, *alarmed]):
        assert not len(UnknownFieldSet(request)) and not request.dropped and not request.HasField("ticket")
