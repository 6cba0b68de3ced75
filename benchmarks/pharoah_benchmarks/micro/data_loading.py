"""Samples that the workers of a DataLoader read."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import loading

BENCHMARK = loading("data_loading", samples=256)
