"""Which entry of the data file a device's name means."""

from __future__ import annotations

import pytest

from pharoah_archetypes.devices import Device, device_named, devices


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
        ("NVIDIA H20", "H20"),
        ("NVIDIA H20-3e", "H20-3e"),
        ("NVIDIA H800", "H800"),
        ("NVIDIA H800 PCIe", "H800 PCIe"),
        ("NVIDIA A800-SXM4-40GB", "A800-SXM4-40"),
        ("NVIDIA A800 40GB Active", "A800 40"),
        ("NVIDIA A800-SXM4-80GB", "A800"),
        ("NVIDIA A800 80GB PCIe", "A800"),
        ("NVIDIA A30", "A30"),
        ("NVIDIA RTX A3000 Laptop GPU", None),
        ("NVIDIA L20", "L20"),
        ("NVIDIA B300 SXM6 AC", "B300"),
        ("NVIDIA GB300", "GB300"),
        ("NVIDIA GeForce RTX 5090", "5090"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("Quadro RTX 6000", None),
        ("NVIDIA RTX A5000", "A5000"),
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


@pytest.mark.parametrize("device", devices(), ids=lambda device: device.part)
def test_ceilings_of_a_device_agree_with_each_other(device: Device) -> None:
    flops = device.flops
    assert device_named(device.part) == device, "an earlier entry does not hide this one"
    assert flops["float64"] <= flops["float32"] <= flops["float16"], "more exact numbers are not faster"
    assert flops["float32"] <= flops.get("tf32", flops["float32"]) <= flops["float16"]
    assert flops.get("float8", flops["float16"]) >= flops["float16"]
    assert flops.get("bfloat16", flops["float16"]) == flops["float16"]
    assert ("float8" in flops) == (device.capability >= (8, 9)), "FP8 since Ada and Hopper"
    assert 1e10 < device.link_bytes_per_second < device.bytes_per_second
