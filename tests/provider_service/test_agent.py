from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah._errors import UnknownReason
from pharoah.sidecar.agent_client import ask_forecast, ask_node, ask_signals
from pharoah_archetypes import Fingerprint
from pharoah_benchmarks.campaign.cell import Cell, Degradation, DryCell
from pharoah_benchmarks.environments import BuildError
from pharoah_protocol.agent_messages import ForecastAnswer, NodeStateAnswer
from pharoah_protocol.incident_states import CONFIRMED, QUIET
from pharoah_protocol.node_profile import (
    NO_LIMITS,
    InstructionSet,
    NodeProfile,
    ProfileError,
    check_profile,
    command_under,
    environment,
)
from pharoah_protocol.node_ticket import Ticket
from pharoah_protocol.received_profile import ReceivedProfile
from pharoah_protocol.vocabulary import NodeAction
from pharoah_provider.agent import cli, environment_children
from pharoah_provider.agent.child_processes import Child, ChildDied, read_json
from pharoah_provider.agent.environment_children import EnvironmentChildren
from pharoah_provider.agent.job_signals import MIN_MINUTES, JobSignals
from pharoah_provider.agent.known_jobs import KnownJobs
from pharoah_provider.agent.local_socket import load_key, ticket_socket
from pharoah_provider.agent.signal_buffer import SignalBuffer
from pharoah_provider.agent.signals import (
    AGENT_SIGNALS,
    AgentSignal,
    Reading,
    SignalKind,
    _nvml,
)
from pharoah_provider.agent.telemetry import Telemetry
from tests.harness.agent_signals import signal_of
from tests.harness.until import until

MAY_LEAVE = {
    "gpu_hardware_errors",
    "gpu_power_brake",
    "gpu_rows_not_remapped",
    "gpu_rows_to_remap",
    "gpu_thermal_slowdown",
    "gpu_throttled",
    "gpu_uncorrected_errors",
    "memory_stalled",
    "memory_uncorrected_errors",
    "network_link_down",
}
"""What the provider hears of any node (ADR 45). A signal is added here only when it follows trouble of the hardware and
not what runs."""


def test_telemetry_reports_trouble_never_use_and_no_amounts() -> None:
    leaving = {signal.name for signal in AGENT_SIGNALS if signal.leaves_node}
    assert leaving == MAY_LEAVE
    samples = Telemetry(clock=lambda: 123.0).sample()
    assert {name for sample in samples for name in sample.values} <= leaving
    assert any("memory_stalled" in s.values for s in samples) == Path("/proc/pressure/memory").exists()
    for sample in samples:
        assert sample.sampled_at == 123.0 and set(sample.values.values()) <= {0.0, 1.0}, sample


def test_a_signal_that_cannot_be_read_or_stays_on_the_node_is_absent() -> None:
    def fails() -> list[Reading]:
        raise RuntimeError("the driver does not answer")

    def signal(name: str, leaves_node: bool, read: Callable[[], list[Reading]]) -> AgentSignal:
        return signal_of(name=name, leaves_node=leaves_node, read=read)

    signals = [
        signal("broken", True, fails),
        signal("kept", False, lambda: [Reading(1.0)]),
        signal("hot", True, lambda: [Reading(0.0, "gpu0"), Reading(1.0, "gpu1")]),
    ]
    gpu0, gpu1 = Telemetry(lambda: 5.0, signals).sample()
    assert (gpu0.device, gpu0.values) == ("gpu0", {"hot": 0.0})
    assert (gpu1.device, gpu1.values) == ("gpu1", {"hot": 1.0})


@pytest.mark.parametrize("computes", [True, False])
def test_a_job_sees_signals_of_the_node_and_of_the_devices_that_it_computes_on(tmp_path: Path, computes: bool) -> None:
    """This process asks; it computes on gpu1, or on no device at all, and somebody else on gpu0. Links are for all."""
    signals = [
        signal_of(name="hot", read=lambda: [Reading(1.0, "gpu0"), Reading(1.0, "gpu1")]),
        signal_of(name="load", unit="ratio", read=lambda: [Reading(0.5)]),
        signal_of(name="down", read=lambda: [Reading(1.0, "eth0")]),
    ]
    users = {"gpu0": {1}, "gpu1": {os.getpid()} if computes else set()}
    buffer = SignalBuffer(Telemetry(signals=signals))
    buffer.sample()
    shown = JobSignals(buffer, KnownJobs(), signals={one.name: one for one in signals}, users=lambda: users)

    async def inside() -> None:
        path, key = tmp_path / "agent.sock", Ed25519PrivateKey.generate()
        async with ticket_socket(path, "n1", "boot", key, NO_LIMITS, NodeStateAnswer, signals=shown.answer):
            seen = await ask_signals(str(path), 5.0)
            assert {(one.name, one.device, one.value) for one in seen if not one.trouble} == {("load", "", 0.5)}
            assert {one.device for one in seen if one.trouble} == {"eth0", *(["gpu1"] if computes else [])}
        assert await ask_signals(str(path), 5.0) == ()

    asyncio.run(inside())


def test_a_job_gets_the_hazard_model_and_features_of_its_own_devices(tmp_path: Path) -> None:
    """Somebody else computes on gpu0. Features are those of trouble that leaves every node."""
    now = [6000.0]
    signals = [
        signal_of(name="hot", leaves_node=True, read=lambda: [Reading(1.0, "gpu0"), Reading(0.5, "gpu1")]),
        signal_of(name="kept", read=lambda: [Reading(1.0)]),
    ]
    buffer = SignalBuffer(Telemetry(lambda: now[0], signals), clock=lambda: now[0])

    def minutes_pass(count: int) -> None:
        for _ in range(count):
            buffer.sample()
            now[0] += 60.0

    minutes_pass(MIN_MINUTES)
    users = {"gpu0": {1}, "gpu1": {os.getpid()}}
    shown = JobSignals(buffer, KnownJobs(), signals={one.name: one for one in signals}, users=lambda: users)

    async def inside() -> None:
        path, key = tmp_path / "agent.sock", Ed25519PrivateKey.generate()

        async def forecast(asker: socket.socket) -> ForecastAnswer:
            return ForecastAnswer("model", "ab", await shown.features(asker))

        async with ticket_socket(path, "n1", "boot", key, NO_LIMITS, NodeStateAnswer, forecast=forecast):
            early = await ask_forecast(str(path), 5.0)
            assert early == ForecastAnswer("model", "ab"), "an agent that has just begun knows no share of an hour"
            minutes_pass(1)
            answer = await ask_forecast(str(path), 5.0)
            assert (answer.model, answer.signature) == ("model", "ab")
            assert answer.features == {"hot.level": 0.5, "hot.slope": 0.0, "hot.excess": 0.0, "hot.outlook": 0.5}
        assert await ask_forecast(str(path), 5.0) == ForecastAnswer()

    asyncio.run(inside())


def test_an_amount_cannot_be_a_signal_that_leaves_the_node() -> None:
    with pytest.raises(ValueError, match="leaves the node"):
        signal_of(name="load", unit="ratio", leaves_node=True)
    with pytest.raises(ValueError, match="leaves the node"):
        signal_of(name="load", kind=SignalKind.COUNTER, leaves_node=True)
    with pytest.raises(ValueError, match="name"):
        signal_of(name="Load!")


@pytest.mark.parametrize(("errors", "trouble"), [(0, 0.0), (1, 1.0), (7, 1.0)])
def test_a_count_of_errors_becomes_trouble_or_none(
    monkeypatch: pytest.MonkeyPatch, errors: int, trouble: float
) -> None:
    gpu = SimpleNamespace(
        NVMLError=RuntimeError,
        NVML_MEMORY_ERROR_TYPE_UNCORRECTED=1,
        NVML_VOLATILE_ECC=0,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetTotalEccErrors=lambda gpu, kind, counter: errors,
    )
    monkeypatch.setattr(_nvml, "_nvml", lambda: gpu)
    assert list(AGENT_SIGNALS["gpu_uncorrected_errors"].read()) == [Reading(trouble, "gpu0")]


def test_a_ticket_comes_over_the_socket_with_the_profile(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    path = tmp_path / "run" / "agent.sock"

    async def inside() -> None:
        async with ticket_socket(path, "n1", "boot", key, NodeProfile(threads=2), NodeStateAnswer):
            first, second = [await ask_node(str(path), 2.0) for _ in range(2)]
        assert first.received == second.received == ReceivedProfile(NodeProfile(threads=2))
        tickets = [Ticket.verify(a.ticket.body, a.ticket.signature, key.public_key(), 0) for a in (first, second)]
        assert tickets[0].nonce != tickets[1].nonce
        with pytest.raises(UnknownReason, match="no agent answers"):
            await ask_node(str(path), 1.0)

    asyncio.run(inside())


def test_junk_on_the_socket_does_not_stop_the_next_ticket(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"

    async def inside() -> None:
        async with ticket_socket(path, "n1", "boot", Ed25519PrivateKey.generate(), NO_LIMITS, NodeStateAnswer):
            for junk in (b"\n", b"[]\n", b"x" * 100_000, b""):
                _, writer = await asyncio.open_unix_connection(str(path))
                writer.write(junk)
                writer.close()
            assert (await ask_node(str(path), 2.0)).received == ReceivedProfile()

    asyncio.run(inside())


def test_a_node_keeps_its_ticket_key(tmp_path: Path) -> None:
    path = tmp_path / "lib" / "ticket.key"
    assert load_key(path).private_bytes_raw() == load_key(path).private_bytes_raw()
    assert path.stat().st_mode & 0o077 == 0


def test_a_probe_child_measures_and_a_dead_one_is_an_error(tmp_path: Path) -> None:
    async def inside() -> None:
        async with Child("pharoah_benchmarks.micro", NodeProfile(threads=1)) as child:
            order = json.dumps({"benchmark": "gemm", "repeats": 3, "limit_seconds": 5})
            answer = json.loads(await child.ask(order, 60))
            assert answer["error"] == "" and len(answer["seconds"]) == 3 and min(answer["seconds"]) > 0
            unknown = json.dumps({"benchmark": "disk", "repeats": 3, "limit_seconds": 5})
            assert (
                "'disk' is not one of: all_gather, all_gather_cuda, "
                in json.loads(await child.ask(unknown, 60))["error"]
            )
        async with Child("pharoah_benchmarks.no_such_module", NO_LIMITS) as broken:
            with pytest.raises(ChildDied):
                await broken.ask(order, 60)

    asyncio.run(inside())


@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.05, 0.5])
def test_a_child_that_is_cancelled_at_any_moment_of_its_start_has_ended(seconds: float) -> None:
    async def inside() -> None:
        before = psutil.Process().children(recursive=True)
        async with Child("pharoah_benchmarks.micro", NodeProfile(threads=1)) as child:
            starting = asyncio.create_task(child.ask("{}", 60))
            reading = asyncio.create_task(read_json("pharoah_benchmarks.context", NodeProfile(threads=1)))
            await asyncio.sleep(seconds)
            for task in (starting, reading):
                task.cancel()
            await asyncio.wait({starting, reading})
            assert psutil.Process().children(recursive=True) == before

    asyncio.run(inside())


def test_what_a_child_has_started_ends_with_it(tmp_path: Path) -> None:
    """A cell that the fork server has forked into a session of its own, and the CPU stressor of that cell."""
    degradation = Degradation(fault="cpu_share", dose=0.1)
    cell = Cell("endless", "mlp", {"width": 32}, seconds=60.0, limit_seconds=60.0, degradation=degradation)

    async def inside() -> None:
        family: list[psutil.Process] = []

        def stressed() -> bool:
            family[:] = psutil.Process().children(recursive=True)
            return any("pharoah_benchmarks.faults._beside" in _command_line(process) for process in family)

        async with Child("pharoah_benchmarks.campaign.fork_server", NodeProfile(threads=1), "0") as fork_server:
            asking = asyncio.create_task(fork_server.ask(cell.to_json(), 60))
            await until(stressed, "the CPU stressor to start", 60)
            asking.cancel()
            await asyncio.wait({asking})
            await until(lambda: not any(map(_runs, family)), "the family of the child to end", 5)

    asyncio.run(inside())


# environments


def test_an_environment_that_cannot_be_built_is_not_tried_for_each_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHAROAH_ENVIRONMENTS", str(tmp_path))

    async def inside() -> None:
        async with EnvironmentChildren("pharoah_benchmarks.campaign.dry_cell", NodeProfile(threads=1)) as children:
            with pytest.raises(BuildError, match=r"python 3\.99 is not here"):
                await children.ask("python==3.99", "{}", 60)
            monkeypatch.setattr(environment_children, "read_json", None)
            with pytest.raises(BuildError, match=r"python 3\.99 is not here"):
                await children.ask("python==3.99", "{}", 60)

    asyncio.run(inside())


def test_each_environment_has_a_child_of_its_own_and_few_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHAROAH_ENVIRONMENTS", str(tmp_path))
    monkeypatch.setattr(environment_children, "MAX_CHILDREN", 1)
    environment = f"python=={sys.version_info.major}.{sys.version_info.minor}"  # nothing but a folder of its own

    def programs() -> set[str]:
        lines = (_command_line(process) for process in psutil.Process().children() if _runs(process))
        return {line.split()[0] for line in lines if line}

    async def inside() -> None:
        module = "pharoah_benchmarks.campaign.dry_cell"
        async with EnvironmentChildren(module, NO_LIMITS) as children:
            for text, program in (("", sys.executable), (environment, str(tmp_path)), ("", sys.executable)):
                settings = {"width": 8, **({"environment": text} if text else {})}
                dry = DryCell.from_json(await children.ask(text, Cell("c", "mlp", settings).to_json(), 60))
                assert dry.reason == "" and bool(Fingerprint.from_json(dry.fingerprint).code) is bool(text)
                (running,) = programs()
                assert running.startswith(program)
        assert not programs()

    asyncio.run(inside())


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""


def test_facts_are_what_is_in_force_not_what_was_asked_for() -> None:
    profile = NodeProfile(isa=InstructionSet.DEFAULT, threads=1, memory_limit_bytes=2_000_000_000)
    facts = asyncio.run(read_json("pharoah_benchmarks.context", profile))
    assert facts["isa"] == "default" and facts["threads"] == 1 and facts["memory_limit"] == 2_000_000_000


@pytest.mark.parametrize(
    ("profile", "named"),
    [
        ({"cpu": [0]}, "cpu"),
        ({"threads": "2"}, "threads"),
        ({"threads": 0}, "threads"),
        ({"isa": "mmx"}, "isa"),
        ({"cpus": [8000]}, "cpus"),
        ({"memory_limit_bytes": 1}, "memory"),
    ],
)
def test_a_profile_nobody_understands_names_the_key(profile: dict[str, object], named: str) -> None:
    with pytest.raises(ProfileError, match=named):
        check_profile(profile)


def test_a_profile_becomes_environment_and_command() -> None:
    assert environment(NodeProfile(threads=3))["OMP_NUM_THREADS"] == "3"
    assert environment(NodeProfile(isa=InstructionSet.AVX2)) == {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    }
    assert command_under(NO_LIMITS, ["true"]) == ["true"]
    assert "memory" not in " ".join(
        command_under(NodeProfile(threads=1, memory_limit_bytes=1 << 30), ["true"], memory=False)
    )


@pytest.mark.parametrize(("format_", "code"), [("npd", 2), ("nagios", 3), ("slurm", 0)])
def test_a_check_that_cannot_know_speaks_its_callers_codes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], format_: str, code: int
) -> None:
    assert cli.main(["check", "--socket", str(tmp_path / "none"), "--format", format_]) == code
    assert len(capsys.readouterr().out.strip()) <= 80


@pytest.mark.parametrize(
    ("known", "code", "line"),
    [
        (NodeStateAnswer(), 2, "has not heard from the provider"),
        (NodeStateAnswer(QUIET), 0, "no incident"),
        (
            NodeStateAnswer(CONFIRMED, 1_700_000_000, "memory 2.00x"),
            1,
            "confirmed incident since 2023-11",
        ),
        (NodeStateAnswer(QUIET, action=NodeAction.DRAIN, advice="drain this node", enforced=True), 1, "drain this"),
        (NodeStateAnswer(QUIET, action=NodeAction.DRAIN, advice="drain this node"), 0, "drain this node"),
        (NodeStateAnswer(QUIET, action=NodeAction.AVOID, advice="avoid gpt", enforced=True), 0, "avoid gpt"),
    ],
)
def test_a_check_reports_what_the_agent_has_been_sent_of_its_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], known: NodeStateAnswer, code: int, line: str
) -> None:
    path = tmp_path / "agent.sock"

    async def inside() -> int:
        async with ticket_socket(path, "n1", "boot", Ed25519PrivateKey.generate(), NO_LIMITS, lambda: known):
            return await asyncio.to_thread(cli.main, ["check", "--socket", str(path), "--format", "npd"])

    assert asyncio.run(inside()) == code
    assert line in capsys.readouterr().out


def started_after(before: list[psutil.Process]) -> list[psutil.Process]:
    """The children of this process that were not there before. Another test may have left one that has ended."""
    return [process for process in psutil.Process().children() if process not in before]


def test_a_child_competes_for_the_processor_as_the_agent_does() -> None:
    """Linux shares the CPU between sessions first; alone in a session, a micro-benchmark would measure its share."""

    before = psutil.Process().children()

    async def inside() -> None:
        async with Child("pharoah_benchmarks.micro", NodeProfile(threads=1)) as child:
            await child.warm()
            (pid,) = (process.pid for process in started_after(before))
            assert os.getsid(pid) == os.getsid(0)
            assert os.getpgid(pid) == pid, "its group ends with it, and a Ctrl-C in the terminal does not reach it"

    asyncio.run(inside())


def test_a_child_starts_at_a_share_of_the_time() -> None:
    before = psutil.Process().children()

    async def inside() -> None:
        async with Child("pharoah_benchmarks.micro", NodeProfile(threads=1)) as child:
            assert not child.is_warm
            starting = asyncio.create_task(child.warm(0.5))
            states = set()
            while not starting.done():
                states |= {process.status() for process in started_after(before) if process.is_running()}
                await asyncio.sleep(0.01)
            await starting
            assert psutil.STATUS_STOPPED in states and child.is_warm
            (process,) = started_after(before)
            assert process.status() != psutil.STATUS_STOPPED, "what has started is not paused any more"

    asyncio.run(inside())


def test_a_child_that_is_given_up_while_it_starts_is_stopped() -> None:
    before = psutil.Process().children()

    async def inside() -> None:
        async with Child("pharoah_benchmarks.micro", NodeProfile(threads=1)) as child:
            starting = asyncio.create_task(child.warm(0.01))
            while not started_after(before):
                await asyncio.sleep(0.01)
            starting.cancel()
            await asyncio.wait({starting})
            assert not started_after(before) and not child.is_warm

    asyncio.run(inside())
