"""A large server's files, and the answer of an exporter of its GPUs: what an agent has to read there.

The files have the names and the form of the kernel's, in a folder; reading the kernel's own ones takes it longer,
because it asks the device. So what is measured on these files is our part of the cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

from pharoah_provider.agent.exporter_source import metric_mapping
from pharoah_provider.agent.signals import _disks as disks
from pharoah_provider.agent.signals import _links as links
from pharoah_provider.agent.signals import _memory as memory
from pharoah_provider.agent.signals import _processors as processors

GPUS, CORES, PORTS, CARDS, CONTROLLERS, DISKS, ZONES = 8, 192, 9, 12, 24, 10, 4
"""A server of two processors with 96 cores each, twelve memory channels each, a fabric port for each GPU and one more,
and NVMe and SATA disks."""
OTHER_METRICS = 60
"""Metrics of a GPU that the exporter gives and no signal needs: dcgm-exporter can give more than a hundred."""


def files() -> Iterator[tuple[str, object]]:
    """Path and content of each file."""
    yield "meminfo", "MemTotal: 2113000000 kB\nMemFree: 9000 kB\nMemAvailable: 1800000000 kB"
    yield "vmstat", "\n".join(f"counter_{number} {number}" for number in range(180)) + "\noom_kill 0"
    yield "mounts", "\n".join(f"/dev/nvme{number}n1 / ext4 rw 0 0" for number in range(DISKS))
    for core in range(CORES):
        for name in ("core_throttle_count", "package_throttle_count"):
            yield f"cpu/cpu{core}/thermal_throttle/{name}", core
        yield f"cpu/cpu{core}/cpufreq/scaling_cur_freq", 2_400_000
        yield f"cpu/cpu{core}/cpufreq/cpuinfo_max_freq", 3_700_000
    for port in range(PORTS):
        root = f"class/infiniband/mlx5_{port}/ports/1"
        for name in ("symbol_error", "link_downed", "link_error_recovery", "port_rcv_errors", "port_xmit_discards",
                     "local_link_integrity_errors", "excessive_buffer_overrun_errors"):  # fmt: skip
            yield f"{root}/counters/{name}", 0
        for name in ("out_of_sequence", "packet_seq_err", "local_ack_timeout_err"):
            yield f"{root}/hw_counters/{name}", 0
        yield f"{root}/state", "4: ACTIVE"
        yield f"{root}/phys_state", "5: LinkUp"
    for card in range(CARDS):
        for name in ("rx_errors", "tx_errors", "rx_dropped", "tx_dropped"):
            yield f"class/net/eth{card}/statistics/{name}", 0
        for name, content in (("carrier_changes", 2), ("carrier", 1), ("flags", "0x1003"), ("device/vendor", "0x1")):
            yield f"class/net/eth{card}/{name}", content
    for controller in range(CONTROLLERS):
        for name in (*memory.CORRECTED, *memory.UNCORRECTED):
            yield f"mc/mc{controller}/{name}", 0
    for disk in range(DISKS):
        yield f"block/sd{disk}/device/ioerr_cnt", "0x0"
    for zone in range(ZONES):
        yield f"thermal/thermal_zone{zone}/temp", 45_000
        yield f"thermal/thermal_zone{zone}/type", "x86_pkg_temp"


@contextmanager
def large_node(folder: Path) -> Iterator[None]:
    """Signals are read from such files inside this scope."""
    for name, content in files():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{content}\n")
    places = {
        (links, "SYSFS"): "class", (processors, "CPUS"): "cpu", (processors, "THERMAL"): "thermal",
        (memory, "PROC"): "", (memory, "CONTROLLERS"): "mc", (disks, "BLOCKS"): "block", (disks, "MOUNTS"): "mounts",
    }  # fmt: skip
    before = {place: getattr(*place) for place in places}
    try:
        for place, name in places.items():
            setattr(*place, folder / name)
        yield
    finally:
        for place, path in before.items():
            setattr(*place, path)


def exporter_answer(levels: Mapping[str, float]) -> str:
    """What an exporter says of GPUS GPUs: each metric with its value in `levels`, else 0."""
    lines = []
    names = [*sorted(metric_mapping().names), *(f"DCGM_FI_PROF_OTHER_{number}" for number in range(OTHER_METRICS))]
    for name in names:
        lines += [f"# HELP {name} What it is.", f"# TYPE {name} gauge"]
        lines += [
            f'{name}{{gpu="{gpu}",UUID="GPU-{gpu:032x}",pci_bus_id="00000000:{gpu:02X}:00.0",device="nvidia{gpu}",'
            f'modelName="NVIDIA H100 80GB HBM3",Hostname="n1"}} {levels.get(name, 0):g}'
            for gpu in range(GPUS)
        ]
    return "\n".join(lines) + "\n"


@contextmanager
def exporter() -> Iterator[str]:
    """An exporter of GPUS GPUs on this machine. Yields its address."""
    body = exporter_answer({"DCGM_FI_DEV_FB_FREE": 80_000, "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": 16,
                            "DCGM_FI_DEV_PCIE_MAX_LINK_GEN": 5, "DCGM_FI_DEV_GPU_TEMP": 45}).encode()  # fmt: skip

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing of each question."""

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/metrics"
        finally:
            server.shutdown()
            thread.join()
