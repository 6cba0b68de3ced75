"""Network cards and fabric adapters: models, speeds and firmware; no addresses and no names."""

from __future__ import annotations

from pathlib import Path

from pharoah_provider.agent.facts._group import FactGroup, listed, text_of

SYSFS = Path("/sys/class")


def _read() -> dict[str, str]:
    adapters = sorted(SYSFS.glob("infiniband/*"))
    return {
        "network_cards": listed(_card(card) for card in sorted(SYSFS.glob("net/*")) if (card / "device").exists()),
        "fabric_adapters": listed(
            text_of(adapter / "hca_type") or adapter.name.rstrip("0123456789") for adapter in adapters
        ),
        "fabric_firmware": listed(text_of(adapter / "fw_ver") for adapter in adapters),
        "fabric_rates": listed(
            text_of(port / "rate") for adapter in adapters for port in sorted(adapter.glob("ports/*"))
        ),
    }


def _card(card: Path) -> str:
    """Driver and speed. A card without a link has no speed: the kernel gives an error or -1."""
    driver = (card / "device" / "driver").resolve().name if (card / "device" / "driver").exists() else "unknown"
    speed = text_of(card / "speed")
    return f"{driver} {speed} Mb/s" if speed.isdecimal() else driver


FACTS = FactGroup(
    name="network",
    help="drivers and speeds of network cards; models, firmware and rates of fabric adapters (sysfs)",
    facts=("network_cards", "fabric_adapters", "fabric_firmware", "fabric_rates"),
    read=_read,
)
