from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah._errors import UnknownReason
from pharoah.sidecar.agent_client import ask_node
from pharoah_protocol.node_profile import ProfileError, check_profile, command_under, environment
from pharoah_protocol.node_ticket import Ticket
from pharoah_provider.agent import cli
from pharoah_provider.agent.child_processes import Child, ChildDied, read_json
from pharoah_provider.agent.local_socket import load_key, ticket_socket
from pharoah_provider.agent.telemetry import Telemetry


def test_telemetry_tells_trouble_never_use_nor_amounts() -> None:
    samples = Telemetry(clock=lambda: 123.0).sample()
    metrics = {metric for _, metric, _, _ in samples}
    trouble = {"memory_stalled", "gpu_throttled", "gpu_uncorrected_errors", "gpu_rows_to_remap"}
    assert metrics <= trouble
    assert ("memory_stalled" in metrics) == Path("/proc/pressure/memory").exists()
    for at, metric, _, value in samples:
        assert at == 123.0 and math.isfinite(value)
        assert value in (0.0, 1.0), metric


def test_a_ticket_comes_over_the_socket_with_the_profile(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    path = tmp_path / "run" / "agent.sock"

    async def inside() -> None:
        async with ticket_socket(path, "n1", "boot", key, {"threads": 2}, dict):
            first, second = [await ask_node(str(path), 2.0) for _ in range(2)]
        assert first.profile == {"threads": 2}
        tickets = [Ticket.verify(a.ticket.body, a.ticket.signature, key.public_key(), 0) for a in (first, second)]
        assert tickets[0].nonce != tickets[1].nonce
        with pytest.raises(UnknownReason, match="no agent answers"):
            await ask_node(str(path), 1.0)

    asyncio.run(inside())


def test_junk_on_the_socket_does_not_stop_the_next_ticket(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"

    async def inside() -> None:
        async with ticket_socket(path, "n1", "boot", Ed25519PrivateKey.generate(), {}, dict):
            for junk in (b"\n", b"[]\n", b"x" * 100_000, b""):
                _, writer = await asyncio.open_unix_connection(str(path))
                writer.write(junk)
                writer.close()
            assert (await ask_node(str(path), 2.0)).profile == {}

    asyncio.run(inside())


def test_a_node_keeps_its_ticket_key(tmp_path: Path) -> None:
    path = tmp_path / "lib" / "ticket.key"
    assert load_key(path).private_bytes_raw() == load_key(path).private_bytes_raw()
    assert path.stat().st_mode & 0o077 == 0


def test_a_probe_child_measures_and_a_dead_one_is_an_error(tmp_path: Path) -> None:
    async def inside() -> None:
        child = Child("pharoah_benchmarks.probe", {"threads": 1})
        order = json.dumps({"benchmark": "gemm", "repeats": 3, "limit_seconds": 5})
        answer = json.loads(await child.ask(order, 60))
        assert answer["error"] == "" and len(answer["seconds"]) == 3 and min(answer["seconds"]) > 0
        unknown = json.dumps({"benchmark": "disk", "repeats": 3, "limit_seconds": 5})
        assert "KeyError" in json.loads(await child.ask(unknown, 60))["error"]
        child.stop()
        broken = Child("pharoah_benchmarks.no_such_module", {})
        with pytest.raises(ChildDied):
            await broken.ask(order, 60)
        broken.stop()

    asyncio.run(inside())


def test_facts_are_what_is_in_force_not_what_was_asked_for() -> None:
    facts = asyncio.run(
        read_json("pharoah_benchmarks.context", {"isa": "default", "threads": 1, "memory_limit_bytes": 2_000_000_000})
    )
    assert facts["isa"] == "default" and facts["threads"] == 1 and facts["memory_limit"] == 2_000_000_000


@pytest.mark.parametrize(
    ("profile", "named"),
    [({"cpu": [0]}, "cpu"), ({"threads": "2"}, "threads"), ({"isa": "mmx"}, "isa"), ({"cpus": [9999]}, "cpus")],
)
def test_a_profile_nobody_understands_names_the_key(profile: dict[str, object], named: str) -> None:
    with pytest.raises(ProfileError, match=named):
        check_profile(profile)


def test_a_profile_becomes_environment_and_command() -> None:
    assert environment({"threads": 3})["OMP_NUM_THREADS"] == "3"
    assert environment({"isa": "avx2"}) == {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
    assert command_under({}, ["true"]) == ["true"]
    assert "memory" not in " ".join(command_under({"threads": 1, "memory_limit_bytes": 5}, ["true"], memory=False))


@pytest.mark.parametrize(("format_", "code"), [("npd", 2), ("nagios", 3), ("slurm", 0)])
def test_a_check_that_cannot_know_speaks_its_callers_codes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], format_: str, code: int
) -> None:
    assert cli.main(["check", "--socket", str(tmp_path / "none"), "--format", format_]) == code
    assert len(capsys.readouterr().out.strip()) <= 80
