"""A file on the local disk, read past the cache of the kernel."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import files

BENCHMARK = files("disk_read", "FileRead", "read a file from the local disk", size_bytes=32 << 20)
