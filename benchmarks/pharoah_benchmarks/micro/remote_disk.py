"""A file in the remote folder that the operator names, written and read back."""

from __future__ import annotations

from pharoah_benchmarks.micro._benchmark import Need
from pharoah_benchmarks.micro._families import files

BENCHMARK = files(
    "remote_disk", "FileWrittenAndRead", "write a file in the remote folder and read it", 32 << 20, Need.REMOTE_FOLDER
)
