"""The files and the exporter that stand for a large server have what signals read there."""

from __future__ import annotations

from pathlib import Path

from evaluation.ingest.large_node import GPUS, exporter_answer, large_node
from pharoah_provider.agent.exporter_source import ExporterSource
from pharoah_provider.agent.signal_list import SignalList
from pharoah_provider.agent.signals import AGENT_SIGNALS
from pharoah_provider.agent.signals._device_fields import DeviceField
from pharoah_provider.agent.signals._links import SYSFS


def test_every_signal_that_is_read_from_files_is_there(tmp_path: Path) -> None:
    with large_node(tmp_path):
        absent = SignalList.read(AGENT_SIGNALS).absent
    asked_elsewhere = {"memory_stalled", "cpu_waiting_ratio", "io_waiting_ratio", "memory_waiting_ratio"}
    assert {name for name in absent if not name.startswith("gpu_")} <= asked_elsewhere
    assert Path("/sys/class") == SYSFS, "the kernel's own files are read again"


def test_the_exporter_gives_every_field_of_every_gpu() -> None:
    levels = {"DCGM_FI_DEV_FB_FREE": 1, "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": 16, "DCGM_FI_DEV_PCIE_MAX_LINK_GEN": 5}
    source = ExporterSource(lambda: exporter_answer(levels), "here")
    assert {len(source.read(field)) for field in DeviceField} == {GPUS}
