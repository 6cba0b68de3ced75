"""The signals of a node, read from folders that look like those of the kernel."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from pharoah_protocol.telemetry_samples import TelemetrySample
from pharoah_provider.agent.signal_list import COLUMNS, SignalList
from pharoah_provider.agent.signals import AGENT_SIGNALS, NotOnThisNode, Reading
from pharoah_provider.agent.signals import _disks as disks
from pharoah_provider.agent.signals import _files as files
from pharoah_provider.agent.signals import _links as links
from pharoah_provider.agent.signals import _memory as memory
from pharoah_provider.agent.signals import _processors as processors
from pharoah_provider.agent.signals._signal import device_name
from pharoah_provider.agent.telemetry import Telemetry
from tests.harness.agent_signals import signal_of, values


def put(folder: Path, contents: Mapping[str, object]) -> None:
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{content}\n")


# every signal


def test_no_signal_has_the_name_of_a_vendor() -> None:
    vendors = ("nvidia", "nvlink", "nvml", "cuda", "xid", "amd", "intel", "mellanox", "mlx", "rocm", "dcgm")
    assert not [signal.name for signal in AGENT_SIGNALS if any(vendor in signal.name for vendor in vendors)]


def test_how_busy_a_gpu_is_and_what_a_network_carries_is_no_signal() -> None:
    use = ("utilization", "utilisation", "busy", "bytes", "packets_sent", "occupancy")
    assert not [signal.name for signal in AGENT_SIGNALS if any(word in signal.name for word in use)]


@pytest.mark.parametrize("raw", ["x86_pkg_temp", "MLX5_0-1", "a b:c/d", "", "é" * 99, "0000:3b:00"])
def test_every_name_of_a_device_is_one_that_the_provider_takes_with_a_cell(raw: str) -> None:
    name = f"temperature_celsius:{device_name(raw)}"
    TelemetrySample.from_data({"at_seconds": 0.0, "values": {name: 1.0}})


def test_every_signal_that_this_machine_has_comes_with_devices_that_the_provider_takes() -> None:
    found = SignalList.read(AGENT_SIGNALS)
    assert any(one.signal.name == "memory_available_ratio" for one in found.readings)
    for one in found.readings:
        assert one.reading.device in ("", device_name(one.reading.device))
    assert all(found.absent.values()), "each reason is given"


# links


@pytest.fixture
def sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(links, "SYSFS", tmp_path)
    return tmp_path


def test_a_port_of_the_fabric_counts_its_errors(sysfs: Path) -> None:
    port = sysfs / "infiniband" / "mlx5_0" / "ports" / "1"
    put(port / "counters", {"symbol_error": 7, "link_downed": 2, "port_rcv_errors": 1, "port_xmit_data": 10**15})
    put(port / "hw_counters", {"out_of_sequence": 4, "packet_seq_err": 5})
    assert values("fabric_symbol_errors") == {"mlx5_0-1": 7}
    assert values("fabric_link_losses") == {"mlx5_0-1": 2}
    assert values("fabric_sequence_errors") == {"mlx5_0-1": 9}
    with pytest.raises(NotOnThisNode, match="no InfiniBand"):
        values("fabric_timeouts")


def test_virtual_interfaces_are_no_network_cards(sysfs: Path) -> None:
    for name in ("eth0", "veth7", "lo"):
        put(sysfs / "net" / name, {"statistics/rx_errors": 3, "statistics/rx_dropped": 1, "statistics/tx_dropped": 1})
    (sysfs / "net" / "eth0" / "device").mkdir()
    assert values("network_receive_errors") == {"eth0": 3}
    assert values("network_dropped") == {"eth0": 2}


def test_a_link_is_down_only_when_it_was_up_and_nobody_has_switched_it_off(sysfs: Path) -> None:
    card, port = sysfs / "net" / "eth0", sysfs / "infiniband" / "mlx5_0" / "ports" / "1"
    (card / "device").mkdir(parents=True)
    watch = links.LinkWatch()

    def shown() -> dict[str, float]:
        return {reading.device: reading.value for reading in watch.readings()}

    put(card, {"flags": "0x1003", "carrier": 0})
    put(port, {"state": "1: DOWN", "phys_state": "2: Polling"})
    assert shown() == {"eth0": 0.0, "mlx5_0-1": 0.0}, "no cable has been there"
    put(card, {"carrier": 1})
    put(port, {"state": "4: ACTIVE", "phys_state": "5: LinkUp"})
    assert shown() == {"eth0": 0.0, "mlx5_0-1": 0.0}
    put(card, {"carrier": 0})
    put(port, {"state": "1: DOWN", "phys_state": "2: Polling"})
    assert shown() == {"eth0": 1.0, "mlx5_0-1": 1.0}
    put(card, {"flags": "0x1002"})
    put(port, {"phys_state": "3: Disabled"})
    assert shown() == {"eth0": 0.0, "mlx5_0-1": 0.0}


def test_a_node_without_networks_has_no_links(sysfs: Path) -> None:
    with pytest.raises(NotOnThisNode):
        values("network_link_down")


# processors, memory, disks


def test_cores_and_their_packages_count_how_often_they_were_too_hot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processors, "CPUS", tmp_path)
    packages = [10, 10, 2000, 2001]  # of two packages; one core of the second was read a moment later
    for core, count in enumerate([3, 4, 0, 0]):
        put(
            tmp_path / f"cpu{core}",
            {
                "thermal_throttle/core_throttle_count": count,
                "thermal_throttle/package_throttle_count": packages[core],
                "topology/physical_package_id": core // 2,
            },
        )
        put(
            tmp_path / f"cpu{core}/cpufreq", {"scaling_cur_freq": 1_000_000 * (1 + core), "cpuinfo_max_freq": 4_000_000}
        )
    (tmp_path / "cpufreq").mkdir()
    assert values("cpu_throttle_count") == {"": 3 + 4 + 10 + 2001}
    assert values("cpu_clock_ratio") == {"": pytest.approx((0.25 + 0.5 + 0.75 + 1) / 4)}


def test_cores_that_are_switched_off_and_on_again_invent_no_heat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processors, "CPUS", tmp_path)
    telemetry = Telemetry(signals=[AGENT_SIGNALS["cpu_throttle_count"]])

    def heat() -> list[float]:
        return [sample.values["cpu_throttle_count"] for sample in telemetry.sample(stays=True)]

    for core in range(2):
        put(tmp_path / f"cpu{core}/thermal_throttle", {"core_throttle_count": 5000, "package_throttle_count": 0})
    assert heat() == []
    (tmp_path / "cpu1/thermal_throttle").rename(tmp_path / "off")
    assert heat() == [], "the first reading of one core"
    put(tmp_path / "cpu0/thermal_throttle", {"core_throttle_count": 5002})
    assert heat() == [2]
    (tmp_path / "off").rename(tmp_path / "cpu1/thermal_throttle")
    assert heat() == [2], "since both were read last"


def test_of_many_processors_a_few_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "CPUS", tmp_path)
    for core in range(257):
        put(tmp_path / f"cpu{core}/thermal_throttle", {"core_throttle_count": 1, "package_throttle_count": 0})
    assert 16 <= values("cpu_throttle_count")[""] <= processors.MAX_CPUS


def test_a_sensor_that_is_not_connected_is_no_temperature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "THERMAL", tmp_path)
    for zone, temperature in enumerate([45_500, 0, -40_000, "no number"]):
        put(tmp_path / f"thermal_zone{zone}", {"temp": temperature, "type": "x86_pkg_temp"})
    assert values("temperature_celsius") == {"x86_pkg_temp-0": 45.5}


def test_memory_that_is_available_killed_for_or_faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "PROC", tmp_path)
    monkeypatch.setattr(memory, "CONTROLLERS", tmp_path / "mc")
    put(
        tmp_path,
        {"meminfo": "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 250 kB", "vmstat": "pgfault 9\noom_kill 2"},
    )
    put(tmp_path / "mc/mc0", {"ce_count": 5, "ce_noinfo_count": 1, "ue_count": 0, "ue_noinfo_count": 0})
    put(tmp_path / "mc/mc1", {"ce_count": 0, "ue_count": 1})
    put(tmp_path / "mc/power", {"ce_count": 99})
    assert values("memory_available_ratio") == {"": 0.25}
    assert values("out_of_memory_kills") == {"": 2}
    assert values("memory_corrected_errors") == {"mc0": 5, "mc1": 0}, "the first count has those without a place, too"
    assert values("memory_uncorrected_error_count") == {"mc0": 0, "mc1": 1}
    assert values("memory_uncorrected_errors") == {"mc0": 0.0, "mc1": 1.0}


def test_disks_count_errors_and_file_systems_have_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disks, "BLOCKS", tmp_path / "block")
    monkeypatch.setattr(disks, "MOUNTS", tmp_path / "mounts")
    put(tmp_path / "block/sda/device", {"ioerr_cnt": "0x1f"})
    put(tmp_path / "block/loop0", {"size": 8})
    put(
        tmp_path,
        {"mounts": f"/dev/sda1 {tmp_path} ext4 rw 0 0\nfiler:/home /nowhere nfs rw 0 0\ntmpfs /tmp tmpfs rw 0 0"},
    )
    assert values("disk_errors") == {"sda": 31}
    state = os.statvfs(tmp_path)
    assert values("disk_free_ratio") == {"sda1": pytest.approx(state.f_bavail / state.f_blocks, abs=0.01)}


def test_a_file_system_that_became_read_only_is_in_trouble_and_one_that_always_was_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "MOUNTS", tmp_path / "mounts")
    watch = disks.WriteWatch()
    put(tmp_path, {"mounts": "/dev/sda1 / ext4 rw,relatime 0 0\n/dev/sdb1 /data ext4 ro 0 0"})
    assert [reading.value for reading in watch.readings()] == [0.0, 0.0]
    for options in ("ro,relatime", "rw,relatime,emergency_ro", "rw,shutdown"):
        put(tmp_path, {"mounts": f"/dev/sda1 / ext4 {options} 0 0\n/dev/sdb1 /data ext4 ro 0 0"})
        assert list(watch.readings()) == [Reading(1.0, "sda1"), Reading(0.0, "sdb1")]
    put(tmp_path, {"mounts": "/dev/sda1 / ext4 rw,errors=remount-ro 0 0\n/dev/sdb1 /data ext4 ro 0 0"})
    assert list(watch.readings()) == [Reading(0.0, "sda1"), Reading(0.0, "sdb1")]


def test_a_reader_takes_a_bounded_part_of_a_file_and_waits_for_nobody(tmp_path: Path) -> None:
    (tmp_path / "large").write_text("x" * (files.MAX_BYTES + 100))
    os.mkfifo(tmp_path / "pipe")
    assert len(files.text_of(tmp_path / "large") or "") == files.MAX_BYTES
    assert not files.text_of(tmp_path / "pipe")
    for device in range(files.MAX_FOLDERS + 10):
        (tmp_path / "devices" / f"{device:03}").mkdir(parents=True)
    assert len(files.folders(tmp_path / "devices")) == files.MAX_FOLDERS


def test_virtual_cards_of_many_containers_hide_no_real_one(sysfs: Path) -> None:
    for container in range(3 * files.MAX_FOLDERS):
        put(sysfs / f"net/cali{container:03}/statistics", {"rx_errors": 9})
    put(sysfs / "net/eth0", {"statistics/rx_errors": 4})
    (sysfs / "net/eth0/device").mkdir()
    assert values("network_receive_errors") == {"eth0": 4}


# what an operator sees


def test_the_list_of_signals_has_eighty_columns_and_a_reason_for_each_that_is_absent() -> None:
    def fails() -> Iterator[Reading]:
        raise RuntimeError("the driver does not answer")
        yield

    def missing() -> Iterator[Reading]:
        raise NotOnThisNode("this node has none")
        yield

    found = SignalList.read([
        signal_of(name="hot", leaves_node=True, read=lambda: [Reading(1.0, "a-device-with-a-long-name-and-a-port-7")]),
        signal_of(name="broken", read=fails),
        *(signal_of(name=f"missing_signal_{number}", read=missing) for number in range(20)),
        signal_of(name="empty", read=list),
    ])  # fmt: skip
    table = found.as_table()
    assert max(map(len, table.splitlines())) <= COLUMNS
    assert table.splitlines()[1].split() == ["hot*", "~name-and-a-port-7", "1", "trouble"]
    assert found.absent["broken"] == "RuntimeError: the driver does not answer"
    assert table.count("this node has none") == 1 and "missing_signal_19" in table
    assert "no device of this node has it" in table


# control groups


def test_a_sum_of_which_one_file_cannot_be_read_is_no_reading_until_it_stays_away(tmp_path: Path) -> None:
    put(tmp_path, {"symbol_error": 7, "link_downed": 2})

    def read() -> Reading | None:
        return files.sum_readings(tmp_path, ("symbol_error", "link_downed", "never_there"), "port")

    assert read() == Reading(9, "port", 2)
    (tmp_path / "link_downed").unlink()
    assert [read() for _ in range(files.MAX_MISSED)] == [None] * files.MAX_MISSED
    assert read() == Reading(7, "port", 1), "another counter from now on"
    put(tmp_path, {"link_downed": 3})
    assert read() == Reading(10, "port", 2)
