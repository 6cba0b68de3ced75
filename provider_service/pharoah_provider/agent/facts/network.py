"""Network cards and fabric adapters: models, speeds and firmware; no addresses and no names.

A fact must not follow what a link or a pod does: the context of the node would change with it. So the speed of a link
is the highest that it has had since the agent began, because a link that is down shows a lower one or none. Virtual
functions are left out, because they move into pods and back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from math import inf
from pathlib import Path

from pharoah_provider.agent.facts._group import FactGroup, listed, text_of

SYSFS = Path("/sys/class")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")


class _Highest:
    """The highest speed that each link has shown, as the kernel writes it."""

    def __init__(self) -> None:
        self._shown: dict[Path, str] = {}

    def of(self, link: Path, shown: str) -> str:
        """The highest speed of a link that shows this one now; empty while it has shown none."""
        if _number(shown) > _number(self._shown.get(link, "")):
            self._shown[link] = shown
        return self._shown.get(link, "")


def _number(speed: str) -> float:
    """The number at the beginning, such as 400 of `400 Gb/sec (4X NDR)`."""
    found = _NUMBER.match(speed)
    return float(found[0]) if found else -inf


_highest = _Highest()


def _read() -> dict[str, str]:
    adapters = list(_physical("infiniband"))
    return {
        "network_cards": listed(_card(card) for card in _physical("net") if (card / "device").exists()),
        "fabric_adapters": listed(
            text_of(adapter / "hca_type") or adapter.name.rstrip("0123456789") for adapter in adapters
        ),
        "fabric_firmware": listed(text_of(adapter / "fw_ver") for adapter in adapters),
        "fabric_rates": listed(_highest.of(port, text_of(port / "rate")) for port in _ports(adapters)),
    }


def _physical(kind: str) -> Iterator[Path]:
    """Cards or adapters without virtual functions: those have a link to the function that they belong to
    (Documentation/ABI/testing/sysfs-bus-pci, physfn). In a virtual machine, which does not see that one, they count."""
    return (device for device in sorted(SYSFS.glob(f"{kind}/*")) if not (device / "device" / "physfn").exists())


def _ports(adapters: Iterable[Path]) -> Iterator[Path]:
    return (port for adapter in adapters for port in sorted(adapter.glob("ports/*")))


def _card(card: Path) -> str:
    """Driver and speed. A card that never had a link has no speed: the kernel gives an error or -1."""
    driver = (card / "device" / "driver").resolve().name if (card / "device" / "driver").exists() else "unknown"
    speed = _highest.of(card, text_of(card / "speed"))
    return f"{driver} {speed} Mb/s" if speed else driver


FACTS = FactGroup(
    name="network",
    help="drivers and speeds of network cards; models, firmware and rates of fabric adapters: the highest since the "
    "agent began, without virtual functions (sysfs)",
    facts=("network_cards", "fabric_adapters", "fabric_firmware", "fabric_rates"),
    read=_read,
)
