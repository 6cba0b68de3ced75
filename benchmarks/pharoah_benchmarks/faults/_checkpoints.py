"""A job that writes a checkpoint after each step, so that a fault of the disk has something to act on."""

from __future__ import annotations

import os
from pathlib import Path

from pharoah_benchmarks.faults._fault import Effect

CHECKPOINT_BYTES = 1 << 20


class Checkpoints(Effect):
    """Writes and syncs the same file again and again, from the first step on, so that the baseline includes it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._content = os.urandom(CHECKPOINT_BYTES)

    def after_step(self) -> None:
        """Replace the checkpoint, as training scripts do. Raises OSError, such as "No space left on device"."""
        new = self._folder / "checkpoint.new"
        with new.open("wb") as file:
            file.write(self._content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._folder / "checkpoint")
