"""Facts of a node: read from kernel and drivers, absent where they cannot be read, sent anew when they change."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pharoah_protocol.channels import Access, AccessFiles
from pharoah_protocol.v1 import ListRequest
from pharoah_provider.agent import cli
from pharoah_provider.agent.child_processes import ChildDied
from pharoah_provider.agent.fact_watch import FactWatch
from pharoah_provider.agent.facts import FACT_GROUPS, FactGroup, cooling, network, system
from pharoah_provider.agent.facts._group import join_values
from pharoah_provider.agent.known_jobs import KnownJobs
from pharoah_provider.agent.look import Look
from pharoah_provider.agent.node_facts import NodeFacts, parse_given_facts
from pharoah_provider.agent.signals import _nvml
from pharoah_provider.agent.stream import AgentStream
from pharoah_provider.agent.telemetry import Telemetry
from pharoah_provider.domain import Node
from tests.harness.loopback import TOKENS, loopback, node
from tests.harness.tokens import write_token
from tests.harness.until import until


def put(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def look_at(monkeypatch: pytest.MonkeyPatch, sysfs: Path) -> None:
    """An agent that begins on another machine."""
    monkeypatch.setattr(network, "SYSFS", sysfs)
    monkeypatch.setattr(network, "_kept", network._Kept())


def test_this_machine_has_a_kernel_and_every_fact_has_the_name_that_its_group_states() -> None:
    facts = NodeFacts({}).read()
    assert facts["kernel"] == os.uname().release
    assert facts.keys() <= {name for group in FACT_GROUPS for name in group.facts}
    vendors = ("nvidia", "nvlink", "nvml", "cuda", "amd", "intel", "mellanox", "rocm")
    assert not [name for group in FACT_GROUPS for name in group.facts if any(vendor in name for vendor in vendors)]


def test_the_kernels_files_give_the_facts_of_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "SYSFS", tmp_path)
    monkeypatch.setattr(system, "CPUINFO", tmp_path / "cpuinfo")
    put(tmp_path / "cpuinfo", "processor\t: 0\nmicrocode\t: 0x2b\n\nprocessor\t: 1\nmicrocode\t: 0x2b\n")
    for policy, governor in enumerate(["performance", "performance", "powersave"]):
        put(tmp_path / f"cpu/cpufreq/policy{policy}/scaling_governor", f"{governor}\n")
    for number in range(2):
        (tmp_path / f"node/node{number}").mkdir(parents=True)
    facts = NodeFacts({}, [FACT_GROUPS["system"]]).read()
    assert facts["microcode"] == "0x2b" and facts["numa_nodes"] == "2"
    assert facts["governor"] == "2 x performance, 1 x powersave"
    assert "clock_limit_khz" not in facts, "this machine does not have it"


def test_cards_are_models_and_speeds_without_names_or_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_at(monkeypatch, tmp_path)
    for name in ("eth0", "eth1", "lo"):
        put(tmp_path / "net" / name / "address", "52:54:00:12:34:56\n")
    for name, speed in (("eth0", "25000\n"), ("eth1", "-1\n")):
        (tmp_path / "drivers/fastcard").mkdir(parents=True, exist_ok=True)
        (tmp_path / "net" / name / "device").mkdir()
        (tmp_path / "net" / name / "device" / "driver").symlink_to(tmp_path / "drivers/fastcard")
        put(tmp_path / "net" / name / "speed", speed)
    put(tmp_path / "infiniband/mlx5_0/hca_type", "MT4129\n")
    put(tmp_path / "infiniband/mlx5_0/fw_ver", "28.39\n")
    put(tmp_path / "infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n")
    assert NodeFacts({}, [FACT_GROUPS["network"]]).read() == {
        "network_cards": "1 x fastcard, 1 x fastcard 25000 Mb/s",
        "fabric_adapters": "1 x MT4129",
        "fabric_firmware": "1 x 28.39",
        "fabric_rates": "1 x 400 Gb/sec (4X NDR)",
    }


def test_a_link_that_comes_and_goes_changes_no_fact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look_at(monkeypatch, tmp_path)
    (tmp_path / "net/eth0/device").mkdir(parents=True)

    def shown(speed: str, rate: str) -> dict[str, object]:
        put(tmp_path / "net/eth0/speed", f"{speed}\n")
        put(tmp_path / "infiniband/mlx5_0/ports/1/rate", f"{rate}\n")
        facts = NodeFacts({}, [FACT_GROUPS["network"]]).read()
        return {name: facts[name] for name in ("network_cards", "fabric_rates")}

    assert shown("-1", "2.5 Gb/sec (1X SDR)") == {
        "network_cards": "1 x unknown", "fabric_rates": "1 x 2.5 Gb/sec (1X SDR)"
    }  # fmt: skip
    up = {"network_cards": "1 x unknown 25000 Mb/s", "fabric_rates": "1 x 400 Gb/sec (4X NDR)"}
    assert shown("25000", "400 Gb/sec (4X NDR)") == up
    for speed, rate in (("-1", "10 Gb/sec (4X SDR)"), ("", ""), ("1000", "100 Gb/sec (4X EDR)"), ("25000", "400")):
        assert shown(speed, rate) == up
    assert shown("100000", "800 Gb/sec (4X XDR)") != up, "a faster link is another fact"


def test_a_whole_card_that_moves_into_a_pod_and_back_under_another_name_changes_no_fact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_at(monkeypatch, tmp_path / "class")
    slots = [tmp_path / "devices" / f"0000:3b:00.{number}" for number in range(2)]

    def has(*names: str) -> dict[str, object]:
        shutil.rmtree(tmp_path / "class", ignore_errors=True)
        for name, slot in zip(names, slots, strict=False):
            slot.mkdir(parents=True, exist_ok=True)
            put(tmp_path / "class/net" / name / "speed", "25000\n")
            (tmp_path / "class/net" / name / "device").symlink_to(slot)
        return NodeFacts({}, [FACT_GROUPS["network"]]).read()

    both = {"network_cards": "2 x unknown 25000 Mb/s"}
    assert has("eth0") == {"network_cards": "1 x unknown 25000 Mb/s"}
    assert [has(*names) for names in (("eth0", "eth1"), ("eth0",), (), ("eth0", "net2"))] == [both] * 4


def test_virtual_functions_that_move_into_pods_change_no_fact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look_at(monkeypatch, tmp_path)
    for kind, name in (("net", "eth0"), ("net", "eth0v0"), ("infiniband", "mlx5_0"), ("infiniband", "mlx5_1")):
        put(tmp_path / kind / name / "device/vendor", "0x15b3\n")
        put(tmp_path / kind / name / "ports/1/rate", "400 Gb/sec (4X NDR)\n")
    virtual = [tmp_path / "net/eth0v0", tmp_path / "infiniband/mlx5_1"]
    for function in virtual:
        (function / "device/physfn").symlink_to(tmp_path / "net/eth0/device")
    before = NodeFacts({}, [FACT_GROUPS["network"]]).read()
    for function in virtual:
        shutil.rmtree(function)
    assert NodeFacts({}, [FACT_GROUPS["network"]]).read() == before == {
        "network_cards": "1 x unknown", "fabric_adapters": "1 x mlx5_", "fabric_rates": "1 x 400 Gb/sec (4X NDR)"
    }  # fmt: skip


def test_the_temperature_band_falls_and_never_follows_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooling, "SENSORS", tmp_path)
    coolest = cooling._Coolest()
    assert coolest.band() == ""
    put(tmp_path / "thermal/thermal_zone0/temp", "-274000\n")
    put(tmp_path / "hwmon/hwmon1/temp2_input", "47000\n")
    assert coolest.band() == "40-60"
    for degrees, band in ((92, "40-60"), (41, "40-60"), (28, "20-40"), (90, "20-40")):
        put(tmp_path / "hwmon/hwmon1/temp2_input", f"{degrees * 1000}\n")
        assert coolest.band() == band


def test_gpus_give_their_settings_and_what_one_does_not_have_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoSuchThing(RuntimeError):
        pass

    def missing(*_: Any) -> Any:
        raise NoSuchThing

    nvml = SimpleNamespace(
        NVMLError=NoSuchThing,
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        NVML_NVLINK_MAX_LINKS=18,
        nvmlSystemGetDriverVersion=lambda: "550.54",
        nvmlSystemGetCudaDriverVersion_v2=lambda: 12040,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetEccMode=lambda gpu: (1 - gpu, 1),
        nvmlDeviceGetMigMode=missing,
        nvmlDeviceGetEnforcedPowerLimit=lambda gpu: 350_000,
        nvmlDeviceGetMaxClockInfo=lambda gpu, kind: 1980 if kind == 1 else 2619,
        nvmlDeviceGetMaxPcieLinkGeneration=lambda gpu: 5,
        nvmlDeviceGetCurrPcieLinkWidth=lambda gpu: 16 if gpu else 8,
        nvmlDeviceGetNvLinkState=missing,
    )
    monkeypatch.setattr(_nvml, "_nvml", lambda: nvml)
    assert NodeFacts({}, [FACT_GROUPS["gpus"]]).read() == {
        "gpu_driver": "550.54",
        "gpu_toolkit": "12.4",
        "gpu_count": "2",
        "gpu_error_correction": "1 x off, 1 x on",
        "gpu_power_limit_watts": "2 x 350",
        "gpu_clock_limits_mhz": "2 x 1980/2619",
        "gpu_bus": "1 x generation 5, 16 lanes, 1 x generation 5, 8 lanes",
    }
    nvml.nvmlDeviceGetPciInfo = lambda gpu: SimpleNamespace(busId=f"00000000:3{gpu}:00.0")
    for up, shown in ((0, "2 x 0 links"), (18, "2 x 18 links"), (17, "2 x 18 links")):
        nvml.nvmlDeviceGetNvLinkState = lambda gpu, link, up=up: int(link < up)
        assert NodeFacts({}, [FACT_GROUPS["gpus"]]).read()["gpu_links"] == shown, up
    monkeypatch.setattr(_nvml, "_nvml", lambda: None)
    assert NodeFacts({}, [FACT_GROUPS["gpus"]]).read() == {}


def test_a_group_that_fails_is_absent_and_facts_of_the_operator_stand() -> None:
    def fails() -> dict[str, str]:
        raise RuntimeError("the driver does not answer")

    groups = [
        FactGroup("broken", "a test", ("one",), fails),
        FactGroup("odd", "a test", ("two", "three", "four"), lambda: {"two": "a\nb", "four": "x" * 999, "other": "no"}),
    ]
    facts = NodeFacts({"cooling_zone": "b2", "two": "fixed"}, groups).read()
    assert facts == {"cooling_zone": "b2", "two": "fixed", "four": "x" * 200}
    assert join_values([]) == join_values([""]) == ""


@pytest.mark.parametrize(
    ("facts", "error"),
    [
        (["zone"], "expected NAME=VALUE"),
        (["Zone=1"], "expected NAME=VALUE"),
        (["zone="], "expected NAME=VALUE"),
        (["zone=1", "zone=2"], "given twice"),
        (["kernel=6"], "read by the agent"),
        (["zone=a\nb"], "printable"),
        ([f"fact{number}=1" for number in range(17)], "at most 16"),
    ],
)
def test_a_fact_that_an_operator_cannot_give_is_named(
    facts: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match=error):
        parse_given_facts(facts)
    options = [word for fact in facts for word in ("--fact", fact)]
    assert cli.main(["run", "--node", "n1", "--endpoint", "unix:/nowhere", *options]) == 1
    assert "pharoah-agent: " in capsys.readouterr().err
    assert parse_given_facts(["cooling_zone=b2", "rack=7"]) == {"cooling_zone": "b2", "rack": "7"}


def test_changed_facts_are_sent_without_a_restart_of_the_agent(tmp_path: Path) -> None:
    """A real agent stream and a real provider: its agent says hello again, and the node is in another context."""

    async def inside() -> None:
        async with loopback(tmp_path) as site:
            write_token(tmp_path / "n1.token", TOKENS["n1"])
            access = Access.from_files(site.endpoint, AccessFiles(token=tmp_path / "n1.token"))
            unused: Any = None
            stands_on = node("n1", "kernel=5.15")
            stream = AgentStream(stands_on, access, Telemetry(), unused, unused, Look((0,), KnownJobs()))
            running = asyncio.create_task(stream.run())

            async def stated(fact: str) -> bool:
                answer = await site.call("Operator", "List", ListRequest(listing="nodes"), "ops")
                row = next(row for row in map(json.loads, answer.rows) if row["node"] == "n1")
                return fact in row["facts"] and row["connected"] == "yes"

            try:
                await until(lambda: stated("kernel=5.15"), "the first hello", 20)
                stream.restate(replace(stands_on, server_facts=(*node("n1").server_facts, "kernel=6.1")))
                await until(lambda: stated("kernel=6.1"), "the second hello", 20)
                assert not running.done()
            finally:
                running.cancel()
                await asyncio.wait({running})

    asyncio.run(inside())


def test_gpus_whose_driver_comes_after_the_agent_become_facts_of_the_node() -> None:
    driver, sent, reads, now = dict[str, str](), list[Node](), [0], [0.0]

    async def seen() -> Mapping[str, object]:
        reads[0] += 1
        if reads[0] == 3:
            raise ChildDied("exit status -9")
        if reads[0] == 4:
            return {"device": "a CPU"}  # as CUDA says before the links of the server are set up
        return {"device": "a CPU", **({"gpu": "a GPU"} if driver else {})}

    async def inside() -> None:
        group = FactGroup("gpus", "a test", ("gpu_count",), lambda: driver)
        watch = FactWatch(node("n1"), {"rack": "7"}, NodeFacts({"device": "a CPU"}, [group]), seen, sent.append)
        watch.clock = lambda: now[0]
        await watch.look()
        await watch.look()
        assert [one.server_facts for one in sent] == [("device=a CPU",)] and reads == [0]
        for count in ("8", "7", "7"):
            driver["gpu_count"] = count
            await watch.look()
        assert [one.server_facts[2:] for one in sent[1:]] == [("gpu_count=8", "rack=7"), ("gpu_count=7", "rack=7")]
        assert sent[-1].device_facts == ("device=a CPU", "gpu=a GPU") and reads == [1]
        driver.clear()
        await watch.look()
        assert sent[-1].server_facts == ("device=a CPU", "rack=7")
        driver["gpu_count"] = "8"
        for _ in range(3):
            await watch.look()
        assert sent[-1].device_facts == ("device=a CPU",) and reads == [3], "a process that dies has a pause"
        for seconds, asked in ((59, 3), (60, 4), (179, 4), (180, 5), (300, 5)):
            now[0] = seconds
            await watch.look()
            assert reads == [asked], seconds
        assert sent[-1].device_facts == ("device=a CPU", "gpu=a GPU")

    asyncio.run(inside())
