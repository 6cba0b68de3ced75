"""Which entry of the data file a device's name means."""

from __future__ import annotations

import pytest

from pharoah_archetypes.devices import device_named


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A10G", "A10"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40", "L40"),
        ("NVIDIA L40S", "L40S"),
        ("Tesla T4", "T4"),
        ("Tesla V100-SXM2-16GB", "V100-SXM2-16"),
        ("Tesla V100-SXM2-32GB", "V100"),
        ("Tesla V100-FHHL-16GB", "V100-FHHL-16"),
        ("NVIDIA GeForce RTX 4090", "4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA RTX A6000", "A6000"),
        ("RTX4090", "4090"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA RTX A4000", None),
        ("NVIDIA RTX A1000", None),
        ("NVIDIA T400", None),
        ("NVIDIA H20", None),
        ("AMD Instinct MI300X", "MI300X"),
        ("NVIDIA A10-4Q", None),
        ("GRID T4-8Q", None),
        ("NVIDIA A40-12Q", None),
        ("NVIDIA A40-8A", None),
        ("GRID V100D-32C", None),
        ("NVIDIA A10-2B", None),
        ("GRID A100-1-5CME", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", None),
    ],
)
def test_a_name_means_the_entry_of_its_own_model(name: str, part: str | None) -> None:
    device = device_named(name)
    assert (device and device.part) == part
