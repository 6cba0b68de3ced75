"""What agents read of their nodes: counters that wrap, begin again and vanish, files of the kernel, and its log."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah_provider.agent.signals import (
    AGENT_SIGNALS,
    Reading,
    cpu_frequency_ratio,
    cpu_throttled,
    disk_errors,
    disk_read_only,
    memory_available_ratio,
    memory_corrected_errors,
    memory_uncorrected_errors,
    network_errors,
    network_link_lost,
    temperature,
)
from pharoah_provider.agent.signals._counters import increase, increased_lately
from pharoah_provider.agent.signals._driver_faults import Bucket, DriverFaults, own_catalogue, parse, read_catalogue
from pharoah_provider.agent.signals._kernel_log import KMSG, KernelLog
from pharoah_provider.agent.telemetry import Telemetry, device_name


def _write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@given(st.integers(0, 2**64 - 1), st.integers(0, 10**6), st.sampled_from([32, 64]))
def test_a_counter_that_wraps_has_counted_what_it_has(before: int, more: int, bits: int) -> None:
    before %= 2**bits
    now = (before + more) % 2**bits
    if now >= before or before >= 0.9 * 2**bits:
        assert increase(float(before), float(now)) == pytest.approx(more, abs=2**12)  # floats beyond 2^53 are coarse


@given(st.floats(1, 1e6), st.floats(0, 1e5))
def test_a_counter_that_begins_again_has_counted_at_least_what_it_shows(before: float, now: float) -> None:
    assert increase(before, now) == (now - before if now >= before else now)


def test_an_increase_is_trouble_for_a_minute_whoever_asks_how_often() -> None:
    value, now = [5.0], [0.0]
    trouble = increased_lately(lambda: [Reading(value[0], "eth0")], least=2.0, clock=lambda: now[0])
    assert [one.value for one in trouble()] == [0.0], "what was counted before the agent began is not of now"
    value[0] += 1
    assert [one.value for one in trouble()] == [0.0]
    value[0], now[0] = value[0] + 1, 30.0
    assert [one.value for one in trouble()] == [1.0]
    assert [one.value for one in trouble()] == [1.0]
    now[0] = 100.0
    assert [one.value for one in trouble()] == [0.0]


def test_a_device_that_vanishes_and_comes_back_is_no_trouble() -> None:
    readings = [Reading(100.0, "eth0")]
    trouble = increased_lately(lambda: readings, clock=lambda: 0.0)
    list(trouble())
    readings.clear()
    assert list(trouble()) == []
    readings.append(Reading(0.0, "eth0"))
    assert [one.value for one in trouble()] == [0.0]


def test_files_of_the_kernel_become_readings(tmp_path: Path) -> None:
    _write(
        tmp_path,
        **{
            "devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "3\n",
            "devices/system/cpu/cpu1/thermal_throttle/core_throttle_count": "4\n",
            "devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "1000000\n",
            "devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "4000000\n",
            "devices/system/edac/mc/mc0/ce_count": "7\n",
            "devices/system/edac/mc/mc0/ue_count": "1\n",
            "class/net/eth0/device/vendor": "0x15b3\n",
            "class/net/eth0/statistics/rx_errors": "5\n",
            "class/net/eth0/statistics/rx_crc_errors": "6\n",
            "class/net/eth0/carrier_changes": "2\n",
            "class/net/veth1/statistics/rx_errors": "99\n",  # no hardware
            "class/infiniband/mlx5_0/ports/1/counters/symbol_error": "8\n",
            "class/infiniband/mlx5_0/ports/1/counters/link_downed": "1\n",
            "class/thermal/thermal_zone0/temp": "45500\n",
            "class/thermal/thermal_zone1/temp": "not a number\n",
            "block/sda/device/ioerr_cnt": "0x1f\n",
        },
    )
    assert list(cpu_throttled.throttles(tmp_path)) == [Reading(7.0)]
    assert list(cpu_frequency_ratio.frequencies(tmp_path)) == [Reading(0.25)]
    assert list(memory_corrected_errors.errors(tmp_path)) == [Reading(7.0)]
    assert list(memory_uncorrected_errors.errors(tmp_path)) == [Reading(1.0)]
    assert list(network_errors.errors(tmp_path)) == [Reading(11.0, "eth0"), Reading(8.0, "mlx5_0.1")]
    assert list(network_link_lost.changes(tmp_path)) == [Reading(2.0, "eth0"), Reading(1.0, "mlx5_0.1")]
    assert list(temperature.temperatures(tmp_path)) == [Reading(45.5, "thermal_zone0")]
    assert list(disk_errors.errors(tmp_path)) == [Reading(31.0, "sda")]


def test_a_node_without_these_files_has_no_readings(tmp_path: Path) -> None:
    for read in (cpu_throttled.throttles, network_errors.errors, temperature.temperatures, disk_errors.errors):
        assert list(read(tmp_path)) == []
    assert list(memory_available_ratio.available(tmp_path)) == []


def test_memory_that_is_available_is_a_share(tmp_path: Path) -> None:
    _write(tmp_path, meminfo="MemTotal:       1000 kB\nMemAvailable:    250 kB\n")
    assert list(memory_available_ratio.available(tmp_path)) == [Reading(0.25)]


def test_names_of_devices_are_those_that_telemetry_may_have() -> None:
    assert [device_name(name) for name in ("enP2p1s0", "/", "nvme0n1", "")] == ["enp2p1s0", "_", "nvme0n1", ""]
    read = [Reading(1.0, "enP2p1s0")]
    signal = replace(AGENT_SIGNALS["network_errors"], read=lambda: read)
    assert [sample.device for sample in Telemetry(signals=[signal]).sample()] == ["enp2p1s0"]


def test_only_a_disk_that_could_be_written_before_has_become_read_only(tmp_path: Path) -> None:
    read = disk_read_only.read_only()
    _write(tmp_path, mounts="/dev/sda1 / ext4 rw,relatime 0 0\n/dev/sdb1 /media ext4 ro 0 0\nproc /proc proc rw 0 0\n")
    assert list(read(tmp_path)) == [Reading(0.0, "sda1")]
    _write(tmp_path, mounts="/dev/sda1 / ext4 ro,relatime 0 0\n/dev/sdb1 /media ext4 ro 0 0\n")
    assert list(read(tmp_path)) == [Reading(1.0, "sda1")]


@pytest.mark.parametrize(
    ("line", "bus", "code"),
    [
        ("NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=nvidia-smi, Timeout after 6s", "0000:9b:00", 119),
        ("NVRM: Xid (PCI:0000:05:00.0): 79, GPU has fallen off the bus.", "0000:05:00.0", 79),
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", "0000:03:00", 14),
    ],
)
def test_faults_in_the_kernels_log_are_read(line: str, bus: str, code: int) -> None:
    assert parse(f"[1234.5] {line}") == (bus, code)


@pytest.mark.parametrize("line", ["NVRM: Xid (invalid): some error", "NVRM: Xid", "usb 1-1: new device", ""])
def test_other_lines_are_no_faults(line: str) -> None:
    assert parse(line) is None


def test_a_fault_of_the_hardware_is_trouble_for_ten_minutes_and_one_of_the_job_is_none() -> None:
    lines, now = ["NVRM: Xid (PCI:0000:9b:00): 31, pid=1", "NVRM: Xid (PCI:0000:9c:00): 48, pid=1"], [0.0]
    faults = DriverFaults(lambda: lines, clock=lambda: now[0])
    assert list(faults.read()) == [Reading(1.0, "0000:9c:00")]
    lines.clear()
    now[0] = 601.0
    assert list(faults.read()) == [Reading(0.0, "0000:9c:00")]


def test_the_catalogue_can_be_overridden_by_a_site(tmp_path: Path) -> None:
    path = tmp_path / "ours.toml"
    path.write_text('[31]\nbucket = "hardware"\n[999]\nbucket = "driver"\nresource = "compute"\nmeaning = "new"\n')
    changed = read_catalogue(path, own_catalogue())
    assert changed[31].bucket is Bucket.HARDWARE and changed[31].meaning == own_catalogue()[31].meaning
    assert changed[999].meaning == "new"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[abc]\nbucket = 1", r"\[abc\] is not the number"),
        ('[31]\ncolour = "red"', "31.*colour: there is no such field"),
        ('[999]\nbucket = "driver"', "999.*meaning: the field is missing"),
        ('[31]\nbucket = "bad luck"', "31.*bad luck"),
        ("[31", "ours.toml"),
    ],
)
def test_a_wrong_file_of_a_site_is_named_with_its_entry(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "ours.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_catalogue(path, own_catalogue())


def test_a_log_that_may_not_be_read_has_no_lines(tmp_path: Path) -> None:
    assert list(KernelLog(tmp_path / "none").lines()) == []


@pytest.mark.skipif(not os.access(KMSG, os.W_OK), reason="the kernel's log needs root")
def test_what_is_logged_after_the_beginning_is_read_once() -> None:
    log, text = KernelLog(), f"pharoah test {os.getpid()}"
    list(log.lines())
    KMSG.write_text(f"{text}\n")  # the kernel keeps a line without an end back, because it may go on
    assert sum(text in line for line in log.lines()) == 1
    assert not any(text in line for line in log.lines())
