"""Network cards and fabric adapters: models, speeds and firmware; no addresses and no names.

A fact must not follow what a link or a pod does: the context of the node would change with it. So the speed of a link
is the highest that it has had since the agent began, because a link that is down shows a lower one or none, and a card
that has been there counts until the agent ends, because whole cards move into pods and back. Virtual functions are left
out: there are as many as pods.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import inf
from pathlib import Path

from pharoah_provider.agent.facts._group import FactGroup, join_values, text_of

SYSFS = Path("/sys/class")
FACT_NAMES = ("network_cards", "fabric_adapters", "fabric_firmware", "fabric_rates")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")


class _Highest:
    """The highest speed that each link has shown, as the kernel writes it."""

    def __init__(self) -> None:
        self._shown: dict[Path, str] = {}

    def read_speed(self, link: Path, shown: str) -> str:
        """The highest speed of a link that shows this one now; empty while it has shown none."""
        if _number(shown) > _number(self._shown.get(link, "")):
            self._shown[link] = shown
        return self._shown.get(link, "")


def _number(speed: str) -> float:
    """The number at the beginning, such as 400 of `400 Gb/sec (4X NDR)`."""
    found = _NUMBER.match(speed)
    return float(found[0]) if found else -inf


class _Kept:
    """What has been seen of cards and ports since the agent began, by their place in the machine."""

    def __init__(self) -> None:
        self._highest = _Highest()
        self._seen: dict[str, dict[Path, str]] = {}

    def read(self) -> dict[str, str]:
        """The facts of all that is or has been there."""
        for card in _physical("net"):
            if (card / "device").exists():
                self._see("network_cards", card, self._card(card))
        for adapter in _physical("infiniband"):
            self._see("fabric_adapters", adapter, text_of(adapter / "hca_type") or adapter.name.rstrip("0123456789"))
            self._see("fabric_firmware", adapter, text_of(adapter / "fw_ver"))
            for port in sorted(adapter.glob("ports/*")):
                rate = self._highest.read_speed(_place(adapter) / port.name, text_of(port / "rate"))
                self._see("fabric_rates", adapter, rate, port.name)
        return {name: join_values(self._seen.get(name, {}).values()) for name in FACT_NAMES}

    def _see(self, fact: str, device: Path, value: str, part: str = "") -> None:
        self._seen.setdefault(fact, {})[_place(device) / part] = value

    def _card(self, card: Path) -> str:
        """Driver and speed. A card that never had a link has no speed: the kernel gives an error or -1."""
        driver = (card / "device" / "driver").resolve().name if (card / "device" / "driver").exists() else "unknown"
        speed = self._highest.read_speed(_place(card), text_of(card / "speed"))
        return f"{driver} {speed} Mb/s" if speed else driver


def _place(device: Path) -> Path:
    """Where a card or an adapter is in the machine, with its port where several share that place: the name of an
    interface may be another one each time that it comes back."""
    return (device / "device").resolve() / text_of(device / "dev_port")


def _physical(kind: str) -> Iterator[Path]:
    """Cards or adapters without virtual functions: those have a link to the function that they belong to
    (Documentation/ABI/testing/sysfs-bus-pci, physfn). In a virtual machine, which does not see that one, they count."""
    return (device for device in sorted(SYSFS.glob(f"{kind}/*")) if not (device / "device" / "physfn").exists())


_kept = _Kept()


def _read() -> dict[str, str]:
    return _kept.read()


FACTS = FactGroup(
    name="network",
    help="drivers and speeds of network cards; models, firmware and rates of fabric adapters: the highest since the "
    "agent began, without virtual functions (sysfs)",
    facts=FACT_NAMES,
    read=_read,
)
