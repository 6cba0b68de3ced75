"""GPUs as an exporter on the same node sees them."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pharoah_provider.agent import cli
from pharoah_provider.agent.exporter_source import KEPT_SECONDS, ExporterAddress, ExporterSource, metric_mapping
from pharoah_provider.agent.prometheus_text import samples
from pharoah_provider.agent.signals import AGENT_SIGNALS, NotOnThisNode
from pharoah_provider.agent.signals import _nvml as nvml
from pharoah_provider.agent.signals._device_fields import DeviceField
from pharoah_provider.agent.signals._devices import devices_from
from tests.harness.agent_signals import values
from tests.harness.hostile_peers import HOSTILE_PEERS, hostile_peer
from tests.harness.other_user import NOBODY, needs_root, squatter

LABELS = 'UUID="GPU-1",pci_bus_id="00000000:3B:00.0",device="nvidia{0}",modelName="NVIDIA H100, 80GB",Hostname="n1"'


def exported(**metrics: tuple[float, ...]) -> str:
    """An exporter's answer: each metric with the values of gpu 0, 1, ..."""
    lines = []
    for name, of_gpus in metrics.items():
        lines += [f"# HELP {name} Some help.", f"# TYPE {name} gauge"]
        lines += [f'{name}{{gpu="{gpu}",{LABELS.format(gpu)}}} {value}' for gpu, value in enumerate(of_gpus)]
    return "\n".join(lines) + "\n"


ANSWER = exported(
    DCGM_FI_DEV_GPU_TEMP=(41, 43), DCGM_FI_DEV_FB_USED=(20, 0), DCGM_FI_DEV_FB_FREE=(60, 80),
    DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS=(2, 0), DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS=(1, 0),
    DCGM_FI_DEV_ECC_DBE_VOL_TOTAL=(0, 3), DCGM_FI_DEV_CLOCK_THROTTLE_REASONS=(0x88, 0x4),
    DCGM_FI_DEV_GPU_UTIL=(99, 98),
)  # fmt: skip


# the format


@given(
    st.lists(
        st.tuples(st.text(max_size=20), st.floats() | st.floats(-1e6, 1e6)),
        min_size=1,
        max_size=8,
        unique_by=lambda one: one[0],
    )
)
def test_the_parser_reads_what_the_library_of_prometheus_writes(rows: list[tuple[str, float]]) -> None:
    registry = CollectorRegistry()
    gauge = Gauge("temperature", "help with \\ and \n", ["zone", "node"], registry=registry)
    for label, value in rows:
        gauge.labels(zone=label, node='n"1\\').set(value)
    text = generate_latest(registry).decode()
    ours = [(dict(one.labels), str(one.value)) for one in samples(text, frozenset({"temperature"}))]
    theirs = [
        (dict(one.labels), str(one.value)) for family in text_string_to_metric_families(text) for one in family.samples
    ]
    assert ours == theirs


@pytest.mark.parametrize(
    "line", ['a{gpu="0" 1', "a{gpu=0} 1", "a one", "a", '{gpu="0"} 1', "a 1_000", "<html>", 'a{gpu="0"} 1 2 3']
)
def test_a_line_that_is_no_sample_is_an_error_that_names_it(line: str) -> None:
    with pytest.raises(ValueError, match="line 2"):
        list(samples(f"b 1\n{line}\n", frozenset({"a", "b"})))


# fields


def test_metrics_become_the_fields_that_the_driver_would_give() -> None:
    with devices_from(ExporterSource(lambda: ANSWER, "here")):
        assert values("gpu_temperature_celsius") == {"gpu0": 41, "gpu1": 43}
        assert values("gpu_memory_used_ratio") == {"gpu0": 0.25, "gpu1": 0.0}
        assert values("gpu_remapped_rows") == {"gpu0": 3, "gpu1": 0}
        assert values("gpu_uncorrected_errors") == {"gpu0": 0.0, "gpu1": 1.0}
        assert values("gpu_power_brake") == {"gpu0": 1.0, "gpu1": 0.0}
        assert values("gpu_power_capped") == {"gpu0": 0.0, "gpu1": 1.0}
        with pytest.raises(NotOnThisNode, match="DCGM_FI_DEV_SM_CLOCK"):
            values("gpu_clock_mhz")


def test_the_driver_is_not_asked_while_an_exporter_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked() -> None:
        raise AssertionError("the driver was asked")

    monkeypatch.setattr(nvml, "_nvml", asked)
    with devices_from(ExporterSource(lambda: ANSWER, "here")):
        for signal in AGENT_SIGNALS:
            if signal.name.startswith("gpu_"):
                try:
                    list(signal.read())
                except NotOnThisNode:
                    pass


def test_a_value_that_is_no_number_or_of_no_gpu_is_left_out() -> None:
    answer = exported(DCGM_FI_DEV_GPU_TEMP=(41,)) + 'DCGM_FI_DEV_GPU_TEMP{gpu="2"} NaN\nDCGM_FI_DEV_GPU_TEMP 3\n'
    with devices_from(ExporterSource(lambda: answer, "here")):
        assert values("gpu_temperature_celsius") == {"gpu0": 41}


def test_parts_of_a_gpu_give_what_they_share_where_the_whole_is_not_listed() -> None:
    answer = exported(DCGM_FI_DEV_GPU_TEMP=(41,), DCGM_FI_DEV_FB_USED=(1,), DCGM_FI_DEV_FB_FREE=(3,))
    for gpu, part, celsius, used in (("0", "1", 90, 3), ("1", "7", 50, 3), ("1", "8", 49, 0)):
        labels = f'{{gpu="{gpu}",GPU_I_ID="{part}"}}'
        answer += f"DCGM_FI_DEV_GPU_TEMP{labels} {celsius}\n"
        answer += f"DCGM_FI_DEV_FB_USED{labels} {used}\nDCGM_FI_DEV_FB_FREE{labels} 1\n"
    with devices_from(ExporterSource(lambda: answer, "here")):
        assert values("gpu_temperature_celsius") == {"gpu0": 41, "gpu1": 50}
        assert values("gpu_memory_used_ratio") == {"gpu0": 0.25}


def test_every_field_has_a_metric_and_how_busy_a_gpu_is_is_none_of_them() -> None:
    mapping = metric_mapping()
    assert mapping.rules.keys() == set(DeviceField)
    assert not [name for name in mapping.names if "UTIL" in name or "ACTIVE" in name]


def test_one_answer_and_one_failure_serve_all_signals_of_a_second() -> None:
    asked, now, broken = [], [100.0], [False]

    def fetch() -> str:
        asked.append(now[0])
        if broken[0]:
            raise OSError("refused")
        return ANSWER

    source = ExporterSource(fetch, "here", clock=lambda: now[0])
    for field in (DeviceField.TEMPERATURE_CELSIUS, DeviceField.MEMORY_USED_RATIO):
        source.read(field)
    assert len(asked) == 1
    broken[0], now[0] = True, now[0] + KEPT_SECONDS
    for field in DeviceField:
        with pytest.raises(NotOnThisNode, match="here: refused"):
            source.read(field)
    assert len(asked) == 2
    broken[0], now[0] = False, now[0] + KEPT_SECONDS
    assert source.read(DeviceField.TEMPERATURE_CELSIUS) == {"gpu0": 41, "gpu1": 43}


# a real server


@contextmanager
def server(body: bytes, status: int = 200) -> Iterator[str]:
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answers) as listening:
        thread = Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.server_port}/metrics"
        finally:
            listening.shutdown()
            thread.join()


def test_the_command_reads_an_exporter_over_http(capsys: pytest.CaptureFixture[str]) -> None:
    with server(ANSWER.encode()) as url:
        assert cli.main(["signals", "-o", "json", "--metrics-from", url]) == 0
    readings = json.loads(capsys.readouterr().out)["readings"]
    assert {one["device"]: one["value"] for one in readings if one["signal"] == "gpu_temperature_celsius"} == {
        "gpu0": 41, "gpu1": 43,
    }  # fmt: skip


@pytest.mark.parametrize(("status", "body"), [(404, b""), (302, b""), (200, b"<html>"), (200, b"a" * 9_000_000)])
def test_an_answer_that_is_no_metrics_is_a_reason(status: int, body: bytes) -> None:
    with server(body, status) as url:
        source = ExporterSource(ExporterAddress.from_text(url).fetch, url)
        with pytest.raises(NotOnThisNode, match=url):
            source.read(DeviceField.TEMPERATURE_CELSIUS)


@pytest.mark.parametrize(
    "url",
    ["https://127.0.0.1:9400/metrics", "http://10.0.0.1/metrics", "http://localhost/metrics", "http://u:p@127.0.0.1/",
     "127.0.0.1:9400", "http://[::2]/", "http://127.0.0.1:99999/", "file:///etc/passwd", ""],
)  # fmt: skip
def test_only_an_exporter_on_this_node_is_asked(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["signals", "--metrics-from", url])
    assert "--metrics-from" in capsys.readouterr().err


def test_an_address_of_version_6_is_taken() -> None:
    assert ExporterAddress.from_text("http://[::1]:9400/metrics").address.host == "::1"


@needs_root
def test_an_exporter_of_another_user_is_trusted_only_when_named() -> None:
    """Any user of the node can listen on the port of an exporter that is away."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with squatter(lambda: socket.create_server(("127.0.0.1", port))) as received:
        address = ExporterAddress.from_text(f"http://127.0.0.1:{port}/metrics")
        source = ExporterSource(address.fetch, address.url)
        with pytest.raises(NotOnThisNode, match=f"served by .*{NOBODY}"):
            source.read(DeviceField.TEMPERATURE_CELSIUS)
        with pytest.raises(OSError, match="has not answered"):  # it is asked now, and says nothing
            address.fetch(str(NOBODY))
    assert len(received) == 1, "nothing is sent to whom nobody trusts"


def test_users_that_this_machine_does_not_have_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--metrics-from", "http://127.0.0.1:9400/metrics", "--service-users", "no such user"]
    assert cli.main(["signals", *options]) == 1
    assert "--service-users: 'no such user' is not a user of this machine" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["drips the status", "drips the body", "continues for ever"])
def test_an_exporter_that_never_ends_its_answer_has_no_signal(name: str) -> None:
    with hostile_peer(HOSTILE_PEERS[name]) as port:
        address = ExporterAddress.from_text(f"http://127.0.0.1:{port}/metrics")
        with pytest.raises(NotOnThisNode, match=r"has not answered in 1 s|interim answers"):
            ExporterSource(address.fetch, address.url).read(DeviceField.TEMPERATURE_CELSIUS)
