"""A file on the local disk, written and made durable."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import files

BENCHMARK = files(
    "disk_write", "FileWritten", "write a file to the local disk and make it durable", size_bytes=32 << 20
)
