"""GPUs as an exporter on the same node sees them, so that two programs do not ask the driver for the same.

`pharoah-agent run --metrics-from http://127.0.0.1:9400/metrics`. Which metric is which field is data
(`exporter_metrics.toml`). What the exporter does not export has no signal.
"""

from __future__ import annotations

import ipaddress
import logging
import math
import threading
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources

from pharoah_provider.agent.prometheus_text import PrometheusSample, samples
from pharoah_provider.agent.signals._device_fields import DeviceField
from pharoah_provider.agent.signals._signal import NotOnThisNode, device_name
from pharoah_system.http_address import HttpAddress, HttpAddressError
from pharoah_system.http_client import get
from pharoah_system.served_ports import check_service
from pharoah_system.trusted_paths import list_trusted_users

log = logging.getLogger("pharoah.agent")

KEPT_SECONDS = 0.9
"""One answer serves all signals of one second, and so does one failure: nineteen signals do not wait nineteen times."""
ANSWER_SECONDS = 1.0
"""The deadline of a whole answer; the signals of all GPUs wait for it."""
MAX_BYTES = 8_000_000
"""An answer of an exporter of 16 GPUs has about 300,000 bytes."""


@dataclass(frozen=True)
class MetricRule:
    """How the metrics of an exporter become one field."""

    sum: tuple[str, ...]
    over: tuple[str, ...] = ()

    def value(self, metrics: Mapping[str, float]) -> float | None:
        """The field of a GPU with these metrics; None where it lacks them."""
        parts = [metrics[name] for name in self.sum if name in metrics]
        if not parts or any(name not in metrics for name in self.over):
            return None
        total = math.fsum(metrics[name] for name in self.over) if self.over else 1.0
        return math.fsum(parts) / total if total else None


@dataclass(frozen=True)
class MetricMapping:
    """The rules of all fields, and the labels that say which GPU a sample is of."""

    rules: Mapping[DeviceField, MetricRule]
    device_labels: tuple[str, ...]
    part_labels: tuple[str, ...]
    of_each_part: frozenset[str]
    """Metrics that the parts of a partitioned GPU do not share."""

    @property
    def names(self) -> frozenset[str]:
        """All metrics that any rule needs."""
        return frozenset(name for rule in self.rules.values() for name in (*rule.sum, *rule.over))

    def devices(self, found: Iterable[PrometheusSample]) -> dict[str, dict[str, float]]:
        """GPU to its metrics. A value that is not finite is none."""
        devices: dict[str, dict[str, float]] = defaultdict(dict)
        of_parts: dict[str, dict[str, float]] = defaultdict(dict)
        for sample in found:
            number = next((sample.labels[label] for label in self.device_labels if sample.labels.get(label)), None)
            if number is None or not math.isfinite(sample.value):
                continue
            device = device_name(f"gpu{number}")
            if not any(sample.labels.get(label) for label in self.part_labels):
                devices[device][sample.name] = sample.value
            elif sample.name not in self.of_each_part:
                parts = of_parts[device]
                parts[sample.name] = max(sample.value, parts.get(sample.name, -math.inf))
        return {device: {**of_parts[device], **devices[device]} for device in {**devices, **of_parts}}


def metric_mapping() -> MetricMapping:
    """The mapping of this release."""
    text = resources.files("pharoah_provider.agent").joinpath("exporter_metrics.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)
    rules = {
        DeviceField(name): MetricRule(tuple(rule["sum"]), tuple(rule.get("over", ())))
        for name, rule in data["fields"].items()
    }
    return MetricMapping(
        rules, tuple(data["labels"]["device"]), tuple(data["labels"]["part"]), frozenset(data["labels"]["of_each_part"])
    )


@dataclass(frozen=True)
class ExporterAddress:
    """Where an exporter on this node answers."""

    address: HttpAddress
    url: str
    """What the operator has given."""

    @classmethod
    def from_text(cls, url: str) -> ExporterAddress:
        """Raises ValueError that states what is wrong. Only this node's own addresses are taken: an answer from another
        node, or one that somebody changes on its way, would make a sick node look healthy."""
        try:
            address = HttpAddress.from_url(url)
        except HttpAddressError as error:
            raise ValueError(f"{error}; expected an address such as http://127.0.0.1:9400/metrics") from None
        if address.uses_tls or address.authorization:
            raise ValueError(f"{address.origin}: expected an address such as http://127.0.0.1:9400/metrics")
        try:
            local = ipaddress.ip_address(address.host).is_loopback
        except ValueError:
            local = False
        if not local:
            raise ValueError(f"{address.origin}: not a loopback address such as 127.0.0.1 or [::1]")
        return cls(address, url)

    def fetch(self, service_users: str = "") -> str:
        """The exporter's answer, if its process is one of root, of us, or of `service_users`: any user of the node can
        listen on its port while it is away. Raises OSError or ValueError."""
        users = list_trusted_users(service_users)
        answer = get(
            self.address,
            limit_seconds=ANSWER_SECONDS,
            max_body_bytes=MAX_BYTES,
            headers={"Accept": "text/plain;version=0.0.4"},
            check_peer=lambda connected, seconds: check_service(connected, users, seconds),
        )
        if not answer.is_success:
            raise OSError(f"the exporter answers with status {answer.status}")
        return answer.body.decode("utf-8", errors="replace")


@dataclass
class ExporterSource:
    """A DeviceSource that asks an exporter once a second. May be used in any thread."""

    fetch: Callable[[], str]
    """Gives the exporter's answer; raises OSError or ValueError."""
    where: str
    """What an operator knows it by: its address."""
    mapping: MetricMapping = field(default_factory=metric_mapping)
    clock: Callable[[], float] = time.monotonic
    _devices: dict[str, dict[str, float]] = field(default_factory=dict, init=False)
    _problem: str = field(default="", init=False)
    _asked_at: float = field(default=-math.inf, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def read(self, field: DeviceField) -> Mapping[str, float]:
        """See DeviceSource."""
        rule = self.mapping.rules[field]
        with self._lock:
            self._ask()
            if self._problem:
                raise NotOnThisNode(f"{self.where}: {self._problem}")
            values = {device: rule.value(metrics) for device, metrics in self._devices.items()}
        found = {device: value for device, value in values.items() if value is not None}
        if not found:
            raise NotOnThisNode(f"{self.where}: does not export {', '.join(rule.sum)}")
        return found

    def _ask(self) -> None:
        now = self.clock()
        if now - self._asked_at < KEPT_SECONDS:
            return
        self._asked_at = now
        try:
            self._devices = self.mapping.devices(samples(self.fetch(), self.mapping.names))
            problem = ""
        except (OSError, ValueError) as error:
            problem = str(error) or type(error).__name__
        if problem != self._problem:
            log.warning("the exporter at %s %s", self.where, f"gives no metrics: {problem}" if problem else "answers")
        self._problem = problem
