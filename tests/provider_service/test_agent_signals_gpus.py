"""Signals of GPUs: a driver that is absent, comes late, hangs, or loses a GPU."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pharoah_provider.agent.signals import NotOnThisNode
from pharoah_provider.agent.signals import _nvml as nvml
from pharoah_provider.agent.signals._device_fields import DeviceField
from pharoah_provider.agent.signals._nvml_fields import NVML_FIELDS
from pharoah_provider.agent.telemetry import Telemetry
from tests.harness.agent_signals import values


class NvmlError(Exception):
    """What the module of NVML raises."""


def driver(**functions: Any) -> SimpleNamespace:
    """A driver with two GPUs, which has no other function than these."""
    constants = {
        name: number
        for number, name in enumerate(
            ("NVML_MEMORY_ERROR_TYPE_CORRECTED", "NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_VOLATILE_ECC",
             "NVML_SUCCESS", "NVML_ERROR_NOT_SUPPORTED",
             "NVML_VALUE_TYPE_UNSIGNED_INT", "NVML_VALUE_TYPE_UNSIGNED_LONG", "NVML_VALUE_TYPE_UNSIGNED_LONG_LONG",
             "NVML_VALUE_TYPE_SIGNED_LONG_LONG", "NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
             "NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL")
        )
    }  # fmt: skip
    basics = {
        "NVMLError": NvmlError,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
    }
    return SimpleNamespace(**{**constants, **basics, **functions})


def test_every_field_of_a_gpu_has_a_reader() -> None:
    assert NVML_FIELDS.keys() == set(DeviceField)


def test_each_reason_to_slow_down_is_a_bit_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    pynvml = pytest.importorskip("pynvml")
    reasons = {
        "gpu_throttled": pynvml.nvmlClocksThrottleReasonHwSlowdown,
        "gpu_thermal_slowdown": pynvml.nvmlClocksThrottleReasonHwThermalSlowdown,
        "gpu_power_brake": pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
        "gpu_software_thermal_slowdown": pynvml.nvmlClocksThrottleReasonSwThermalSlowdown,
        "gpu_power_capped": pynvml.nvmlClocksThrottleReasonSwPowerCap,
    }
    for name, bit in reasons.items():
        now = driver(nvmlDeviceGetCurrentClocksThrottleReasons=lambda gpu, bit=bit: bit if gpu else 0)
        monkeypatch.setattr(nvml, "_nvml", lambda now=now: now)
        assert {other: values(other)["gpu1"] for other in reasons} == {other: float(other == name) for other in reasons}
        assert values(name)["gpu0"] == 0.0


def test_a_gpu_that_has_left_the_bus_takes_no_signal_from_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def temperature(gpu: int, sensor: int) -> int:
        if gpu == 0:
            raise NvmlError("GPU is lost")
        return 61

    monkeypatch.setattr(nvml, "_nvml", lambda: driver(nvmlDeviceGetTemperature=temperature, NVML_TEMPERATURE_GPU=0))
    assert values("gpu_temperature_celsius") == {"gpu1": 61}


def test_errors_of_links_are_those_that_the_driver_could_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(gpu: int, fields: list[int]) -> list[SimpleNamespace]:
        now = driver()
        counted = SimpleNamespace(nvmlReturn=now.NVML_SUCCESS, valueType=now.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
                                  value=SimpleNamespace(ullVal=12))  # fmt: skip
        absent, failed = (SimpleNamespace(nvmlReturn=code) for code in (now.NVML_ERROR_NOT_SUPPORTED, 99))
        return {0: [counted, absent], 1: [absent, absent], 2: [counted, failed]}[gpu]

    monkeypatch.setattr(nvml, "_nvml", lambda: driver(nvmlDeviceGetFieldValues=answers, nvmlDeviceGetCount=lambda: 3))
    assert values("gpu_link_crc_errors") == {"gpu0": 12}


def test_gpus_keep_their_addresses_when_one_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def handle(index: int) -> int:
        if index == 1:
            raise NvmlError("GPU is lost")
        return index

    address = {0: "00000000:3B:00.0", 2: b"00000000:5E:00.0"}
    lost = driver(
        nvmlDeviceGetCount=lambda: 3,
        nvmlDeviceGetHandleByIndex=handle,
        nvmlDeviceGetPciInfo=lambda gpu: SimpleNamespace(busId=address[gpu]),
        nvmlDeviceGetComputeRunningProcesses=lambda gpu: [SimpleNamespace(pid=7 + gpu)],
    )
    monkeypatch.setattr(nvml, "_nvml", lambda: lost)
    assert nvml.gpu_addresses() == {"0000:3b:00": "gpu0", "0000:5e:00": "gpu2"}
    assert nvml.gpu_users() == {"gpu0": {7}, "gpu1": None, "gpu2": {9}}
    with pytest.raises(nvml.NvmlError, match="gpu1 does not say"):
        nvml.gpu_processes()


def test_a_driver_that_comes_after_the_agent_is_found_within_a_minute() -> None:
    now, answers = [0.0], [None, None, "NVML"]
    found = nvml.Driver(lambda: answers.pop(0), lambda: now[0])
    for seconds, expected in ((0.0, None), (59.0, None), (60.0, None), (119.0, None), (120.0, "NVML"), (999.0, "NVML")):
        now[0] = seconds
        assert found() == expected, seconds


def test_a_node_whose_driver_is_loaded_and_does_not_answer_is_not_without_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "_nvml", lambda: None)
    monkeypatch.setattr(nvml, "DRIVER", tmp_path / "nvidia")
    assert nvml.gpu_processes() == set()
    (tmp_path / "nvidia").mkdir()
    with pytest.raises(nvml.NvmlError, match="does not answer"):
        nvml.gpu_processes()


def test_a_driver_that_hangs_takes_only_the_signals_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, woken, asked = threading.Event(), threading.Event(), [0]

    def temperature(gpu: int, sensor: int) -> int:
        asked[0] += 1
        begun.set()
        woken.wait()
        return 61

    hanging = driver(nvmlDeviceGetTemperature=temperature, NVML_TEMPERATURE_GPU=0)
    monkeypatch.setattr(nvml, "_nvml", lambda: hanging)
    monkeypatch.setattr(nvml, "_questions", nvml.Questions(0.05))
    for _ in range(3):
        with pytest.raises(NotOnThisNode, match="the NVIDIA driver hangs"):
            values("gpu_temperature_celsius")
    assert begun.wait(30) and asked == [1] and nvml.driver_hangs()
    assert any(one.device == "" for one in Telemetry().sample()), "what the node has besides GPUs is read"
    woken.set()
    question = nvml._questions._asked
    assert question is not None
    question.result(30)
    nvml._questions._seconds = 30.0
    assert values("gpu_temperature_celsius") == {"gpu0": 61, "gpu1": 61} and not nvml.driver_hangs()


def test_a_session_that_the_driver_refuses_is_ended_and_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses() -> int:
        raise NvmlError("Unknown Error")

    now, ended = [0.0], list[str]()
    sessions = [
        driver(nvmlDeviceGetCount=refuses, nvmlShutdown=lambda: ended.append("first")),
        driver(nvmlShutdown=lambda: ended.append("second")),
    ]
    session = nvml.Driver(lambda: sessions.pop(0), lambda: now[0])
    monkeypatch.setattr(nvml, "_driver", session)
    monkeypatch.setattr(nvml, "_nvml", session)
    assert nvml.gpu_addresses() == {} and ended == ["first"]
    now[0] = nvml.RETRY_SECONDS
    assert nvml.gpu_values(lambda *_: 1) == {"gpu0": 1, "gpu1": 1} and ended == ["first"]


def test_a_node_without_a_driver_begins_no_thread_for_each_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    now, asked, answers = [0.0], [0], [None, driver()]
    absent = nvml.Driver(lambda: answers.pop(0), lambda: now[0])

    def counted(ask: Callable[[], object]) -> object:
        asked[0] += 1
        return ask()

    questions = nvml.Questions()
    monkeypatch.setattr(questions, "answer", counted)
    monkeypatch.setattr(nvml, "_questions", questions)
    monkeypatch.setattr(nvml, "_driver", absent)
    monkeypatch.setattr(nvml, "_nvml", absent)
    for second in (0.0, 1.0, nvml.RETRY_SECONDS - 1):
        now[0] = second
        assert nvml.gpu_addresses() == {} and asked == [1]
    now[0] = nvml.RETRY_SECONDS
    assert nvml.gpu_values(lambda *_: 1) == {"gpu0": 1, "gpu1": 1} and asked == [2]


def test_a_node_without_a_driver_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "_nvml", lambda: None)
    with pytest.raises(NotOnThisNode, match="no NVIDIA driver"):
        values("gpu_temperature_celsius")
