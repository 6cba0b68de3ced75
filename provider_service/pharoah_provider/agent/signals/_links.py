"""Ports of fabric adapters and network cards: their error counters, and whether a link is down.

Counters of InfiniBand and RoCE stand in sysfs as Documentation/ABI/stable/sysfs-class-infiniband names them, those of
network cards as Documentation/ABI/testing/sysfs-class-net-statistics does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from pharoah_provider.agent.signals._files import MAX_FOLDERS, folders, is_hardware, number_of, sum_readings, text_of
from pharoah_provider.agent.signals._signal import NotOnThisNode, Reading, device_name

SYSFS = Path("/sys/class")
_COUNTERS = ("counters", "hw_counters")
_NO_FABRIC = "this node has no InfiniBand or RoCE adapter with such counters"
_NO_CARD = "this node has no network card with such counters"
_ADMINISTERED = 0x1
"""IFF_UP of the flags of a network card: an administrator has switched it on (netdevice(7))."""
_ACTIVE = "4:"
"""The state of a fabric port that carries data begins with it (`4: ACTIVE`)."""


class _Port(NamedTuple):
    name: str
    folder: Path


def _fabric_ports() -> list[_Port]:
    ports = [
        _Port(device_name(f"{adapter.name}-{port.name}"), port)
        for adapter in folders(SYSFS / "infiniband")
        for port in folders(adapter / "ports")
    ]
    return ports[:MAX_FOLDERS]


def _cards() -> list[_Port]:
    """Network cards; virtual interfaces have no device. Ports of fabric adapters are cards, too."""
    return [_Port(device_name(card.name), card) for card in folders(SYSFS / "net", keep=is_hardware)]


def fabric_counts(*names: str) -> Iterator[Reading]:
    """The sum of these counters of each port that has one of them. Raises NotOnThisNode when none has."""
    files = [f"{folder}/{name}" for folder in _COUNTERS for name in names]
    yield from _counts(_fabric_ports(), files, _NO_FABRIC)


def card_counts(*names: str) -> Iterator[Reading]:
    """The sum of these files of each network card that has one of them. Raises NotOnThisNode when none has."""
    yield from _counts(_cards(), names, _NO_CARD)


def _counts(ports: Iterable[_Port], files: Iterable[str], absent: str) -> Iterator[Reading]:
    found = False
    for port in ports:
        if (reading := sum_readings(port.folder, files, port.name)) is not None:
            found = True
            yield reading
    if not found:
        raise NotOnThisNode(absent)


class LinkWatch:
    """Which links are down that have been up.

    A port without a cable is never up and in no trouble. One that an administrator switches off is in none either.
    """

    def __init__(self) -> None:
        self._has_been_up: set[str] = set()

    def readings(self) -> Iterator[Reading]:
        """1 for each port whose link is down and has been up since the agent began, else 0."""
        states = {port.name: _fabric_up(port.folder) for port in _fabric_ports()}
        states |= {card.name: _card_up(card.folder) for card in _cards()}
        if not states:
            raise NotOnThisNode("this node has no network card and no fabric adapter")
        self._has_been_up |= {name for name, up in states.items() if up}
        for name, up in sorted(states.items()):
            yield Reading(float(up is False and name in self._has_been_up), name)


def _fabric_up(port: Path) -> bool | None:
    """Whether a port is active; None where its state cannot be read, or it is disabled."""
    state = text_of(port / "state")
    disabled = "disabled" in (text_of(port / "phys_state") or "").lower()
    return None if state is None or disabled else state.startswith(_ACTIVE)


def _card_up(card: Path) -> bool | None:
    """Whether a card has a carrier; None where an administrator has switched it off."""
    if not (number_of(card / "flags") or 0) & _ADMINISTERED:
        return None
    carrier = number_of(card / "carrier")
    return None if carrier is None else bool(carrier)


LINKS = LinkWatch()
"""The links of this node."""
